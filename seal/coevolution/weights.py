"""Labels of a trajectory to the weight of its advantage (paper section 3.4).

With p_j the empirical label distribution of trajectory j and rho the diagnostic utility of a label:

    w_j = clip(sum_z p_j(z) * rho(z), w_min, w_max),    A~_j = w_j * A_j

The trainer multiplies the GRPO advantage A_j by w_j (`seal.train.trainer`). Since w_j > 0, no
advantage changes its sign: labels say which trajectories teach most, never which are good.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from seal.coevolution.labels import EXCLUDED, Label

UTILITIES: Mapping[Label, float] = {
    # The paper's labels without a published value (the project's values; section 3.4 says that
    # invalid calls and argument errors weigh most, ambiguous failures least).
    Label.INVALID_TOOL_CALL: 2.0,
    Label.ARGUMENT_MISMATCH: 1.8,
    Label.RECOVERY_FAILURE: 1.2,
    # Published with the recipe.
    Label.SPURIOUS_TOOL_CALL: 2.0,
    Label.CORRECT_ABSTENTION: 1.8,
    Label.MISSING_TOOL_CALL: 1.5,  # as empty_turn_model_response
    Label.STATE_MISMATCH: 1.0,
    Label.PASS: 1.0,
    Label.RESPONSE_MISMATCH: 0.9,
    Label.INSTANCE_MISMATCH: 0.6,
}
"""Diagnostic utility rho(z) of every label that counts."""


@dataclass(frozen=True)
class WeightConfig:
    """The utilities and the bounds of a weight.

    Raises:
        ValueError: A utility is missing, of an excluded label or not positive, or the bounds are
            not 0 < w_min <= w_max; the message says which.
    """

    utilities: Mapping[Label, float] = field(default_factory=lambda: dict(UTILITIES))
    """rho(z) > 0 for every label that is not excluded."""
    w_min: float = 0.5
    """Lower bound (published)."""
    w_max: float = 2.0
    """Upper bound (published)."""

    def __post_init__(self) -> None:
        """Check what was configured."""
        if not (0 < self.w_min <= self.w_max and math.isfinite(self.w_max)):
            raise ValueError(
                f"expected 0 < w_min <= w_max < inf, got w_min={self.w_min}, w_max={self.w_max}"
            )
        for label in Label:
            if label in EXCLUDED:
                if label in self.utilities:
                    raise ValueError(f"{label.value} carries no weight: take its utility out")
            elif label not in self.utilities:
                raise ValueError(f"no utility for {label.value}: every label that counts needs one")
            elif not (self.utilities[label] > 0 and math.isfinite(self.utilities[label])):
                raise ValueError(
                    f"the utility of {label.value} must be positive and finite, "
                    f"got {self.utilities[label]}"
                )


def trajectory_weight(labels: Sequence[Label], config: WeightConfig) -> float:
    """The weight w_j of a trajectory; exactly 1.0 if it has no label that counts.

    Two of three turns pass (rho = 1.0), one skipped its tool (rho = 1.5); the fourth turn's
    verifier failed and is left out: w = 2/3 * 1.0 + 1/3 * 1.5.

    >>> turns = [Label.PASS, Label.PASS, Label.MISSING_TOOL_CALL, Label.CHECKER_ERROR]
    >>> round(trajectory_weight(turns, WeightConfig()), 4)
    1.1667
    """
    if all(label in EXCLUDED for label in labels):
        return 1.0
    return min(max(mean_utility(labels, config), config.w_min), config.w_max)


def mean_utility(labels: Sequence[Label], config: WeightConfig) -> float:
    """The weight before it is clipped: sum_z p(z) * rho(z); 1.0 without a label that counts."""
    counted = [label for label in labels if label not in EXCLUDED]
    if not counted:
        return 1.0
    # The mean over turns is the sum over labels of p(z) * rho(z).
    return math.fsum(config.utilities[label] for label in counted) / len(counted)
