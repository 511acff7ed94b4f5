"""A replay buffer that keeps GRPO groups whole.

verl's own buffer trains on what is left of a group whose rollouts failed. The group's mean and
deviation would then depend on which rollouts the environment happened to lose, so here a group
with a failed rollout is dropped as a whole and counted. Named in the recipes under
`trainer.v1.sampler.custom_sampler`.
"""

import logging
from typing import Any

import transfer_queue as tq
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer

from seal.environment.client import EnvironmentFault

logger = logging.getLogger(__name__)


class WholeGroupReplayBuffer(ReplayBuffer):
    """verl's buffer; `sampler_kwargs.max_failed_share` bounds the share of dropped groups.

    The recipes fill it from `trainer.env_failure.max_share`.
    """

    def sample(
        self, global_steps: int, partition_id: str, batch_size: int
    ) -> tuple[KVBatchMeta, dict[str, Any]]:
        """Wait for a batch as verl does, then drop the groups that lost a rollout.

        Raises:
            EnvironmentFault: More than `max_failed_share` of the groups failed; in validation,
                any failed rollout, because a score over fewer tasks would be made up.
        """
        batch, metrics = super().sample(global_steps, partition_id, batch_size)
        failed = set(self.failure_keys[partition_id])
        lost_keys = [key for key in batch.keys if key.split("_")[0] in failed]
        if lost_keys:
            tq.kv_clear(keys=lost_keys, partition_id=partition_id)
        share = self.sampler_kwargs["max_failed_share"]
        allowed, rule = share, f"at most a share of {share} may be (trainer.env_failure.max_share)"
        if partition_id == "val":
            allowed, rule = 0.0, "a validation may lose none"
        if len(failed) > allowed * batch_size:
            raise EnvironmentFault(
                f"{len(failed)} of {batch_size} groups of step {global_steps} ({partition_id}) "
                f"lost rollouts; {rule}. The rollouts' own errors stand above in this log; "
                "if they are EnvironmentFaults, check that the environment service is up"
            )
        kept = [
            (key, tag)
            for key, tag in zip(batch.keys, batch.tags, strict=True)
            if key.split("_")[0] not in failed
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
