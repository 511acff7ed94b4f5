"""The rollouts of one round, read from verl's queue (TransferQueue) and written back.

In: the keys of a batch. Out: records, advantages and masks, one each a rollout; the weighted
advantages go back under the same keys.
"""

from dataclasses import dataclass

import torch
import transfer_queue as tq
from tensordict import TensorDict
from transfer_queue import KVBatchMeta

from seal.records.loop_log import group_of
from seal.train.round import RolloutRecord


@dataclass(frozen=True)
class RoundBatch:
    """Rollouts that are trained on, without padding; all sequences have the same order."""

    partition_id: str
    """verl's name of the queue's part, "train"."""
    keys: list[str]
    """verl's key of each rollout."""
    records: list[RolloutRecord]
    """What the agent loop left beside each rollout."""
    advantages: tuple[torch.Tensor, ...]
    """Shape (response tokens,) each."""
    masks: tuple[torch.Tensor, ...]
    """1 where the policy wrote, 0 elsewhere; the same shapes."""
    log_probs: tuple[torch.Tensor, ...] | None
    """Log probabilities by the rollout engine, the same shapes; None if they were not asked for."""

    @property
    def groups(self) -> list[str]:
        """The GRPO group of each rollout."""
        return [group_of(key) for key in self.keys]

    @classmethod
    def read(cls, batch: KVBatchMeta, *, log_probs: bool) -> "RoundBatch":
        """Read a batch of verl's.

        verl pads a batch that its workers cannot share evenly, e.g. after a dropped group. A
        padding row has the record of a real rollout, but its response_mask is zero, so no loss has
        a token of it (verl/trainer/ppo/padding_utils.py). It is neither weighted nor counted.
        """
        keys = [
            key
            for key, tag in zip(batch.keys, batch.tags, strict=True)
            if not tag.get("is_padding", False)
        ]
        fields = ["advantages", "response_mask", "extra_fields"]
        fields += ["rollout_log_probs"] if log_probs else []
        data = tq.kv_batch_get(keys=keys, partition_id=batch.partition_id, select_fields=fields)
        # pop, as verl does: indexing unwraps non-tensor stacks in tensordict 0.10
        extra_fields = data.pop("extra_fields").tolist()
        return cls(
            partition_id=batch.partition_id,
            keys=keys,
            records=[RolloutRecord.from_json(fields["seal"]) for fields in extra_fields],
            advantages=data["advantages"].unbind(),
            masks=data["response_mask"].unbind(),
            log_probs=data["rollout_log_probs"].unbind() if log_probs else None,
        )

    def write(self, advantages: list[torch.Tensor]) -> None:
        """Put the advantages that the policy is updated with in the place of verl's."""
        nested = torch.nested.as_nested_tensor(advantages, layout=torch.jagged)
        fields = TensorDict({"advantages": nested}, batch_size=len(self.keys))
        tq.kv_batch_put(keys=self.keys, partition_id=self.partition_id, fields=fields)
