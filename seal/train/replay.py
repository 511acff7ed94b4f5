"""A replay buffer that keeps GRPO groups whole.

verl's own buffer trains on the rest of a group that lost rollouts. Then the mean and the deviation
of the group depend on which rollouts the environment lost. Here a group with a failed rollout is
dropped as a whole and counted. Recipes name the class in `trainer.v1.sampler.custom_sampler`.
"""

import logging
import time
from collections.abc import Callable
from typing import Any

import transfer_queue as tq
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer

from seal.environment.client import EnvironmentFault
from seal.records.loop_log import group_of

logger = logging.getLogger(__name__)

PROGRESS_EVERY_S = 10.0
"""Seconds between two reports of how many prompts have ended."""


class WholeGroupReplayBuffer(ReplayBuffer):
    """verl's buffer; at most a share `sampler_kwargs.max_failed_share` of groups may be dropped.

    Recipes set it from `trainer.env_failure.max_share`.
    """

    on_progress: Callable[[int, int], object] | None = None
    """Called while `sample` waits, with the prompts whose rollouts have ended and all of them."""
    _ended = 0
    _next_report = 0.0

    def sample(
        self, global_steps: int, partition_id: str, batch_size: int
    ) -> tuple[KVBatchMeta, dict[str, Any]]:
        """Wait for a batch as verl does, then drop the groups that lost a rollout.

        Raises:
            EnvironmentFault: More than `max_failed_share` of the groups lost a rollout; in a
                validation, any group did, because a score over fewer tasks would be wrong.
        """
        self._ended, self._next_report = 0, time.monotonic() + PROGRESS_EVERY_S
        batch, metrics = super().sample(global_steps, partition_id, batch_size)
        failed = set(self.failure_keys[partition_id])
        lost_keys = [key for key in batch.keys if group_of(key) in failed]
        if lost_keys:
            tq.kv_clear(keys=lost_keys, partition_id=partition_id)
        share = self.sampler_kwargs["max_failed_share"]
        allowed, rule = share, f"a share of {share} is allowed (trainer.env_failure.max_share)"
        if partition_id == "val":
            allowed, rule = 0.0, "a validation may lose none"
        if len(failed) > allowed * batch_size:
            raise EnvironmentFault(
                f"{len(failed)} of {batch_size} groups of step {global_steps} ({partition_id}) "
                f"lost rollouts; {rule}. The errors of the rollouts are above in this log; "
                "if they are EnvironmentFaults, check that the environment service is up"
            )
        kept = [
            (key, tag)
            for key, tag in zip(batch.keys, batch.tags, strict=True)
            if group_of(key) not in failed
        ]
        if failed:
            logger.warning(
                "step %d: dropped %d groups that lost rollouts", global_steps, len(failed)
            )
        metrics["seal/dropped_groups"] = len(failed)
        whole = KVBatchMeta(
            partition_id=partition_id,
            keys=[key for key, _ in kept],
            tags=[tag for _, tag in kept],
        )
        return whole, metrics

    def _sync_metadata_from_transfer_queue(self) -> None:
        """verl's; it is called again and again while `sample` waits."""
        super()._sync_metadata_from_transfer_queue()
        ended, others = (
            sum(len(keys) for status in statuses for keys in status.values())
            for statuses in (
                (self.finished_keys, self.failure_keys),
                (self.pending_keys, self.running_keys),
            )
        )
        now = time.monotonic()
        if self.on_progress is not None and ended > self._ended and now >= self._next_report:
            self._ended, self._next_report = ended, now + PROGRESS_EVERY_S
            self.on_progress(ended, ended + others)
