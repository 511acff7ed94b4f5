"""Official reward to training reward: credit for turns that passed, off by default.

The paper trains only on the verifier's binary reward r (section 3.5). The published configuration
has two modes that give a trajectory without a full pass credit for its turns, by

    share = (passed scorable + w * passed abstention) / (scorable + w * abstention)

over all turns of the task, also those that were not begun. In a scorable turn the reference calls
tools, in an abstention turn it calls none; w = 0.5 is the abstention weight. The modes:

* binary: r. The default.
* capped: 1 on a full pass, else min(cap, share). The published file sets cap = 0, which is binary.
* t3rl: 1 on a full pass, else min(share, 0.99).

Only rollouts that are trained on get it. Validation always uses the official reward.
"""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from seal.coevolution.checks import check_choice, check_share
from seal.wire import TurnProgress

ShapingMode: TypeAlias = Literal["binary", "capped", "t3rl"]

BELOW_FULL_PASS = 0.99
"""Highest reward without a full pass. A task can fail although all of its turns pass; then the
share is 1. The constant is below 1 in every float type."""


@dataclass(frozen=True)
class RewardShaping:
    """How the training reward is computed.

    Raises:
        ValueError: A setting is out of its range; the message says which.
    """

    mode: ShapingMode = "binary"
    """Which of the three rewards."""
    cap: float = 0.0
    """Highest reward of mode "capped" without a full pass, in [0, 1) (published: 0)."""
    abstention_weight: float = 0.5
    """Weight w of a turn without calls, relative to one with calls, in [0, 1] (published)."""

    def __post_init__(self) -> None:
        """Check what was configured."""
        check_choice("mode", self.mode, ShapingMode)
        if not 0 <= self.cap < 1:
            raise ValueError(f"cap must be in [0, 1), got {self.cap}")
        check_share("abstention_weight", self.abstention_weight)


def shaped_reward(reward: float, progress: TurnProgress, shaping: RewardShaping) -> float:
    """The reward to train on: 1.0 on a full pass in every mode, below 1 otherwise.

    A task without turns that count (none, or only abstentions at weight 0) keeps its reward.

    Raises:
        ValueError: More turns passed than there are.

    Two of three scorable turns and one of two abstentions passed: (2 + 0.5) / (3 + 1).

    >>> progress = TurnProgress(
    ...     scorable=3, scorable_passed=2, abstention=2, abstention_passed=1
    ... )
    >>> shaped_reward(0.0, progress, RewardShaping("t3rl"))
    0.625
    >>> shaped_reward(0.0, progress, RewardShaping("capped", cap=0.25))
    0.25
    >>> shaped_reward(0.0, progress, RewardShaping())
    0.0
    """
    if shaping.mode == "binary" or reward == 1.0:
        return reward
    share = _share(progress, shaping.abstention_weight)
    if share is None:
        return reward
    return min(share, shaping.cap if shaping.mode == "capped" else BELOW_FULL_PASS)


def _share(progress: TurnProgress, abstention_weight: float) -> float | None:
    """Share of the turns that passed; None if no turn counts."""
    for name, passed, turns in (
        ("scorable", progress.scorable_passed, progress.scorable),
        ("abstention", progress.abstention_passed, progress.abstention),
    ):
        if not 0 <= passed <= turns:
            raise ValueError(f"expected 0 <= {name}_passed <= {name}={turns}, got {passed}")
    total = progress.scorable + abstention_weight * progress.abstention
    if total == 0:
        return None
    passed_mass = progress.scorable_passed + abstention_weight * progress.abstention_passed
    return passed_mass / total
