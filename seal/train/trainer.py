"""Algorithm 1 of the paper (arXiv 2605.24426, section 3.5) in the hooks of verl's PPO trainer.

One round t:

| line | what | where |
|---|---|---|
| 1 | roll out through the interface Omega_t | `seal.train.agent_loop` |
| 2, 3 | reward r of the verifier, labels z_i of the turns (3.2) | the environment service |
| 4 | labels to the failure profile C_t (3.2, 3.3) | `SealTrainer.step` |
| 5 | advantage times weight (3.4) | `SealTrainer._compute_advantage` |
| 6 | policy update | verl |
| 6 | C_t to the service, which evolves the interface (3.3) | `SealTrainer.on_step_end` |

Line 4 runs after line 5 and the policy update, which do not read C_t: the weights of a round come
from the utilities that earlier rounds have left. verl saves a checkpoint between `step` and
`on_step_end`, and the checkpoint of step t holds C_t, so `on_step_end` would be too late.

What the loop carries from round to round is a `LoopState`. The other hooks keep checkpoints, choose
suites of validations and tell the launcher what is being done; the work is in modules of their own.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, open_dict
from tensordict import TensorDict
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1 import PPOTrainerSync, register_trainer

from seal.coevolution.interface import Interface
from seal.coevolution.rollout import Rollout
from seal.coevolution.weights import batch_weights
from seal.records.loop_log import LoopLog
from seal.settings.rules import check_best_metric, check_synthetic
from seal.settings.sections import read_settings
from seal.train import validation
from seal.train.advantages import balanced, weighted
from seal.train.checkpoints import CheckpointKeeper
from seal.train.engine_watch import EngineWatch
from seal.train.interface_update import evolved_interface
from seal.train.replay import WholeGroupReplayBuffer
from seal.train.round import RoundBatch, RoundLog
from seal.train.state import LoopState, after_round, loop_config
from seal.train.synthetic import pool_of_run
from seal.validation.metrics import validation_metrics
from seal.wire import InterfaceReply

TRAINER_MODE = "seal"
"""Value of `trainer.v1.trainer_mode` that selects this trainer."""


@register_trainer(TRAINER_MODE)
class SealTrainer(PPOTrainerSync):
    """GRPO whose advantages are reweighted by diagnosis and whose interface co-evolves."""

    def __init__(self, config: DictConfig) -> None:
        """Check what can be checked, then start verl's workers.

        Raises:
            SettingsError: A setting is wrong, or out of its range; the recipe's checkpoints cannot
                be kept; the gate needs a validation that is switched off; the best checkpoint is
                chosen by a suite that is hardly ever played; or settings of synthetic tasks would
                do nothing.
        """
        self._settings = settings = read_settings(config)
        self._checkpoints = CheckpointKeeper(settings)
        validation.check_gate_possible(settings)
        check_best_metric(settings.seal)
        check_synthetic(settings.data)
        with open_dict(config):  # verl compares trainer_mode with "sync" in several places
            config.trainer.v1.trainer_mode = "sync"
        super().__init__(config)
        self._loop = loop_config(settings.seal, settings.data.synthetic_refresh)
        self._aggregation = str(config.actor_rollout_ref.actor.loss_agg_mode)
        self._state = LoopState(utilities=self._loop.weights.utilities)
        self._interface = self._state.shown  # Omega_t, what round t is shown
        self._rollouts: list[Rollout] = []  # those of round t
        self._log = LoopLog(Path(settings.seal.loop_dir))
        self.replay_buffer.on_progress = self._log.progress
        self._round_log = RoundLog(self._log, self._loop.weights, self._aggregation)

    def _build_replay_buffer(self) -> WholeGroupReplayBuffer:
        """Ours, with what verl gives its own: verl leaves filter and refill out for others."""
        return WholeGroupReplayBuffer(self.config, self._replace_groups)

    # ---- Algorithm 1 -------------------------------------------------------------------

    def on_train_begin(self) -> None:
        """Tell the service about the run: Omega_1, or what a resumed run was saved with."""
        super().on_train_begin()
        self._send_profile()

    def step(self, metrics: dict[str, Any], timing_raw: dict[str, Any]) -> KVBatchMeta:
        """The round by verl, up to the policy update; then line 4: labels to C_t (3.2, 3.3).

        C_t also gives the utilities rho of the next round.
        """
        batch = super().step(metrics, timing_raw)
        self._state = after_round(
            self._state, self.global_steps, self._rollouts, self._interface, self._loop
        )
        return batch

    def _compute_advantage(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
        """Line 5: A~_j = w_j * A_j (section 3.4).

        w_j = clip(sum_z p_j(z) * rho(z), w_min, w_max) > 0, so no advantage changes its sign. In
        scope "turn" the tokens of each turn have their own weight.
        """
        step, config = self.global_steps, self._loop.weights
        batch = super()._compute_advantage(batch, metrics)  # A_j from the rewards r, by verl
        sampled = bool(self.config.actor_rollout_ref.rollout.calculate_log_probs)
        played = RoundBatch.read(batch, log_probs=sampled)
        self._rollouts = played.rollouts
        weights = batch_weights(  # w_j (3.4)
            played.rollouts,
            played.groups,
            self._state.utilities,
            config,
            seed=f"{self.config.seed} {step}",
        )
        advantages = [  # w_j * A_j (3.4)
            weighted(advantage, rollout, by_turn, config)
            for advantage, rollout, by_turn in zip(
                played.advantages, played.rollouts, weights, strict=True
            )
        ]
        if config.normalize == "balanced":
            advantages, weights = balanced(
                advantages, weights, played.groups, played.masks, self._aggregation
            )
        played.write(advantages)
        self._round_log.weighted(
            step, played, weights, advantages, self._state, self._interface, metrics
        )
        return batch

    def on_step_end(self) -> None:
        """Line 6: Omega_{t+1} = Evolve(Omega_t, C_t) (section 3.3); then the next round begins.

        The policy has been updated. verl hands its weights to the rollout engines.
        """
        least = self._settings.seal.interface.min_observations
        self._round_log.evolved(self._state, self._send_profile(), least)
        self._phase("weight_transfer")
        super().on_step_end()
        self._phase("step_end")

    def _send_profile(self) -> InterfaceReply:
        """Send C_t and Omega_t to the service and take over the interface that it made of them."""
        reply = evolved_interface(self._settings, self._state)
        self._interface = Interface.from_json(reply.interface)
        return reply

    # ---- prompts -----------------------------------------------------------------------

    def _init_dataloader(self) -> None:
        """verl's, and the pool of synthetic tasks if the recipe names one."""
        super()._init_dataloader()
        self._synthetic = pool_of_run(self._settings, self.train_dataset)

    def prepare_step(self) -> dict[str, Any]:
        """verl's: submit the prompts of a step; some of them are drawn from the pool."""
        if self._synthetic is not None:
            self._state = self._synthetic.begin_step(self._state, self.global_steps)
        prepared: dict[str, Any] = super().prepare_step()
        return prepared

    def _replace_groups(self, groups: Sequence[str]) -> None:
        """Submit prompts in the place of lost or filtered groups, each of its group's kind."""
        if self._synthetic is not None:
            self._state = self._synthetic.replace_groups(self._state, self.global_steps, groups)
        self._add_prompts_to_generate(len(groups))

    def _fetch_one_gen_batch(self) -> TensorDict:
        """verl's: the next prompt of the loader, unless one of the pool waits."""
        if self._synthetic is not None and self._synthetic.waiting:
            return self._synthetic.take()
        return super()._fetch_one_gen_batch()

    # ---- checkpoints -------------------------------------------------------------------

    def _save_checkpoint(self) -> None:
        """verl's, as the recipe wants it: with the loop's state, and not more than are kept."""
        self._checkpoints.after_step(self._state, self.global_steps, self._save)

    def _save(self) -> None:
        self._checkpoints.save(self._state, self.global_steps, super()._save_checkpoint)

    def _save_between_steps(self) -> None:
        """As in a step: verl saves while the rollout engines, which share the memory, sleep."""
        self.checkpoint_manager.sleep_replicas()
        self._save()
        self.checkpoint_manager.update_weights(self.global_steps)

    def _load_checkpoint(self) -> None:
        """verl's, and the loop's state.

        Raises:
            TrainingError: The checkpoint has no loop state.
            CheckpointError: The steps to come would overwrite the best checkpoint.
        """
        super()._load_checkpoint()
        resumed = self._checkpoints.resumed(self.global_steps)
        if resumed is not None:
            self._state = resumed
            self._log.rewind(self.global_steps)

    # ---- validation --------------------------------------------------------------------

    def _validate(self) -> dict[str, float]:
        """Play all suites before the first step and after the last one, and some in between."""
        whole: Any = self.val_dataloader  # type: ignore[has-type]
        if 0 < self.global_steps < self.total_training_steps:
            self.val_dataloader = validation.without_suites(whole, self._settings.seal.rare_suites)
        try:
            metrics: dict[str, float] = super()._validate()
        finally:
            self.val_dataloader = whole
        return metrics

    def _val_metrics_update(
        self,
        data_sources: list[str],
        sample_uids: list[str],
        reward_extra_infos_dict: dict[str, list[Any]],
        *args: Any,
        **kwargs: Any,
    ) -> dict[str, float]:
        """Add each suite's metrics to verl's, and take note of the best score.

        Raises:
            TrainingError: `seal.best_metric` is none of them; or, before the first step, GRPO
                cannot improve the policy.
        """
        infos = reward_extra_infos_dict
        # verl draws a thousand bootstrap samples a task for every field: that takes seconds each.
        metrics: dict[str, float] = super()._val_metrics_update(
            data_sources, sample_uids, {"reward": infos["reward"]}, *args, **kwargs
        )
        metrics |= validation_metrics(
            infos["suite"], infos["category"], sample_uids, infos["reward"], infos["exit_status"]
        )
        if self.global_steps == 0:
            validation.check_start_gate(self._settings.seal.start_gate, metrics)
        best = self._settings.seal.best_metric
        self._state = validation.scored(self._state, metrics, best, self.global_steps)
        return metrics | validation.best_metrics(self._state)

    # ---- phases, for the launcher's progress bar and watchdog ----------------------------

    def _phase(self, name: str) -> None:
        self._log.phase(name, self.global_steps)

    def on_init_end(self) -> None:
        """First transfer of weights; from now on a rollout engine that dies ends the run."""
        self._engine_watch = EngineWatch(
            self.llm_server_manager.get_addresses(),
            lambda reason: self._log.fault(reason, self.global_steps),
        )
        self._engine_watch.start()
        self._phase("weight_transfer")
        super().on_init_end()
        self._phase("ready")

    def fit(self, agent_loop_manager: Any) -> None:
        """verl's; the rollout engines end with the run."""
        with self._engine_watch.until_the_end():
            super().fit(agent_loop_manager)

    def on_validate_begin(self) -> None:
        """Validation begins."""
        self._phase("validate")

    def on_validate_end(self) -> None:
        """Validation is over; a new best score gets its checkpoint."""
        self._checkpoints.after_validation(self._state, self.global_steps, self._save_between_steps)
        self._phase("validate_end")

    def on_sample_begin(self) -> None:
        """Line 1: rollouts are under way."""
        self._phase("rollout")

    def on_sample_end(self) -> None:
        """All rollouts are in: the rollout engines free their memory, then the update begins."""
        self._phase("sleep")
        super().on_sample_end()
        self._phase("update")
