"""One training round as plain data: which rollouts, which labels, which weights.

No torch here: the trainer hands in the records that the agent loop left beside each rollout and
gets labels, weights and the round's log line back.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from seal.coevolution.labels import Label
from seal.coevolution.profile import LabeledTrajectory


@dataclass(frozen=True)
class RolloutRecord:
    """What the trainer knows of one rollout besides its tokens."""

    task_id: str
    """Task of the environment."""
    category: str
    """Category of the task."""
    reward: float
    """Terminal reward in {0.0, 1.0}."""
    labels: tuple[Label, ...]
    """One label a turn that was begun."""
    interface_version: int
    """Interface the policy was shown."""
    truncated: bool
    """Ended by a step limit or the token budget."""
    environment_s: float
    """Seconds spent waiting for the service."""

    @classmethod
    def from_extra_fields(cls, extra_fields: Mapping[str, Any]) -> "RolloutRecord":
        """Read the record that `seal.train.agent_loop` wrote."""
        record = extra_fields["seal"]
        return cls(
            task_id=record["task_id"],
            category=record["category"],
            reward=record["reward"],
            labels=tuple(Label(name) for name in record["labels"]),
            interface_version=record["interface_version"],
            truncated=record["truncated"],
            environment_s=record["environment_s"],
        )

    def labeled(self) -> LabeledTrajectory:
        """The part of the record that the failure profile counts."""
        return LabeledTrajectory(self.labels, self.reward, self.category)


def mixed_group_share(groups: Mapping[str, Sequence[float]]) -> float:
    """Share of GRPO groups whose rewards differ: only those move the policy.

    >>> mixed_group_share({"a": [0.0, 1.0], "b": [1.0, 1.0]})
    0.5
    """
    return fmean(len(set(rewards)) > 1 for rewards in groups.values())


def round_metrics(
    records: Sequence[RolloutRecord], weights: Sequence[float], w_min: float, w_max: float
) -> dict[str, float]:
    """Scalars of a round for verl's loggers, under `seal/`.

    Args:
        records: Rollouts that were trained on, without padding.
        weights: The weight of each, in the same order.
        w_min: Lower clip of a weight.
        w_max: Upper clip of a weight.
    """
    labels = Counter(label for record in records for label in record.labels)
    turns = max(1, labels.total())
    metrics = {f"seal/label/{label.value}": labels[label] / turns for label in Label}
    metrics |= {
        "seal/pass_rate": fmean(record.reward for record in records),
        "seal/weight/mean": fmean(weights),
        "seal/weight/min": min(weights),
        "seal/weight/max": max(weights),
        "seal/weight/clipped_share": fmean(weight in (w_min, w_max) for weight in weights),
        "seal/truncated_share": fmean(record.truncated for record in records),
        "seal/environment_s_per_rollout": fmean(record.environment_s for record in records),
    }
    return metrics


def label_counts(records: Sequence[RolloutRecord]) -> dict[str, dict[str, int]]:
    """Turns by category and label, for the loop log."""
    counts: dict[str, Counter[str]] = {}
    for record in records:
        counts.setdefault(record.category, Counter()).update(label.value for label in record.labels)
    return {category: dict(counter) for category, counter in sorted(counts.items())}
