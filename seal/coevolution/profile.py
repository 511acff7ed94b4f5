"""Labels of a round to the failure profile C_t (paper section 3.5, Algorithm 1, line 4).

In: the labels and the reward of each trajectory that was trained on. Out: how often each label was
seen, and how the trajectories that carry it fared. Made by the trainer, which sends it to the
environment service, where `interface` reads it.

Turns are counted by turn; trajectories and rewards once for each distinct label a trajectory
carries. Excluded labels, faults of the scorer, are not counted.

>>> profile = profile_of(
...     3,
...     [
...         LabeledTrajectory((Label.STATE_MISMATCH, Label.STATE_MISMATCH), 0.0, "base"),
...         LabeledTrajectory((Label.PASS, Label.MISSING_TOOL_CALL), 0.0, "base"),
...         LabeledTrajectory((Label.PASS, Label.PASS), 1.0, "base"),
...     ],
... )
>>> profile.by_label[Label.STATE_MISMATCH]
LabelStatistic(turns=2, trajectories=1, reward_sum=0.0)
>>> round(profile.prevalence(Label.STATE_MISMATCH), 3)
0.667
>>> profile.by_label[Label.PASS].mean_reward
0.5
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from seal.coevolution.labels import EXCLUDED, FAILURES, Label


@dataclass(frozen=True)
class LabeledTrajectory:
    """One trajectory as the profile sees it."""

    labels: tuple[Label, ...]
    """One label for each turn that was begun."""
    reward: float
    """Terminal reward r in {0.0, 1.0}."""
    category: str
    """Category of the task."""


@dataclass(frozen=True)
class LabelStatistic:
    """What was seen of one label.

    Raises:
        ValueError: The counts cannot be: a label that was not seen has no statistic.
    """

    turns: int
    """Turns with the label."""
    trajectories: int
    """Trajectories with the label in at least one turn."""
    reward_sum: float
    """Sum of the rewards of these trajectories."""

    def __post_init__(self) -> None:
        """Check the counts."""
        if not 1 <= self.trajectories <= self.turns:
            raise ValueError(
                f"expected 1 <= trajectories <= turns, got trajectories={self.trajectories}, "
                f"turns={self.turns}"
            )
        # Rounding may carry a sum of rewards just over the count.
        if not -1e-6 <= self.reward_sum <= self.trajectories + 1e-6:
            raise ValueError(
                f"expected 0 <= reward_sum <= trajectories={self.trajectories}, "
                f"got {self.reward_sum}"
            )

    @property
    def mean_reward(self) -> float:
        """Mean reward of the trajectories that carry the label."""
        return self.reward_sum / self.trajectories


@dataclass(frozen=True)
class FailureProfile:
    """The profile C_t of one round, or of several merged."""

    version: int
    """Round t; the interface that is evolved from the profile takes it over."""
    by_label: Mapping[Label, LabelStatistic]
    """Every label that was seen."""
    by_category: Mapping[str, Mapping[Label, LabelStatistic]]
    """The same for each task category; reported, read by no rule."""

    def prevalence(self, label: Label) -> float:
        """Share of a failure label among the failed turns, 0.0 if none failed."""
        failed = sum(self.by_label[one].turns for one in FAILURES if one in self.by_label)
        if label not in FAILURES or label not in self.by_label:
            return 0.0
        return self.by_label[label].turns / failed

    def to_json(self) -> dict[str, Any]:
        """The profile as JSON values."""
        return {
            "version": self.version,
            "by_label": _to_json(self.by_label),
            "by_category": {name: _to_json(table) for name, table in self.by_category.items()},
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "FailureProfile":
        """Read what `to_json` wrote.

        Raises:
            ValueError: A field is missing, unknown or of the wrong kind; the message names it.
        """
        _check_fields(data, ("version", "by_label", "by_category"), "profile")
        version = _integer(data["version"], "profile.version")
        by_label = _from_json(data["by_label"], "profile.by_label")
        categories = _object(data["by_category"], "profile.by_category")
        by_category = {
            name: _from_json(table, f"profile.by_category.{name}")
            for name, table in categories.items()
        }
        return cls(version, by_label, by_category)


_TOO_MANY = 2**53
"""A count from here on would not survive JSON readers that know only doubles."""

EMPTY = FailureProfile(0, {}, {})
"""The profile before the first round."""


def profile_of(version: int, trajectories: Iterable[LabeledTrajectory]) -> FailureProfile:
    """Aggregate the trajectories of a round."""
    total = EMPTY
    for trajectory in trajectories:
        turns = Counter(label for label in trajectory.labels if label not in EXCLUDED)
        table = {
            label: LabelStatistic(count, 1, trajectory.reward) for label, count in turns.items()
        }
        total = merge(total, FailureProfile(version, table, {trajectory.category: table}))
    return FailureProfile(version, total.by_label, total.by_category)


def merge(a: FailureProfile, b: FailureProfile) -> FailureProfile:
    """Both profiles as one, under the newer version; associative and commutative."""
    categories = sorted(a.by_category.keys() | b.by_category.keys())
    return FailureProfile(
        max(a.version, b.version),
        _merged(a.by_label, b.by_label),
        {
            name: _merged(a.by_category.get(name, {}), b.by_category.get(name, {}))
            for name in categories
        },
    )


def _merged(
    a: Mapping[Label, LabelStatistic], b: Mapping[Label, LabelStatistic]
) -> dict[Label, LabelStatistic]:
    """Tables in the order of the vocabulary, so that equal profiles are written equally."""
    merged: dict[Label, LabelStatistic] = {}
    for label in Label:
        found = [table[label] for table in (a, b) if label in table]
        if found:
            merged[label] = LabelStatistic(
                turns=sum(one.turns for one in found),
                trajectories=sum(one.trajectories for one in found),
                reward_sum=sum(one.reward_sum for one in found),
            )
    return merged


def _to_json(table: Mapping[Label, LabelStatistic]) -> dict[str, dict[str, float]]:
    return {
        label.value: {
            "turns": one.turns,
            "trajectories": one.trajectories,
            "reward_sum": one.reward_sum,
        }
        for label, one in table.items()
    }


def _from_json(data: object, path: str) -> dict[Label, LabelStatistic]:
    table: dict[Label, LabelStatistic] = {}
    for name, fields in _object(data, path).items():
        here = f"{path}.{name}"
        if name not in Label.__members__.values():
            known = ", ".join(label.value for label in Label)
            raise ValueError(f"{here}: unknown label; known labels: {known}")
        values = _object(fields, here)
        _check_fields(values, ("turns", "trajectories", "reward_sum"), here)
        reward_sum = values["reward_sum"]
        if isinstance(reward_sum, bool) or not isinstance(reward_sum, int | float):
            raise ValueError(f"{here}.reward_sum: expected a number, got {reward_sum!r:.60}")
        turns = _integer(values["turns"], f"{here}.turns")
        trajectories = _integer(values["trajectories"], f"{here}.trajectories")
        try:
            table[Label(name)] = LabelStatistic(turns, trajectories, float(reward_sum))
        except (ValueError, OverflowError) as error:
            raise ValueError(f"{here}: {error}") from None
    return table


def _object(data: object, path: str) -> Mapping[str, Any]:
    if not isinstance(data, Mapping):
        raise ValueError(f"{path}: expected an object, got {type(data).__name__}")
    return data


def _integer(value: object, path: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < _TOO_MANY:
        raise ValueError(f"{path}: expected an integer in [0, 2**53)")
    return value


def _check_fields(data: object, expected: tuple[str, ...], path: str) -> None:
    fields = _object(data, path)
    missing = [name for name in expected if name not in fields]
    unknown = [name for name in fields if name not in expected]
    if missing or unknown:
        raise ValueError(f"{path}: missing fields {missing}, unknown fields {unknown}")
