"""Failure profile to the diagnostic utilities of the next round (published configuration).

The paper gives labels constant utilities rho (section 3.4). In the published configuration the
utilities follow the failures of the policy, as an exponential moving average:

    w(z) <- (1 - beta) * w(z) + beta * clip(rho(z) * (1 + alpha * u(z)), w_min, w_max)
    u(z) = prevalence(z) * (1 - mean_reward(z)) * min(1, n(z) / n_conf)

prevalence is here the share of the label among all turns that count, passed ones too, as in the
published code; mean_reward is that of the trajectories that carry the label, n the number of its
turns. So the utility of a frequent, unsolved failure with enough observations grows by a factor of
up to 1 + alpha, and returns to its base when it is mastered. A label that was not seen moves
towards clip(rho). `pass` stays at rho; correct_abstention moves as a failure does.

The published code takes the mean reward over turns with the label, here it is over trajectories.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from seal.coevolution.checks import check_share
from seal.coevolution.profile import FailureProfile
from seal.labels import EXCLUDED, Label


@dataclass(frozen=True)
class UtilityConfig:
    """Whether and how fast utilities follow the profile.

    Raises:
        ValueError: A number is out of its range; the message says which.
    """

    enabled: bool = False
    """Whether utilities move. If not, they are the paper's constants. The published file: true."""
    beta: float = 0.25
    """Share of the new value in the average, in [0, 1] (published)."""
    alpha: float = 1.0
    """A failure multiplies its utility by up to 1 + alpha; at least 0 (published)."""
    n_conf: int = 32
    """With this many turns the statistic of a label counts fully; at least 1 (published)."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_share("beta", self.beta)
        if not 0 <= self.alpha < math.inf:
            raise ValueError(f"alpha must be at least 0 and finite, got {self.alpha}")
        if self.n_conf < 1:
            raise ValueError(f"n_conf must be at least 1, got {self.n_conf}")


def next_utilities(
    current: Mapping[Label, float],
    rho: Mapping[Label, float],
    profile: FailureProfile,
    config: UtilityConfig,
    w_min: float,
    w_max: float,
) -> dict[Label, float]:
    """The utilities w(z) after a round; rho itself if they are not dynamic.

    Args:
        current: Utilities of the round, for every label of rho; before the first round, rho.
        rho: Base utilities.
        profile: C_t.
        config: Whether and how fast they move.
        w_min: Lower bound of their targets.
        w_max: Upper bound of their targets.

    Raises:
        ValueError: A label of rho has no current utility.

    Of 64 turns 16 are state mismatches; a quarter of their trajectories pass. The target of
    rho = 1.0 is 1 + 16/64 * (1 - 0.25) * min(1, 16/32) = 1.09375, and w goes a quarter of the way.
    16 skipped a tool, and their trajectories never pass. Their target is
    1.5 * (1 + 0.25 * 1 * 0.5) = 1.6875, so w is 0.75 * 1.5 + 0.25 * 1.6875 = 1.546875. pass stays.

    >>> from seal.coevolution.profile import LabelStatistic
    >>> seen = {
    ...     Label.STATE_MISMATCH: LabelStatistic(16, 8, 2.0, 2),
    ...     Label.MISSING_TOOL_CALL: LabelStatistic(16, 16, 0.0, 0),
    ...     Label.PASS: LabelStatistic(32, 20, 5.0, 5),
    ... }
    >>> rho = {Label.STATE_MISMATCH: 1.0, Label.MISSING_TOOL_CALL: 1.5, Label.PASS: 1.0}
    >>> profile = FailureProfile(1, seen, {}, {})
    >>> after = next_utilities(rho, rho, profile, UtilityConfig(enabled=True), 0.5, 2.0)
    >>> [after[label] for label in rho]
    [1.0234375, 1.546875, 1.0]
    """
    if not config.enabled:
        return dict(rho)
    missing = [label.value for label in rho if label not in current]
    if missing:
        raise ValueError(f"expected a current utility for every label of rho, none for {missing}")
    return {
        label: base
        if label is Label.PASS
        else _moved(current[label], _target(label, base, profile, config, w_min, w_max), config)
        for label, base in rho.items()
    }


def _target(
    label: Label,
    base: float,
    profile: FailureProfile,
    config: UtilityConfig,
    w_min: float,
    w_max: float,
) -> float:
    """clip(rho * (1 + alpha * u), w_min, w_max) of one label."""
    seen = profile.by_label.get(label)
    urgency = 0.0
    if seen is not None:
        confidence = min(1.0, seen.turns / config.n_conf)
        counted = (profile.by_label[name].turns for name in profile.by_label.keys() - EXCLUDED)
        urgency = seen.turns / math.fsum(counted) * (1 - seen.mean_reward) * confidence
    return min(max(base * (1 + config.alpha * urgency), w_min), w_max)


def _moved(value: float, target: float, config: UtilityConfig) -> float:
    """(1 - beta) * value + beta * target; rounding never carries it outside of the two."""
    moved = value + config.beta * (target - value)
    return min(max(moved, min(value, target)), max(value, target))
