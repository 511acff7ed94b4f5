"""Official reward to training reward: credit for turns that passed, off by default.

The paper trains on the verifier's binary reward r alone (section 3.5). The published configuration
knows two ways to give a trajectory that did not pass in full credit for its turns, by

    share = (passed scorable + w * passed abstention) / (scorable + w * abstention)

over all turns of the task, also those never begun, where the reference calls tools in a scorable
turn and none in an abstention turn, and w = 0.5 is the abstention weight:

* binary: r. The default.
* capped: 1 on a full pass, else min(cap, share). The published file sets cap = 0, which is binary.
* t3rl: 1 on a full pass, else min(share, 0.99).

Called by the trainer on rollouts it trains on. Validation always uses the official reward.
"""

from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from seal.wire import TurnProgress

ShapingMode: TypeAlias = Literal["binary", "capped", "t3rl"]

BELOW_FULL_PASS = 0.99
"""Most that a trajectory earns without a full pass. The verdict on a task can be worse than those
on its turns, and then the share is 1. A constant that stays below 1 in every float type."""


@dataclass(frozen=True)
class RewardShaping:
    """How the training reward is made.

    Raises:
        ValueError: A setting is out of its range; the message says which.
    """

    mode: ShapingMode = "binary"
    """Which of the three rewards."""
    cap: float = 0.0
    """Most that mode "capped" gives without a full pass, in [0, 1) (published: 0)."""
    abstention_weight: float = 0.5
    """Weight w of a turn without calls beside one with calls, in [0, 1] (published)."""

    def __post_init__(self) -> None:
        """Check what was configured."""
        if self.mode not in get_args(ShapingMode):
            known = ", ".join(get_args(ShapingMode))
            raise ValueError(f"mode must be one of {known}, got {self.mode!r}")
        if not 0 <= self.cap < 1:
            raise ValueError(f"cap must be in [0, 1), got {self.cap}")
        if not 0 <= self.abstention_weight <= 1:
            raise ValueError(f"abstention_weight must be in [0, 1], got {self.abstention_weight}")


def shaped_reward(reward: float, progress: TurnProgress, shaping: RewardShaping) -> float:
    """The reward to train on: 1.0 on a full pass in every mode, below 1 otherwise.

    A task without turns that count (none, or only abstentions at weight 0) keeps its reward.

    Args:
        reward: Terminal reward of the verifier; 1.0 is a full pass.
        progress: How many turns of the task passed.
        shaping: How the reward is made.

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
    """Share of the turns that passed, None if there is nothing to pass."""
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
