"""A replay buffer whose batches have whole GRPO groups only, and as many as the recipe asks for.

verl's own buffer trains on the rest of a group that lost rollouts. Then the mean and the deviation
of the group depend on which rollouts the environment lost. Here a group with a failed rollout is
dropped as a whole, counted, and replaced by the next prompt of its kind (`seal.train.synthetic`).
With `algorithm.filter_groups.enable` verl also drops groups whose rollouts all have the same reward
(dynamic sampling of DAPO, arXiv 2503.14476). Both use verl's refill, prompt by prompt.

Both have bounds, as neither a broken environment nor a policy that always passes may keep a step
from ending. `seal.launch.sampling` refuses recipes with settings that do not act here.
"""

import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from omegaconf import DictConfig
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1.replay_buffer import FILTER_GROUPS_REWARD_METRIC, ReplayBuffer

from seal.client.client import EnvironmentFault

logger = logging.getLogger(__name__)

PROGRESS_EVERY_S = 10.0
"""Seconds between two reports of how many prompts have ended."""
POLL_S = 0.05
"""Seconds between two looks into the queue; verl's 2 s are a lower bound of every generation."""
EvictionReasons = tuple[set[str], set[str], set[str], "Counter[float]"]
"""verl's: prompts that are stale (none here), without variance, failed; a count of rewards."""


class WholeGroupReplayBuffer(ReplayBuffer):
    """verl's buffer for the configuration of a run.

    Args:
        config: The recipe. At most a share `trainer.env_failure.max_share` of a step's groups may
            be lost to failures. With `algorithm.filter_groups.enable` a step generates at most
            `algorithm.filter_groups.max_num_gen_batches` batches, not counting those replacements.
        refill: Submits a fresh prompt in the place of each of these groups, by their ids. An id may
            come twice.
    """

    on_progress: Callable[[int, int], object] | None = None
    """Called while `sample` waits, with the prompts whose rollouts have ended and all of them."""

    def __init__(self, config: DictConfig, refill: Callable[[Sequence[str]], object]) -> None:
        sampler, filtering = config.trainer.v1.sampler, config.algorithm.filter_groups
        super().__init__(
            trainer_mode="sync",
            trainer_config=config.trainer.v1.sync,
            max_off_policy_threshold=sampler.max_off_policy_threshold,
            max_off_policy_strategy=sampler.max_off_policy_strategy,
            sampler_kwargs=sampler.sampler_kwargs,
            poll_interval=POLL_S,
            refill_fn=self._refill,
            filter_groups_metric=FILTER_GROUPS_REWARD_METRIC if filtering.enable else None,
            train_batch_size=config.data.train_batch_size,
            gen_batch_size=1,
            max_inflight_gen_batches=filtering.max_inflight_gen_batches,
            sync_refill_failed_groups=True,
        )
        self._submit = refill
        self._max_failed_share = float(config.trainer.env_failure.max_share)
        self._max_batches = int(filtering.max_num_gen_batches) if filtering.enable else 1
        self._begin(0)

    def _begin(self, batch_size: int) -> None:
        """Count anew: a batch of so many prompts has been submitted."""
        self._batch_size = batch_size
        self._room = (self._max_batches - 1) * batch_size  # prompts that may still be generated
        self._lost = self._filtered = self._refilled = self._kept = 0
        self._left: list[str] = []  # groups whose place is free, as often as verl asks for them
        self._reported, self._next_report = 0, time.monotonic() + PROGRESS_EVERY_S

    def sample(
        self, global_steps: int, partition_id: str, batch_size: int
    ) -> tuple[KVBatchMeta, dict[str, Any]]:
        """Wait for a batch as verl does; it has `batch_size` whole groups.

        Raises:
            EnvironmentFault: More than the allowed share of the groups lost a rollout; in a
                validation, any group did, because a score over fewer tasks would be wrong.
        """
        self._begin(batch_size)
        batch, metrics = super().sample(global_steps, partition_id, batch_size)
        if self._lost:
            logger.warning(
                "step %d: dropped %d groups that lost rollouts, and rolled out as many others",
                global_steps,
                self._lost,
            )
        if self._kept:
            logger.warning(
                "step %d: %d of %d groups have no variance, and no more are generated in a step "
                "(algorithm.filter_groups.max_num_gen_batches=%d)",
                global_steps,
                self._kept,
                batch_size,
                self._max_batches,
            )
        metrics["seal/dropped_groups"] = self._lost
        metrics["seal/refilled_groups"] = self._refilled
        if self.filter_groups_metric is not None:
            metrics["seal/filtered_groups"] = self._filtered
            metrics["seal/unfiltered_groups"] = self._kept
        return batch, metrics

    def _refill(self, prompts: int) -> None:
        """Submit fresh prompts in the place of lost and filtered groups, as far as there is room.

        verl asks for two in the place of a filtered group. Fewer do no harm: a group is filtered
        only if the batch gets full without it.
        """
        prompts = min(prompts, self._room)
        if prompts > 0:
            self._room -= prompts
            self._refilled += prompts
            places, self._left = self._left[:prompts], self._left[prompts:]
            self._submit(places)

    def _terminal_eviction_reasons(self, global_steps: int, partition_id: str) -> EvictionReasons:
        """verl's, with two differences: which groups have failed, and how many are filtered.

        A group has failed if any of its rollouts has, not only if all have. A group without
        variance stays if the batch could not get full without it.
        """
        failed = set(self.failure_keys[partition_id])
        self._check_lost(global_steps, partition_id, self._lost + len(failed))
        stale, uniform, _, rewards = super()._terminal_eviction_reasons(global_steps, partition_id)
        if partition_id == "val":
            return stale, uniform, set(), rewards
        varied = len(self.finished_keys[partition_id] - uniform)
        in_flight = len(self.pending_keys[partition_id]) + len(self.running_keys[partition_id])
        to_come = in_flight + self._room + len(failed)  # the place of each failed one is filled
        self._kept = min(len(uniform), max(0, self._batch_size - varied - to_come))
        kept = set(sorted(uniform)[: self._kept])
        return stale, uniform - kept, failed, rewards

    def _evict_terminal_groups(
        self, global_steps: int, partition_id: str, eviction_reasons: EvictionReasons
    ) -> tuple[set[str], int, int, dict[str, Any]]:
        """verl's; the groups are counted, and a failed one makes room for another."""
        _, uniform, failed, _ = eviction_reasons
        self._filtered += len(uniform)
        self._lost += len(failed)
        self._room += len(failed)
        self._left += [*sorted(failed), *sorted([*uniform, *uniform])]
        evicted: tuple[set[str], int, int, dict[str, Any]] = super()._evict_terminal_groups(
            global_steps, partition_id, eviction_reasons
        )
        return evicted

    def _check_lost(self, global_steps: int, partition_id: str, lost: int) -> None:
        share = self._max_failed_share
        allowed, rule = share, f"a share of {share} is allowed (trainer.env_failure.max_share)"
        if partition_id == "val":
            allowed, rule = 0.0, "a validation may lose none"
        if lost > allowed * self._batch_size:
            raise EnvironmentFault(
                f"{lost} of {self._batch_size} groups of step {global_steps} ({partition_id}) "
                f"lost rollouts; {rule}. The errors of the rollouts are above in this log; "
                "if they are EnvironmentFaults, check that the environment service is up"
            )

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
        ended += self._lost + self._filtered  # they have left the queue
        now = time.monotonic()
        if self.on_progress is not None and ended > self._reported and now >= self._next_report:
            self._reported, self._next_report = ended, now + PROGRESS_EVERY_S
            self.on_progress(ended, ended + others)
