"""Labels of a trajectory to the weight of its advantage (paper section 3.4).

With p_j the empirical label distribution of trajectory j and rho the diagnostic utility of a label:

    w_j = clip(sum_z p_j(z) * rho(z), w_min, w_max),    A~_j = w_j * A_j

The trainer multiplies the GRPO advantage A_j by w_j (`seal.train.trainer`). Since w_j > 0, no
advantage changes its sign: labels say which trajectories teach most, never which are good.

That is the paper's weight and the default. `WeightConfig` holds the variants: a weight for each
turn's tokens instead of one a trajectory, weights for one sign of the advantage only, weights whose
mean over a GRPO group or a batch is 1, and turns that only follow from an earlier failure counting
less. Two assignments are controls: "shuffled" gives each trajectory the weight of another one of
the batch, so the weights are the same and say nothing; "mean" gives all of them the batch's mean
weight. The utilities rho are an argument, since `utilities` may change them from round to round.
"""

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Literal, TypeAlias, get_args

from seal.coevolution.labels import EXCLUDED, Label
from seal.coevolution.profile import LabeledTurn

Scope: TypeAlias = Literal["trajectory", "turn"]
AppliesTo: TypeAlias = Literal["all", "positive", "negative"]
Normalize: TypeAlias = Literal["none", "group", "batch"]
Assignment: TypeAlias = Literal["own", "shuffled", "mean"]

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
    """The base utilities, the bounds of a weight, and what it weighs.

    Raises:
        ValueError: A utility is missing, of an excluded label or not positive, the bounds are not
            0 < w_min <= w_max, or a setting is none of its values; the message says which.
    """

    utilities: Mapping[Label, float] = field(default_factory=lambda: dict(UTILITIES))
    """Base rho(z) > 0 for every label that is not excluded."""
    w_min: float = 0.5
    """Lower bound (published)."""
    w_max: float = 2.0
    """Upper bound (published)."""
    scope: Scope = "trajectory"
    """What carries a weight: the whole trajectory (paper), or each turn's tokens their own."""
    applies_to: AppliesTo = "all"
    """Sign of the advantages that are weighted; the paper's are "all"."""
    normalize: Normalize = "none"
    """Over what the mean weight is made 1: nothing (paper), each GRPO group, or the batch."""
    cascade_share: float = 1.0
    """How much a turn counts that failed only after an earlier one, in [0, 1] (paper: 1)."""
    assignment: Assignment = "own"
    """Whose weight a trajectory gets: its own (paper), another's, or the batch's mean."""

    def __post_init__(self) -> None:
        """Check what was configured."""
        if not (0 < self.w_min <= self.w_max and math.isfinite(self.w_max)):
            raise ValueError(
                f"expected 0 < w_min <= w_max < inf, got w_min={self.w_min}, w_max={self.w_max}"
            )
        if not 0 <= self.cascade_share <= 1:
            raise ValueError(f"cascade_share must be in [0, 1], got {self.cascade_share}")
        for name, value, kind in (
            ("scope", self.scope, Scope),
            ("applies_to", self.applies_to, AppliesTo),
            ("normalize", self.normalize, Normalize),
            ("assignment", self.assignment, Assignment),
        ):
            if value not in get_args(kind):
                known = ", ".join(get_args(kind))
                raise ValueError(f"{name} must be one of {known}, got {value!r}")
        if self.assignment != "own" and self.scope == "turn":
            raise ValueError(
                f"assignment {self.assignment} is for whole trajectories: set scope to trajectory"
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


def mean_utility(
    turns: Sequence[LabeledTurn], utilities: Mapping[Label, float], cascade_share: float
) -> float:
    """The weight before it is clipped: sum_z p(z) * rho(z); 1.0 without a turn that counts.

    p(z) is the share of label z in the turns' mass (`LabeledTurn.mass`). An invalid call
    (rho = 2.0), then a state that was wrong only because of it (1.0) and counts half:
    (1 * 2.0 + 0.5 * 1.0) / 1.5.

    >>> turns = [
    ...     LabeledTurn(Label.INVALID_TOOL_CALL),
    ...     LabeledTurn(Label.STATE_MISMATCH, cascade=True),
    ... ]
    >>> round(mean_utility(turns, UTILITIES, cascade_share=0.5), 4)
    1.6667
    """
    counted = [(turn.label, turn.mass(cascade_share)) for turn in turns]
    total = math.fsum(mass for _, mass in counted)
    if total == 0:
        return 1.0
    # Summing over turns, each mass / total, is summing over labels, each p(z).
    return math.fsum(mass * utilities[label] for label, mass in counted if mass > 0) / total


def trajectory_weight(
    turns: Sequence[LabeledTurn], utilities: Mapping[Label, float], config: WeightConfig
) -> float:
    """The weight w_j of a trajectory; exactly 1.0 if it has no turn that counts.

    Two of three turns pass (rho = 1.0), one skipped its tool (rho = 1.5); the fourth turn's
    verifier failed and is left out: w = 2/3 * 1.0 + 1/3 * 1.5.

    >>> labels = [Label.PASS, Label.PASS, Label.MISSING_TOOL_CALL, Label.CHECKER_ERROR]
    >>> turns = [LabeledTurn(label) for label in labels]
    >>> round(trajectory_weight(turns, UTILITIES, WeightConfig()), 4)
    1.1667
    """
    if all(turn.mass(config.cascade_share) == 0 for turn in turns):
        return 1.0
    return _clip(mean_utility(turns, utilities, config.cascade_share), config)


def turn_weights(
    turns: Sequence[LabeledTurn], utilities: Mapping[Label, float], config: WeightConfig
) -> tuple[float, ...]:
    """The weight of each turn's tokens, clip(s * rho(z) + (1 - s) * 1, w_min, w_max).

    s is 1, or cascade_share for a turn that failed only after an earlier one: with s = 0 such a
    turn is as heavy as one without diagnosis. A turn with an excluded label weighs 1.0.

    >>> turns = [
    ...     LabeledTurn(Label.PASS),
    ...     LabeledTurn(Label.MISSING_TOOL_CALL),
    ...     LabeledTurn(Label.MISSING_TOOL_CALL, cascade=True),
    ...     LabeledTurn(Label.CHECKER_ERROR),
    ... ]
    >>> turn_weights(turns, UTILITIES, WeightConfig(scope="turn", cascade_share=0.5))
    (1.0, 1.5, 1.25, 1.0)
    """
    weights = []
    for turn in turns:
        if turn.label in EXCLUDED:
            weights.append(1.0)
        else:
            share = turn.mass(config.cascade_share)
            weights.append(_clip(share * utilities[turn.label] + (1 - share), config))
    return tuple(weights)


def batch_weights(
    trajectories: Sequence[Sequence[LabeledTurn]],
    groups: Sequence[str],
    utilities: Mapping[Label, float],
    config: WeightConfig,
    seed: str = "",
) -> list[tuple[float, ...]]:
    """One weight a turn for each trajectory of a batch, in order.

    In scope "trajectory" its weight is repeated for every turn. A trajectory without turns has the
    one weight 1.0, so that tokens outside every turn have one, too. With `normalize`, weights are
    divided by the mean, over the trajectories of the GRPO group or of the batch, of a trajectory's
    mean weight; they are not clipped again. That mean takes in every trajectory, whatever the sign
    of its advantage.

    Args:
        trajectories: The turns of each trajectory.
        groups: The GRPO group of each, e.g. the id of its prompt.
        utilities: rho(z) > 0, now.
        config: Bounds and variants.
        seed: Of assignment "shuffled", another one for each batch.

    Raises:
        ValueError: There is not one group for each trajectory.

    Weights 1.0 and 1.5 have the mean 1.25:

    >>> batch = [[LabeledTurn(Label.PASS)] * 2, [LabeledTurn(Label.MISSING_TOOL_CALL)]]
    >>> batch_weights(batch, ["task_7", "task_7"], UTILITIES, WeightConfig())
    [(1.0, 1.0), (1.5,)]
    >>> batch_weights(batch, ["task_7", "task_7"], UTILITIES, WeightConfig(normalize="group"))
    [(0.8, 0.8), (1.2,)]
    """
    if len(groups) != len(trajectories):
        raise ValueError(
            f"expected a group for each of {len(trajectories)} trajectories, got {len(groups)}"
        )
    if config.scope == "turn":
        weights = [turn_weights(turns, utilities, config) or (1.0,) for turns in trajectories]
    else:
        whole = [trajectory_weight(turns, utilities, config) for turns in trajectories]
        if config.assignment == "shuffled":
            random.Random(seed).shuffle(whole)
        elif config.assignment == "mean" and whole:
            whole = [fmean(whole)] * len(whole)
        weights = [
            (weight,) * max(1, len(turns))
            for weight, turns in zip(whole, trajectories, strict=True)
        ]
    if config.normalize == "none":
        return weights
    pools = groups if config.normalize == "group" else ["batch"] * len(groups)
    means: dict[str, list[float]] = {}
    for pool, one in zip(pools, weights, strict=True):
        means.setdefault(pool, []).append(fmean(one))
    divisors = {pool: fmean(values) for pool, values in means.items()}
    return [
        tuple(weight / divisors[pool] for weight in one)
        for pool, one in zip(pools, weights, strict=True)
    ]


def applies(advantage: float, config: WeightConfig) -> bool:
    """Whether an advantage is weighted: all are, or those of one sign.

    >>> applies(-0.5, WeightConfig()), applies(-0.5, WeightConfig(applies_to="positive"))
    (True, False)
    """
    if config.applies_to == "all":
        return True
    return advantage > 0 if config.applies_to == "positive" else advantage < 0


def _clip(weight: float, config: WeightConfig) -> float:
    return min(max(weight, config.w_min), config.w_max)
