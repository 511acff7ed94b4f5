"""One training round as plain data: its rollouts, their labels and their weights.

In: the `RolloutRecord` that the agent loop leaves beside each rollout. Out: metrics of the round.
No torch here.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

from seal.coevolution.labels import FAILURES, Label
from seal.coevolution.profile import LabeledTrajectory, LabeledTurn
from seal.coevolution.weights import WeightConfig, mean_utility, weighed_turns
from seal.records.loop_log import exit_shares
from seal.wire import ExitStatus, TurnDiagnosis


@dataclass(frozen=True)
class RolloutRecord:
    """What the trainer knows about one rollout besides its tokens."""

    task_id: str
    """Task of the environment."""
    category: str
    """Category of the task."""
    reward: float
    """Terminal reward r in {0.0, 1.0} of the official verifier."""
    training_reward: float
    """The reward that the advantage is computed from: r, or the shaped reward (`shaping`)."""
    turns: tuple[TurnDiagnosis, ...]
    """Label and reason of each turn that was begun."""
    interface_version: int
    """Version of the interface that the policy was shown."""
    interface_shown: bool
    """False: this rollout was shown no interface (`seal.exposure`)."""
    exit_status: ExitStatus
    """Why it ended: by the policy, or by a limit."""
    environment_s: float
    """Seconds spent waiting for the service."""
    turn_spans: tuple[tuple[int, int, int], ...]
    """(turn, start, end) of each assistant message among the response tokens."""

    @property
    def truncated(self) -> bool:
        """Whether a limit ended the rollout."""
        return self.exit_status != "completed"

    @property
    def labels(self) -> tuple[Label, ...]:
        """The label of each turn."""
        return tuple(Label(turn.label) for turn in self.turns)

    def to_json(self) -> dict[str, Any]:
        """Plain values, as they travel through verl's extra fields."""
        return {**asdict(self), "truncated": self.truncated}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> "RolloutRecord":
        """Read what `to_json` gave."""
        turns = tuple(TurnDiagnosis(**turn) for turn in record["turns"])
        spans = tuple((turn, start, end) for turn, start, end in record["turn_spans"])
        read = {**record, "turns": turns, "turn_spans": spans}
        return cls(**{name: value for name, value in read.items() if name != "truncated"})

    def labeled(self, *, interface_active: bool = False) -> LabeledTrajectory:
        """The part of the record that the failure profile counts.

        `interface_active` says whether the round's interface has an active part.
        """
        turns = tuple(LabeledTurn(Label(turn.label), turn.cascade) for turn in self.turns)
        cued = interface_active and self.interface_shown
        return LabeledTrajectory(turns, self.reward, self.category, cued)


def round_metrics(
    records: Sequence[RolloutRecord],
    weights: Sequence[Sequence[float]],
    utilities: Mapping[Label, float],
    config: WeightConfig,
) -> dict[str, float]:
    """Scalars of a round for verl's loggers, under `seal/`."""
    means = [fmean(by_turn) for by_turn in weights]
    failed = [turn for record in records for turn in record.turns if Label(turn.label) in FAILURES]
    labels = Counter(label for record in records for label in record.labels)
    turns = max(1, labels.total())
    share = config.cascade_share
    return {
        **{f"seal/label/{label.value}": labels[label] / turns for label in Label},
        "seal/pass_rate": fmean(record.reward for record in records),
        "seal/training_reward": fmean(record.training_reward for record in records),
        "seal/cascade_share": sum(turn.cascade for turn in failed) / max(1, len(failed)),
        "seal/weight/mean": fmean(means),
        "seal/weight/min": min(min(by_turn) for by_turn in weights),
        "seal/weight/max": max(max(by_turn) for by_turn in weights),
        "seal/weight/clipped_share": fmean(
            not config.w_min
            <= mean_utility(weighed_turns(record.labeled(), config), utilities, share)
            <= config.w_max
            for record in records
        ),
        # With failures_in_passes "as_failure", these faults raise a positive advantage.
        "seal/passed_with_failure_share": fmean(
            record.reward == 1.0 and any(label in FAILURES for label in record.labels)
            for record in records
        ),
        "seal/truncated_share": fmean(record.truncated for record in records),
        **exit_shares("seal/exit", [record.exit_status for record in records]),
        "seal/environment_s_per_rollout": fmean(record.environment_s for record in records),
    }


def token_weights(
    spans: Sequence[tuple[int, int, int]], by_turn: Sequence[float], length: int
) -> list[float]:
    """One weight for each response token: that of its turn, 1.0 if the policy did not write it.

    >>> token_weights([(0, 0, 2), (1, 3, 4)], [0.5, 2.0], length=5)
    [0.5, 0.5, 1.0, 2.0, 1.0]
    """
    weights = [1.0] * length
    for turn, start, end in spans:
        end = min(end, length)
        weights[start:end] = [by_turn[turn]] * max(0, end - start)
    return weights


def label_counts(records: Sequence[RolloutRecord]) -> dict[str, dict[str, int]]:
    """Turns by category and label, for the loop log."""
    counts: dict[str, Counter[str]] = {}
    for record in records:
        counts.setdefault(record.category, Counter()).update(label.value for label in record.labels)
    return {category: dict(counter) for category, counter in sorted(counts.items())}
