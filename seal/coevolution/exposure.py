"""Which rollouts of a training step are shown the learning interface.

In: the recipe's exposure and the step. Out: the number of rollouts in each GRPO group. The paper
shows the interface to all of them. A share below 1, or one that falls to 0, is a variant of this
project: the policy should also solve tasks without cues, as in an evaluation.
"""

from dataclasses import dataclass

from seal.coevolution.checks import check_share


@dataclass(frozen=True)
class Exposure:
    """The share of each group's rollouts that are shown the interface.

    Raises:
        ValueError: A setting is out of its range; the message says which.
    """

    share: float = 1.0
    """At step 1, in [0, 1] (paper: 1)."""
    gone_at: int | None = None
    """The share falls linearly and is 0 from this step on. None: it does not fall."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_share("seal.exposure.share", self.share)
        if self.gone_at is not None and self.gone_at < 2:
            raise ValueError(
                f"seal.exposure.gone_at must be a step from 2 on, or null, got {self.gone_at}"
            )

    def shown(self, step: int, rollouts: int) -> int:
        """How many rollouts of a group are shown the interface: the first ones.

        Steps are counted from 1.

        >>> Exposure().shown(step=9, rollouts=8), Exposure(share=0.5).shown(step=9, rollouts=8)
        (8, 4)
        >>> [Exposure(gone_at=5).shown(step, rollouts=8) for step in (1, 2, 3, 4, 5, 6)]
        [8, 6, 4, 2, 0, 0]
        """
        left = 1.0
        if self.gone_at is not None:
            left = max(0.0, (self.gone_at - step) / (self.gone_at - 1))
        return round(self.share * left * rollouts)
