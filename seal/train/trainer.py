"""verl's synchronous PPO trainer with the method in it (paper Algorithm 1).

Three things happen here and nowhere else: each trajectory's GRPO advantage is multiplied by its
weight (`_compute_advantage`), the round's labels become a failure profile, and the profile is
sent to the environment service, which evolves the learning interface (`_send_profile`). What the
loop carries from round to round is a `LoopState`, saved with every checkpoint.
"""

import asyncio
import logging
import math
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
import transfer_queue as tq
from omegaconf import DictConfig, open_dict
from tensordict import TensorDict
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1 import PPOTrainerSync, register_trainer

from seal.coevolution.evolution import InterfaceConfig
from seal.coevolution.exposure import Exposure
from seal.coevolution.interface import Interface, difference
from seal.coevolution.weights import applies, batch_weights
from seal.environment.access_token import read_token
from seal.environment.addresses import url_list
from seal.environment.client import EnvironmentClient
from seal.records.checkpoint_folder import begin_save, checkpoint, is_whole
from seal.records.loop_log import LoopLog
from seal.train import checkpoints, gate, suites
from seal.train.engine_watch import EngineWatch
from seal.train.round import (
    RolloutRecord,
    label_counts,
    mixed_group_share,
    round_metrics,
    token_weights,
    validation_metrics,
)
from seal.train.state import LoopState, after_round, load, loop_config, save, with_score
from seal.wire import InterfaceReply

logger = logging.getLogger(__name__)

TRAINER_MODE = "seal"
"""Value of `trainer.v1.trainer_mode` that selects this trainer."""


class MissingMetricError(Exception):
    """A validation did not give the metric that the best checkpoint is chosen by."""


class ForeignInterfaceError(Exception):
    """The environment service has other interface texts than the trainer."""


@register_trainer(TRAINER_MODE)
class SealTrainer(PPOTrainerSync):
    """GRPO whose advantages are reweighted by diagnosis and whose interface co-evolves."""

    def __init__(self, config: DictConfig) -> None:
        """Check what can be checked, then start verl's workers.

        Raises:
            CheckpointError: The recipe's checkpoints cannot be kept.
            StartGateError: The gate asks for a validation that is switched off.
            SuiteError: The best checkpoint would be told by a suite that is hardly ever played.
        """
        self._retention = checkpoints.retention(config)
        self._saved_step: int | None = None  # the last checkpoint of this run
        gate.check_possible(config)
        suites.check_possible(config)
        with open_dict(config):  # verl compares trainer_mode with "sync" in several places
            config.trainer.v1.trainer_mode = "sync"
        super().__init__(config)
        self.replay_buffer.poll_interval = 0.05  # verl's 2 s are a floor under every generation
        settings = config.seal
        self._loop = loop_config(settings)
        self._interface_config = InterfaceConfig(**settings.interface)
        Exposure(**settings.exposure)  # refused here and not in every rollout
        self._state = LoopState(utilities=self._loop.weights.utilities)
        self._interface = self._state.shown  # Omega of the rollouts that come next
        self._round_record: dict[str, Any] = {}
        self._loop_log = LoopLog(Path(settings.loop_dir))

    # ---- reweighting -------------------------------------------------------------------

    def _compute_advantage(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
        """GRPO advantages A_j times the weight w_j (paper section 3.4).

        The advantage of every token of trajectory j becomes w_j * A_j with
        w_j = clip(sum_z p_j(z) * rho(z), w_min, w_max) > 0: the sign never changes. In scope
        "turn" each turn's tokens have their own weight.
        """
        batch = super()._compute_advantage(batch, metrics)
        # verl pads a batch that its workers cannot share evenly, e.g. after a dropped group. A
        # padding row has the record of a real one, but its response_mask is zero, so no loss has a
        # token of it (verl/trainer/ppo/padding_utils.py). It is neither weighted nor counted.
        keys = [
            key
            for key, tag in zip(batch.keys, batch.tags, strict=True)
            if not tag.get("is_padding", False)
        ]
        sampled = bool(self.config.actor_rollout_ref.rollout.calculate_log_probs)
        data = tq.kv_batch_get(
            keys=keys,
            partition_id=batch.partition_id,
            select_fields=[
                *("advantages", "response_mask", "extra_fields"),
                *(["rollout_log_probs"] if sampled else []),
            ],
        )
        # pop, as verl does: indexing unwraps non-tensor stacks in tensordict 0.10
        extra_fields = data.pop("extra_fields").tolist()
        records = [RolloutRecord.from_json(fields["seal"]) for fields in extra_fields]
        groups = [key.split("_")[0] for key in keys]
        weights = batch_weights(
            [record.labeled().turns for record in records],
            groups,
            self._state.utilities,
            self._loop.weights,
            seed=f"{self.config.seed} {self.global_steps}",
        )
        before = data["advantages"].unbind()
        after = [
            self._weighted(advantage, record, by_turn)
            for advantage, record, by_turn in zip(before, records, weights, strict=True)
        ]
        weighted = torch.nested.as_nested_tensor(after, layout=torch.jagged)
        tq.kv_batch_put(
            keys=keys,
            partition_id=batch.partition_id,
            fields=TensorDict({"advantages": weighted}, batch_size=len(keys)),
        )
        masks = data["response_mask"].unbind()
        measured = _advantage_metrics(before, after, masks)
        if sampled:
            measured["seal/entropy"] = _entropy(data["rollout_log_probs"].unbind(), masks)
        self._note_round(
            metrics,
            keys=keys,
            groups=groups,
            records=records,
            weights=weights,
            measured=measured,
        )
        return batch

    def _weighted(
        self, advantage: torch.Tensor, record: RolloutRecord, by_turn: tuple[float, ...]
    ) -> torch.Tensor:
        """One trajectory's advantages (response tokens,), weighted."""
        # GRPO gives every token of a trajectory the same advantage.
        if not applies(float(advantage.sum()), self._loop.weights):
            return advantage
        if self._loop.weights.scope == "trajectory":
            return advantage * by_turn[0]
        weights = token_weights(record.turn_spans, by_turn, len(advantage))
        return advantage * torch.tensor(weights, dtype=advantage.dtype)

    def _note_round(
        self,
        metrics: dict[str, Any],
        keys: list[str],
        groups: list[str],
        records: list[RolloutRecord],
        weights: list[tuple[float, ...]],
        measured: dict[str, float],
    ) -> None:
        """Aggregate the round into C_t and prepare its log line."""
        rewards: dict[str, list[float]] = {}
        for group, record in zip(groups, records, strict=True):
            rewards.setdefault(group, []).append(record.training_reward)
        scalars = round_metrics(records, weights, self._state.utilities, self._loop.weights)
        scalars["seal/mixed_group_share"] = mixed_group_share(rewards)
        scalars |= measured
        for label, utility in self._state.utilities.items():
            scalars[f"seal/utility/{label.value}"] = utility
        scalars["seal/interface/version"] = self._interface.version
        scalars["seal/interface/active_parts"] = len(self._interface.active())
        metrics.update(scalars)
        self._loop_log.rollouts(
            # verl's dump of the dialogues names each by the same uid.
            {"step": self.global_steps, "uid": key, "weights": list(by_turn), **record.to_json()}
            for key, record, by_turn in zip(keys, records, weights, strict=True)
        )
        labeled = [record.labeled() for record in records]
        self._state = after_round(
            self._state, self.global_steps, labeled, self._interface, self._loop
        )
        self._round_record = {
            "step": self.global_steps,
            "metrics": scalars,
            "rollouts": len(records),
            "dropped_groups": metrics.get("seal/dropped_groups", 0),
            "labels": label_counts(records),
            "weights": sorted(round(fmean(by_turn), 4) for by_turn in weights),
            "interface_versions": sorted({record.interface_version for record in records}),
            # Sorted, as verl balances a batch by length.
            "task_ids": sorted({record.task_id for record in records}),
        }

    # ---- the back edge -----------------------------------------------------------------

    def on_train_begin(self) -> None:
        """Tell the service of the run, or of the state it was resumed with."""
        super().on_train_begin()
        self._send_profile()

    def on_step_end(self) -> None:
        """Send C_t, take note of Omega_{t+1}, then hand the new weights to the rollout workers."""
        reply = self._send_profile()
        self._loop_log.round(
            {
                **self._round_record,
                "interface_shown": asdict(self._state.shown.to_reply()),
                "profile": self._state.profile.to_json(),
                "total": self._state.history.total.to_json(),
                "utilities": {k.value: v for k, v in self._state.utilities.items()},
                "interface": asdict(reply),
                "interface_change": difference(self._state.shown, self._interface),
            }
        )
        self._loop_log.phase("weight_transfer", self.global_steps)
        super().on_step_end()
        self._loop_log.phase("step_end", self.global_steps)

    def _send_profile(self) -> InterfaceReply:
        """Omega_{t+1} = Evolve(Omega_t, C_t), made by the service (paper section 3.3).

        Raises:
            ForeignInterfaceError: The service would show other texts than this trainer knows.
        """

        async def put() -> InterfaceReply:
            settings = self.config.env_service
            async with EnvironmentClient(
                url_list(settings.env_url),
                settings.env_type,
                token=read_token(settings.token_file),
                attempts=5 + math.ceil(self.config.trainer.env_failure.wait_s / 5.0),
            ) as client:
                return await client.put_profile(
                    self.config.seal.run_id,
                    self._state.profile.to_json(),
                    asdict(self._interface_config),
                    self._state.shown.to_json(),
                )

        reply = asyncio.run(put())
        self._interface = Interface.from_json(reply.interface)
        if self._interface.content_hash() != reply.content_hash:
            raise ForeignInterfaceError(
                "the environment service has other interface texts than this trainer: the counts "
                "of prompts and the records would be wrong. Run both from the same commit"
            )
        return reply

    # ---- checkpoints -------------------------------------------------------------------

    def _save_checkpoint(self) -> None:
        """Save, unless the best checkpoint alone is kept: then its validation says when."""
        if self._retention.keep_last != 0:
            self._write_checkpoint()
            self._prune()

    def _write_checkpoint(self) -> None:
        """Save the loop's state first: verl names the checkpoint complete when it has ended."""
        begin_save(self._checkpoint_folder())
        save(self._state, self._checkpoint_folder())
        super()._save_checkpoint()
        self._saved_step = self.global_steps

    def _keep_best(self) -> None:
        """After a validation that found a new best: it has a checkpoint, which best.json names."""
        best = self._state.best
        if best is None or best.step != self.global_steps:
            return
        if self._saved_step == self.global_steps:
            save(self._state, self._checkpoint_folder())
        elif self._retention.keep_best:
            # As in a step: verl saves while the rollout engine, which shares the memory, sleeps.
            self.checkpoint_manager.sleep_replicas()
            self._write_checkpoint()
            self.checkpoint_manager.update_weights(self.global_steps)
        if self._retention.keep_best:
            checkpoints.write_best(self._checkpoints(), best)
            self._prune()

    def _prune(self) -> None:
        best = self._state.best if self._retention.keep_best else None
        kept = None if best is None else best.step
        if not self._retention.keep_best:
            checkpoints.forget_best(self._checkpoints())
        checkpoints.prune(self._checkpoints(), self._retention, self.global_steps, kept)

    def _load_checkpoint(self) -> None:
        """Restore the loop's state with verl's.

        Raises:
            StateError: The checkpoint has no loop state.
            CheckpointError: Training on from it would overwrite the best one.
        """
        super()._load_checkpoint()
        checkpoints.check_not_overwritten(self._checkpoints(), self.global_steps)
        if self.global_steps == 0:
            return
        named = self.config.trainer.resume_from_path
        explicit = self.config.trainer.resume_mode == "resume_path"
        folder = Path(named) if explicit else self._checkpoint_folder()
        self._state = load(folder)
        self._loop_log.rewind(self.global_steps)
        if folder.resolve() == self._checkpoint_folder().resolve():
            self._saved_step = self.global_steps
        best = self._state.best
        if best is None or not self._retention.keep_best:
            return
        if is_whole(checkpoint(self._checkpoints(), best.step)):
            checkpoints.write_best(self._checkpoints(), best)
        else:
            logger.warning(
                "the best checkpoint so far, of step %d with %s %.4f, is not in %s; "
                "the best one will be one of those to come",
                best.step,
                best.metric,
                best.score,
                self._checkpoints(),
            )
            self._state = replace(self._state, best=None)

    def _checkpoints(self) -> Path:
        return Path(self.config.trainer.default_local_dir)

    def _checkpoint_folder(self) -> Path:
        return checkpoint(self._checkpoints(), self.global_steps)

    # ---- validation --------------------------------------------------------------------

    def _validate(self) -> dict[str, float]:
        """Play all suites before the first step and after the last, in between some."""
        whole: Any = self.val_dataloader  # type: ignore[has-type]
        if 0 < self.global_steps < self.total_training_steps:
            self.val_dataloader = suites.without(whole, list(self.config.seal.rare_suites))
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
        """Add each suite's metrics to verl's.

        Raises:
            MissingMetricError: `seal.best_metric` is none of them.
            StartGateError: Before the first step, the policy is one GRPO cannot improve.
        """
        infos = reward_extra_infos_dict
        # verl draws a thousand bootstrap samples a task of every field it is given: seconds each.
        metrics: dict[str, float] = super()._val_metrics_update(
            data_sources, sample_uids, {"reward": infos["reward"]}, *args, **kwargs
        )
        metrics |= validation_metrics(
            infos["suite"], infos["category"], sample_uids, infos["reward"], infos["truncated"]
        )
        if self.global_steps == 0:
            gate.check(self.config.seal.start_gate, metrics)
        self._note_score(metrics)
        return metrics

    def _note_score(self, metrics: dict[str, float]) -> None:
        """Keep the best score.

        Raises:
            MissingMetricError: The validation has no metric of that name.
        """
        name = self.config.seal.best_metric
        if name not in metrics:
            known = ", ".join(key for key in metrics if key.startswith("val-seal/"))
            raise MissingMetricError(
                f"seal.best_metric={name!r} is no metric of this validation; there are: {known}"
            )
        if self.global_steps == 0:
            return  # the model that training starts from is no checkpoint
        self._state = with_score(self._state, name, metrics[name], self.global_steps)
        assert self._state.best is not None
        metrics["val-seal/best/score"] = self._state.best.score
        metrics["val-seal/best/step"] = self._state.best.step

    # ---- phases, for the launcher's progress bar and watchdog ----------------------------

    def on_init_end(self) -> None:
        """First transfer of weights; from now on a rollout engine that dies ends the run."""
        addresses = self.llm_server_manager.get_addresses()
        self._engine_watch = EngineWatch(
            addresses, lambda said: self._loop_log.fault(said, self.global_steps)
        )
        self._engine_watch.start()
        self._loop_log.phase("weight_transfer", self.global_steps)
        super().on_init_end()
        self._loop_log.phase("ready", self.global_steps)

    def fit(self, agent_loop_manager: Any) -> None:
        """verl's; rollout engines end with the run, and nobody looks after them any more."""
        try:
            super().fit(agent_loop_manager)
        except Exception:
            # Lost rollouts, for example, are not the reason where an engine has died.
            for said in self._engine_watch.deaths().values():
                self._loop_log.fault(said, self.global_steps)
            raise
        finally:
            self._engine_watch.stop()

    def on_validate_begin(self) -> None:
        """Validation begins."""
        self._loop_log.phase("validate", self.global_steps)

    def on_validate_end(self) -> None:
        """Validation is over."""
        self._keep_best()
        self._loop_log.phase("validate_end", self.global_steps)

    def on_sample_begin(self) -> None:
        """Rollouts are under way."""
        self._loop_log.phase("rollout", self.global_steps)

    def on_sample_end(self) -> None:
        """All rollouts are in: the rollout engines free their memory, then the update begins."""
        self._loop_log.phase("sleep", self.global_steps)
        super().on_sample_end()
        self._loop_log.phase("update", self.global_steps)


def _advantage_metrics(
    before: Sequence[torch.Tensor], after: Sequence[torch.Tensor], masks: Sequence[torch.Tensor]
) -> dict[str, float]:
    """What the weights did to a batch's advantages, in size and in sum.

    Over a group's rollouts GRPO's advantages add up to 0. Over their tokens, and with weights, they
    do not: `token_mean` is what a token of the policy is pushed up (or, below 0, down) on average.

    Args:
        before: Advantages (response tokens,) of each trajectory, 0 where the policy wrote nothing.
        after: The same, weighted.
        masks: Where the policy wrote.
    """
    written = max(1.0, sum(float(mask.sum()) for mask in masks))
    metrics = {}
    for name, advantages in (("before", before), ("after", after)):
        sizes = fmean(float(one.abs().mean()) for one in advantages)
        metrics[f"seal/advantage/mean_abs_{name}"] = sizes
        total = sum(float(one.sum()) for one in advantages)
        metrics[f"seal/advantage/token_mean_{name}"] = total / written
    return metrics


def _entropy(log_probs: Sequence[torch.Tensor], masks: Sequence[torch.Tensor]) -> float:
    """Entropy of a token as it was sampled, in nats: the mean of minus its log probability.

    An estimate from the tokens at hand, right on average; verl's own, from the whole distribution,
    takes a pass over the batch.

    Args:
        log_probs: The rollout engine's, of the response tokens of each trajectory.
        masks: Where the policy wrote.
    """
    total = sum(float((one * mask).sum()) for one, mask in zip(log_probs, masks, strict=True))
    return -total / max(1.0, sum(float(mask.sum()) for mask in masks))
