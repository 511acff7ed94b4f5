"""One training round as plain data: which rollouts, which labels, which weights.

No torch here. The agent loop leaves a `RolloutRecord` beside each rollout; the trainer hands the
round's records in and gets its metrics and its lines for the loop log back.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

from seal.coevolution.labels import Label
from seal.coevolution.profile import LabeledTrajectory
from seal.coevolution.weights import WeightConfig, mean_utility
from seal.wire import TurnDiagnosis


@dataclass(frozen=True)
class RolloutRecord:
    """What the trainer knows of one rollout besides its tokens."""

    task_id: str
    """Task of the environment."""
    category: str
    """Category of the task."""
    reward: float
    """Terminal reward in {0.0, 1.0}."""
    turns: tuple[TurnDiagnosis, ...]
    """Label and reason of each turn that was begun."""
    interface_version: int
    """Interface the policy was shown."""
    truncated: bool
    """Ended by a step limit or the token budget."""
    environment_s: float
    """Seconds spent waiting for the service."""

    @property
    def labels(self) -> tuple[Label, ...]:
        """One label a turn."""
        return tuple(Label(turn.label) for turn in self.turns)

    def to_json(self) -> dict[str, Any]:
        """Plain values, as they travel through verl's extra fields."""
        return asdict(self)

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> "RolloutRecord":
        """Read what `to_json` gave."""
        turns = tuple(TurnDiagnosis(**turn) for turn in record["turns"])
        return cls(**{**record, "turns": turns})

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
    records: Sequence[RolloutRecord], weights: Sequence[float], config: WeightConfig
) -> dict[str, float]:
    """Scalars of a round for verl's loggers, under `seal/`.

    Args:
        records: Rollouts that were trained on, without padding.
        weights: The weight of each, in the same order.
        config: What the weights were made with.
    """
    labels = Counter(label for record in records for label in record.labels)
    turns = max(1, labels.total())
    metrics = {f"seal/label/{label.value}": labels[label] / turns for label in Label}
    metrics |= {
        "seal/pass_rate": fmean(record.reward for record in records),
        "seal/weight/mean": fmean(weights),
        "seal/weight/min": min(weights),
        "seal/weight/max": max(weights),
        "seal/weight/clipped_share": fmean(
            weight != mean_utility(record.labels, config)
            for record, weight in zip(records, weights, strict=True)
        ),
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
