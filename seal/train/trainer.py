"""verl's synchronous PPO trainer with the method in it (paper Algorithm 1).

Three things happen here and nowhere else: each trajectory's GRPO advantage is multiplied by its
weight (`_compute_advantage`), the round's labels become a failure profile, and the profile is
sent to the environment service, which evolves the learning interface (`on_step_end`).
"""

import asyncio
import functools
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
import transfer_queue as tq
from omegaconf import DictConfig, open_dict
from tensordict import TensorDict
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1 import PPOTrainerSync, register_trainer

from seal.access_token import read_token
from seal.addresses import url_list
from seal.client import EnvironmentClient
from seal.coevolution.interface import InterfaceConfig
from seal.coevolution.labels import label_from_config
from seal.coevolution.profile import FailureProfile, merge, profile_of
from seal.coevolution.weights import WeightConfig, trajectory_weight
from seal.loop_log import LoopLog
from seal.train.round import RolloutRecord, label_counts, mixed_group_share, round_metrics
from seal.wire import InterfaceReply

TRAINER_MODE = "seal"
"""Value of `trainer.v1.trainer_mode` that selects this trainer."""


class StartGateError(Exception):
    """The policy passes too little, or too uniformly, for training to begin."""


def weight_config(settings: DictConfig) -> WeightConfig:
    """Read `seal.weights` of a recipe; label names of the published recipe are accepted."""
    utilities = {label_from_config(name): value for name, value in settings.utilities.items()}
    return WeightConfig(utilities=utilities, w_min=settings.w_min, w_max=settings.w_max)


@register_trainer(TRAINER_MODE)
class SealTrainer(PPOTrainerSync):
    """GRPO whose advantages are reweighted by diagnosis and whose interface co-evolves."""

    def __init__(self, config: DictConfig) -> None:
        with open_dict(config):  # verl compares trainer_mode with "sync" in several places
            config.trainer.v1.trainer_mode = "sync"
        super().__init__(config)
        self.replay_buffer.poll_interval = 0.05  # verl's 2 s are a floor under every generation
        settings = config.seal
        self._weights = weight_config(settings.weights)
        self._interface_config = InterfaceConfig(**settings.interface)
        self._window: list[FailureProfile] = []
        self._window_rounds: int = settings.profile.window_rounds
        self._round_record: dict[str, Any] = {}
        self._shown = InterfaceReply(version=0, content_hash="", active=(), text="")
        self._loop_log = LoopLog(Path(settings.loop_dir))

    # ---- reweighting -------------------------------------------------------------------

    def _compute_advantage(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
        """GRPO advantages A_j times the trajectory's weight w_j (paper section 3.4).

        The advantage of every token of trajectory j becomes w_j * A_j with
        w_j = clip(sum_z p_j(z) * rho(z), w_min, w_max) > 0: the sign never changes.
        """
        batch = super()._compute_advantage(batch, metrics)
        data = tq.kv_batch_get(
            keys=batch.keys,
            partition_id=batch.partition_id,
            select_fields=["advantages", "extra_fields"],
        )
        # pop, as verl does: indexing unwraps non-tensor stacks in tensordict 0.10
        extra_fields = data.pop("extra_fields").tolist()
        records = [RolloutRecord.from_json(fields["seal"]) for fields in extra_fields]
        weights = [trajectory_weight(record.labels, self._weights) for record in records]
        before = data["advantages"].unbind()
        after = [advantage * weight for advantage, weight in zip(before, weights, strict=True)]
        weighted = torch.nested.as_nested_tensor(after, layout=torch.jagged)
        batch = tq.kv_batch_put(
            keys=batch.keys,
            partition_id=batch.partition_id,
            fields=TensorDict({"advantages": weighted}, batch_size=len(batch.keys)),
        )
        # Padding rows clone a real row; they are trained with it and counted nowhere.
        real = [i for i, tag in enumerate(batch.tags) if not tag.get("is_padding", False)]
        self._note_round(
            metrics,
            keys=[batch.keys[i] for i in real],
            records=[records[i] for i in real],
            weights=[weights[i] for i in real],
            advantages=[(_mean_abs(before[i]), _mean_abs(after[i])) for i in real],
        )
        return batch

    def _note_round(
        self,
        metrics: dict[str, Any],
        keys: list[str],
        records: list[RolloutRecord],
        weights: list[float],
        advantages: list[tuple[float, float]],
    ) -> None:
        """Aggregate the round into C_t and prepare its log line."""
        groups: dict[str, list[float]] = {}
        for key, record in zip(keys, records, strict=True):
            groups.setdefault(key.split("_")[0], []).append(record.reward)
        scalars = round_metrics(records, weights, self._weights)
        scalars["seal/mixed_group_share"] = mixed_group_share(groups)
        scalars["seal/advantage/mean_abs_before"] = fmean(pair[0] for pair in advantages)
        scalars["seal/advantage/mean_abs_after"] = fmean(pair[1] for pair in advantages)
        metrics.update(scalars)
        self._loop_log.rollouts(
            {"step": self.global_steps, "weight": weight, **record.to_json()}
            for record, weight in zip(records, weights, strict=True)
        )
        profile = profile_of(self.global_steps, [record.labeled() for record in records])
        self._window = [*self._window, profile][-self._window_rounds :]
        self._round_record = {
            "step": self.global_steps,
            "metrics": scalars,
            "rollouts": len(records),
            "labels": label_counts(records),
            "weights": sorted(round(weight, 4) for weight in weights),
            "interface_versions": sorted({record.interface_version for record in records}),
        }

    # ---- the back edge -----------------------------------------------------------------

    def on_step_end(self) -> None:
        """Send C_t, take note of Omega_{t+1}, then hand the new weights to the rollout workers."""
        profile = functools.reduce(merge, self._window)
        evolved = asyncio.run(self._send_profile(profile))
        self._loop_log.round(
            {
                **self._round_record,
                "interface_shown": asdict(self._shown),
                "profile": profile.to_json(),
                "interface": asdict(evolved),
            }
        )
        self._shown = evolved
        self._loop_log.phase("weight_transfer", self.global_steps)
        super().on_step_end()
        self._loop_log.phase("step_end", self.global_steps)

    async def _send_profile(self, profile: FailureProfile) -> InterfaceReply:
        settings = self.config.env_service
        token = read_token(settings.token_file)
        async with EnvironmentClient(
            url_list(settings.env_url), settings.env_type, token=token
        ) as client:
            return await client.put_profile(
                self.config.seal.run_id,
                profile.to_json(),
                asdict(self._interface_config),
            )

    # ---- validation --------------------------------------------------------------------

    def _val_metrics_update(
        self,
        data_sources: list[str],
        sample_uids: list[str],
        reward_extra_infos_dict: dict[str, list[Any]],
        *args: Any,
        **kwargs: Any,
    ) -> dict[str, float]:
        """Add pass rate and mixed groups of each suite to verl's metrics.

        Raises:
            StartGateError: Before the first step, the policy is one GRPO cannot improve.
        """
        metrics: dict[str, float] = super()._val_metrics_update(
            data_sources, sample_uids, reward_extra_infos_dict, *args, **kwargs
        )
        rewards: dict[str, dict[str, list[float]]] = {}
        for suite, uid, reward in zip(
            reward_extra_infos_dict["suite"],
            sample_uids,
            reward_extra_infos_dict["reward"],
            strict=True,
        ):
            rewards.setdefault(suite, {}).setdefault(uid, []).append(reward)
        for suite, groups in rewards.items():
            every = [reward for group in groups.values() for reward in group]
            metrics[f"val-seal/{suite}/pass_rate"] = fmean(every)
            metrics[f"val-seal/{suite}/mixed_group_share"] = mixed_group_share(groups)
        if self.global_steps == 0:
            self._check_start_gate(metrics)
        return metrics

    def _check_start_gate(self, metrics: dict[str, float]) -> None:
        gate = self.config.seal.start_gate
        if gate is None:
            return
        for name, least in (
            ("pass_rate", gate.min_pass_rate),
            ("mixed_group_share", gate.min_mixed_group_share),
        ):
            key = f"val-seal/{gate.suite}/{name}"
            if key not in metrics:
                raise StartGateError(
                    f"seal.start_gate.suite={gate.suite!r} is no suite of data.val_files"
                )
            measured = metrics[key]
            if measured < least:
                raise StartGateError(
                    f"before training, suite {gate.suite!r} has {name} {measured:.2f}, the recipe "
                    f"asks for at least {least:.2f} (seal.start_gate): most groups would be all "
                    "pass or all fail and GRPO would have nothing to learn from"
                )

    # ---- phases, for the launcher's progress bar and watchdog ----------------------------

    def on_init_end(self) -> None:
        """First transfer of weights."""
        self._loop_log.phase("weight_transfer", self.global_steps)
        super().on_init_end()
        self._loop_log.phase("ready", self.global_steps)

    def on_validate_begin(self) -> None:
        """Validation begins."""
        self._loop_log.phase("validate", self.global_steps)

    def on_validate_end(self) -> None:
        """Validation is over."""
        self._loop_log.phase("validate_end", self.global_steps)

    def on_sample_begin(self) -> None:
        """Rollouts are under way."""
        self._loop_log.phase("rollout", self.global_steps)

    def on_sample_end(self) -> None:
        """All rollouts of the round are in; the update begins."""
        super().on_sample_end()
        self._loop_log.phase("update", self.global_steps)


def _mean_abs(values: torch.Tensor) -> float:
    return float(values.abs().mean())
