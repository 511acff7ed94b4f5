"""Labels of a round to the failure profile C_t (paper section 3.5, Algorithm 1, line 4).

In: the rollouts that were trained on (`Rollout`; the paper's trajectories). Out: how often each
label was seen, and the rewards of the trajectories that carry it. The trainer computes it and sends
it to the environment service.

A turn z of trajectory j counts with a mass m: 0 if its label is a fault of the scorer, the share s
in [0, 1] if it failed only because an earlier turn had failed (`cascade`), else 1. The paper counts
every turn, so s = 1; with s = 0 only first failures count. For label l

    turns(l)        = sum over j and its turns z with label l of m(z)
    trajectories(l) = sum over j of M(j, l),  M(j, l) = max over turns z of j with label l of m(z)
    reward_sum(l)   = sum over j of M(j, l) * r_j
    successes(l)    = sum over j with r_j = 1 of M(j, l)

In the example the second wrong state only follows from the first, so it counts as half a turn:

>>> wrong = TurnDiagnosis(0, Label.STATE_MISMATCH, "why", None)
>>> follows = TurnDiagnosis(1, Label.STATE_MISMATCH, "why", None, cascade=True)
>>> passed = [TurnDiagnosis(turn, Label.PASS, "why", None) for turn in (0, 1)]
>>> skipped = TurnDiagnosis(1, Label.MISSING_TOOL_CALL, "why", None)
>>> rollouts = [
...     Rollout("a", "base", 0.0, 0.0, (wrong, follows)),
...     Rollout("a", "base", 0.0, 0.0, (passed[0], skipped)),
...     Rollout("a", "base", 1.0, 1.0, tuple(passed)),
... ]
>>> profile = profile_of(3, rollouts, cascade_share=0.5)
>>> profile.by_label[Label.STATE_MISMATCH]
LabelStatistic(turns=1.5, trajectories=1.0, reward_sum=0.0, successes=0.0)
>>> profile.prevalence(Label.STATE_MISMATCH)  # 1.5 of 2.5 failed turns
0.6
>>> profile.by_label[Label.PASS].mean_reward
0.5
>>> profile.by_position[0][Label.PASS].turns
2.0
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal, TypeAlias

from seal.coevolution.checks import check_choice, check_share, json_fields, json_object
from seal.coevolution.rollout import Rollout, turn_mass
from seal.labels import FAILURES, Label
from seal.wire import TurnDiagnosis


@dataclass(frozen=True)
class LabelStatistic:
    """How often one label was seen. Counts are sums of masses.

    Raises:
        ValueError: The counts contradict each other, or the label was not seen at all.
    """

    turns: float
    """Mass of the turns with the label."""
    trajectories: float
    """Mass of the trajectories with the label: the largest mass of such a turn in each."""
    reward_sum: float
    """Sum of the rewards of these trajectories, each times its mass."""
    successes: float
    """Mass of those among them that passed in full (reward 1.0)."""

    def __post_init__(self) -> None:
        """Check the counts; by rounding, a sum may be slightly above its bound."""
        counted = 0 < self.trajectories <= self.turns + _ROUNDING and math.isfinite(self.turns)
        rewarded = -_ROUNDING <= self.reward_sum <= self.trajectories + _ROUNDING
        if not (counted and rewarded and 0 <= self.successes <= self.reward_sum + _ROUNDING):
            raise ValueError(
                "expected 0 < trajectories <= turns < inf and 0 <= successes <= reward_sum <= "
                f"trajectories, got {self}"
            )

    @property
    def mean_reward(self) -> float:
        """Mean reward of the trajectories that carry the label, by mass."""
        return self.reward_sum / self.trajectories


Window: TypeAlias = Literal["sliding", "tumbling"]
_Table: TypeAlias = Mapping[Label, LabelStatistic]


@dataclass(frozen=True)
class FailureProfile:
    """The profile C_t of one round, or of several merged."""

    version: int
    """Round t, and the version of the interface that is evolved from the profile."""
    by_label: Mapping[Label, LabelStatistic]
    """Every label that was seen."""
    by_category: Mapping[str, Mapping[Label, LabelStatistic]]
    """The same for each task category; for reports, no rule uses it."""
    by_position: Mapping[int, Mapping[Label, LabelStatistic]]
    """The same for each turn index, from 0; for reports. Its digits are the keys in JSON."""
    uncued: Mapping[Label, LabelStatistic] = field(default_factory=dict)
    """The same of the trajectories that were shown no cue alone."""

    def prevalence(self, label: Label) -> float:
        """Share of a failure label among the failed turns, by mass; 0.0 if no turn failed."""
        if label not in FAILURES or label not in self.by_label:
            return 0.0
        failed = [self.by_label[name].turns for name in FAILURES if name in self.by_label]
        return self.by_label[label].turns / math.fsum(failed)

    def rate(self, label: Label, least_turns: int) -> float:
        """Share of a failure label among all turns of its kind, by mass.

        Turns in which no tool should be called are a kind of their own: only there a call can be
        spurious. All other failures are counted among the other turns. The rate is that of the
        trajectories that were shown no cue, if these have at least `least_turns` turns of the kind,
        else of all. So it falls as the policy improves, and not only because a cue is shown;
        `prevalence` does not, because it is a share of the failures.

        >>> labels = (Label.STATE_MISMATCH, Label.CORRECT_ABSTENTION, *[Label.PASS] * 3)
        >>> turns = tuple(TurnDiagnosis(i, label, "why", None) for i, label in enumerate(labels))
        >>> profile = profile_of(1, [Rollout("a", "base", 0.0, 0.0, turns)])
        >>> profile.rate(Label.STATE_MISMATCH, least_turns=1)
        0.25
        >>> profile.prevalence(Label.STATE_MISMATCH)
        1.0
        """
        if label not in FAILURES:
            return 0.0
        kind = _kind(label)
        tables = [
            {name: seen.turns for name, seen in table.items() if name in kind}
            for table in (self.uncued, self.by_label)
        ]
        enough = (table for table in tables if math.fsum(table.values()) >= least_turns)
        turns = next(enough, tables[1])
        return turns[label] / math.fsum(turns.values()) if label in turns else 0.0

    def rates(self, least_turns: int) -> dict[str, dict[str, float]]:
        """Both measures of how frequent each failure is that was seen, by its name; for reports.

        `of_failed_turns` is `prevalence`, `of_turns` is `rate`.
        """
        return {
            label.value: {
                "of_failed_turns": self.prevalence(label),
                "of_turns": self.rate(label, least_turns),
            }
            for label in FAILURES
            if label in self.by_label
        }

    def to_json(self) -> dict[str, Any]:
        """The profile as JSON values."""
        return {
            "version": self.version,
            "by_label": _to_json(self.by_label),
            "uncued": _to_json(self.uncued),
            "by_category": {name: _to_json(table) for name, table in self.by_category.items()},
            "by_position": {
                str(position): _to_json(table) for position, table in self.by_position.items()
            },
        }

    @classmethod
    def from_json(cls, data: object, path: str = "profile") -> "FailureProfile":
        """Read what `to_json` wrote.

        Raises:
            ValueError: A field is missing, unknown or of the wrong kind; the message names it.
        """
        # Profiles were written without "uncued" before there was a rule that reads it.
        given = {"uncued": {}, **json_object(data, path)}
        names = ("version", "by_label", "by_category", "by_position", "uncued")
        values = json_fields(given, names, path)
        version = values["version"]
        whole = isinstance(version, int) and not isinstance(version, bool)
        if not (whole and 0 <= version < _TOO_MANY):
            what = "expected an integer in [0, 2**53)"
            raise ValueError(f"{path}.version: {what}, got {version!r:.60}")
        by_category, by_position = f"{path}.by_category", f"{path}.by_position"
        return cls(
            version,
            _from_json(values["by_label"], f"{path}.by_label"),
            {
                name: _from_json(table, f"{by_category}.{name}")
                for name, table in json_object(values["by_category"], by_category).items()
            },
            {
                _position(key, by_position): _from_json(table, f"{by_position}.{key}")
                for key, table in json_object(values["by_position"], by_position).items()
            },
            _from_json(values["uncued"], f"{path}.uncued"),
        )


_ROUNDING = 1e-6
"""Largest rounding error of a sum of masses."""

_TOO_MANY = 2**53
"""JSON readers that know only doubles would change a count from here on."""

EMPTY = FailureProfile(0, {}, {}, {})
"""The profile before the first round."""


def profile_of(
    version: int,
    rollouts: Iterable[Rollout],
    cascade_share: float = 1.0,
    *,
    interface_active: bool = False,
) -> FailureProfile:
    """Aggregate the rollouts of a round; their order does not matter.

    Args:
        version: The round t.
        rollouts: All rollouts of the round that were trained on.
        cascade_share: Mass of a cascade turn, in [0, 1].
        interface_active: The round's interface has an active part, so the rollouts that were shown
            it saw a cue.

    Raises:
        ValueError: The share or a reward is out of its range.
    """
    check_share("cascade_share", cascade_share)
    parts = []
    for rollout in rollouts:
        by_label = _counted(rollout.turns, rollout.reward, cascade_share)
        by_position = {
            position: _counted((turn,), rollout.reward, cascade_share)
            for position, turn in enumerate(rollout.turns)
        }
        by_category = {rollout.category: by_label}
        uncued = {} if interface_active and rollout.interface_shown else by_label
        parts.append(FailureProfile(version, by_label, by_category, by_position, uncued))
    return replace(merge(*parts), version=version)


def merge(*profiles: FailureProfile) -> FailureProfile:
    """Several profiles as one, with the newest version; EMPTY without any.

    Each sum is over all profiles at once and is rounded once, so their order does not matter.
    Merging step by step gives the same up to rounding, and exactly the same if masses and rewards
    are multiples of a power of two, such as the paper's.
    """
    names = sorted({name for part in profiles for name in part.by_category})
    positions = sorted({position for part in profiles for position in part.by_position})
    return FailureProfile(
        max((part.version for part in profiles), default=EMPTY.version),
        _summed([part.by_label for part in profiles]),
        {name: _summed([part.by_category.get(name, {}) for part in profiles]) for name in names},
        {at: _summed([part.by_position.get(at, {}) for part in profiles]) for at in positions},
        _summed([part.uncued for part in profiles]),
    )


@dataclass(frozen=True, kw_only=True)
class ProfileWindow:
    """Which rounds the profile C_t is made of.

    Raises:
        ValueError: A number is below 1; the message says which.
    """

    window_rounds: int = 1
    """Rounds that C_t looks back on."""
    window: Window = "sliding"
    """The last rounds (sliding), or those since it was last emptied, which happens every
    `window_rounds` rounds (tumbling). The published code empties it at the end of an epoch."""
    frozen_after: int | None = None
    """Round after which C_t and the utilities stay as they are (an ablation); None: never."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        if self.window_rounds < 1:
            raise ValueError(f"window_rounds must be at least 1, got {self.window_rounds}")
        check_choice("window", self.window, Window)
        if self.frozen_after is not None and self.frozen_after < 1:
            raise ValueError(f"frozen_after must be at least 1 or null, got {self.frozen_after}")


@dataclass(frozen=True)
class ProfileHistory:
    """Profiles of the rounds so far, as a checkpoint keeps them.

    >>> turn = TurnDiagnosis(0, Label.STATE_MISMATCH, "why", None)
    >>> failed = Rollout("a", "base", 0.0, 0.0, (turn,))
    >>> history = ProfileHistory()
    >>> for step in (1, 2, 3):
    ...     history = history.after(profile_of(step, [failed]), ProfileWindow(window_rounds=2))
    >>> [profile.version for profile in history.rounds]
    [2, 3]
    >>> history.window.by_label[Label.STATE_MISMATCH].turns
    2.0
    >>> history.total.by_label[Label.STATE_MISMATCH].turns
    3.0
    """

    rounds: tuple[FailureProfile, ...] = ()
    """The last rounds, oldest first; at most as many as the window."""
    total: FailureProfile = EMPTY
    """All rounds merged."""

    def after(self, profile: FailureProfile, window: ProfileWindow) -> "ProfileHistory":
        """The history with one more round, whose number, from 1, is the profile's version.

        At most `window.window_rounds` are kept, this one among them.
        """
        size = window.window_rounds
        if window.window == "tumbling":
            size = (profile.version - 1) % size + 1
        return ProfileHistory((*self.rounds, profile)[-size:], merge(self.total, profile))

    @property
    def window(self) -> FailureProfile:
        """The kept rounds, merged; EMPTY without any."""
        return merge(*self.rounds)

    def to_json(self) -> dict[str, Any]:
        """The history as JSON values."""
        rounds = [profile.to_json() for profile in self.rounds]
        return {"rounds": rounds, "total": self.total.to_json()}

    @classmethod
    def from_json(cls, data: object) -> "ProfileHistory":
        """Read what `to_json` wrote.

        Raises:
            ValueError: A field is missing, unknown or of the wrong kind; the message names it.
        """
        values = json_fields(data, ("rounds", "total"), "history")
        rounds = values["rounds"]
        if not isinstance(rounds, list):
            raise ValueError(f"history.rounds: expected a list, got {type(rounds).__name__}")
        profiles = [
            FailureProfile.from_json(profile, f"history.rounds[{index}]")
            for index, profile in enumerate(rounds)
        ]
        return cls(tuple(profiles), FailureProfile.from_json(values["total"], "history.total"))


_ABSTENTION = frozenset({Label.SPURIOUS_TOOL_CALL, Label.CORRECT_ABSTENTION})


def _kind(label: Label) -> frozenset[Label]:
    """The labels of the turns in which a failure is possible, as far as labels tell."""
    return _ABSTENTION if label in _ABSTENTION else frozenset(Label) - _ABSTENTION


def _counted(turns: Sequence[TurnDiagnosis], reward: float, cascade_share: float) -> _Table:
    """The table of one rollout, or of one of its turns."""
    by_label: dict[Label, list[float]] = {}
    for turn in turns:
        mass = turn_mass(turn, cascade_share)
        if mass > 0:
            by_label.setdefault(turn.label, []).append(mass)
    return {
        label: LabelStatistic(
            turns=math.fsum(masses),
            trajectories=max(masses),
            reward_sum=max(masses) * reward,
            successes=max(masses) if reward == 1.0 else 0.0,
        )
        for label, masses in by_label.items()
    }


def _summed(tables: Sequence[_Table]) -> dict[Label, LabelStatistic]:
    """Several tables as one, in the order of the vocabulary, so equal profiles give equal JSON."""
    total: dict[Label, LabelStatistic] = {}
    for label in Label:
        parts = [table[label] for table in tables if label in table]
        if parts:
            total[label] = LabelStatistic(
                turns=math.fsum(part.turns for part in parts),
                trajectories=math.fsum(part.trajectories for part in parts),
                reward_sum=math.fsum(part.reward_sum for part in parts),
                successes=math.fsum(part.successes for part in parts),
            )
    return total


_COUNTS = tuple(count.name for count in fields(LabelStatistic))


def _to_json(table: _Table) -> dict[str, dict[str, float]]:
    return {label.value: asdict(statistic) for label, statistic in table.items()}


def _from_json(data: object, path: str) -> dict[Label, LabelStatistic]:
    table: dict[Label, LabelStatistic] = {}
    for name, counts in json_object(data, path).items():
        here = f"{path}.{name}"
        if name not in Label.__members__.values():
            known = ", ".join(label.value for label in Label)
            raise ValueError(f"{here}: unknown label; known labels: {known}")
        values = json_fields(counts, _COUNTS, here)
        numbers = [_number(values[count], f"{here}.{count}") for count in _COUNTS]
        try:
            table[Label(name)] = LabelStatistic(*numbers)
        except ValueError as error:
            raise ValueError(f"{here}: {error}") from None
    return table


def _number(value: object, path: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < _TOO_MANY:
        raise ValueError(f"{path}: expected a number in [0, 2**53), got {value!r:.60}")
    return float(value)


def _position(key: str, path: str) -> int:
    """A turn index as JSON keys write it: decimal digits without leading zeros."""
    if not (key.isascii() and key.isdigit() and len(key) < 10 and key == str(int(key))):
        raise ValueError(f"{path}: expected turn indices such as '0' or '12', got {key!r:.60}")
    return int(key)
