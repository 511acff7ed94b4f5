"""Labels of a trajectory to the weight of its advantage (paper section 3.4).

With p_j the empirical label distribution of trajectory j and rho the diagnostic utility of a label:

    w_j = clip(sum_z p_j(z) * rho(z), w_min, w_max),    A~_j = w_j * A_j

`seal.train.trainer` multiplies the GRPO advantage A_j by w_j. Because w_j > 0, no advantage changes
its sign: labels decide how much a trajectory counts, not whether it is good.

The paper diagnoses failed rollouts (abstract). A trajectory that passes can hold a failed turn,
too: the verifier does not look at calls in a turn whose reference has none. With such a label's
utility, up to w_max, the fault would raise a positive advantage. So a failure label counts as a
pass in a trajectory that passes (`failures_in_passes`).

This is the paper's weight and the default. `WeightConfig` holds variants: one weight for the tokens
of each turn instead of one for the trajectory, weights only for one sign of the advantage, weights
whose mean over a GRPO group or a batch is 1, weights that balance the signs of a group's advantages
(`seal.train.advantages`), and a lower mass of turns that only follow from an earlier failure. Two
assignments are controls. "shuffled" gives each trajectory the weight of another one of the batch,
so the weights are the same but carry no information. "mean" gives all trajectories the mean weight
of the batch. The utilities rho are an argument, because `utilities` may change them from round to
round.
"""

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Literal, TypeAlias

from seal.coevolution.checks import check_choice, check_share
from seal.coevolution.rollout import Rollout, turn_mass
from seal.labels import EXCLUDED, FAILURES, Label
from seal.wire import TurnDiagnosis

Scope: TypeAlias = Literal["trajectory", "turn"]
AppliesTo: TypeAlias = Literal["all", "positive", "negative"]
Normalize: TypeAlias = Literal["none", "group", "batch", "balanced"]
Assignment: TypeAlias = Literal["own", "shuffled", "mean"]
FailuresInPasses: TypeAlias = Literal["as_pass", "as_failure"]

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
    """The base utilities, the bounds of a weight, and which advantages it multiplies.

    Raises:
        ValueError: A utility is missing, not positive or of an excluded label, the bounds are not
            0 < w_min <= w_max, a setting has an unknown value, or two do not go together; the
            message says which.
    """

    utilities: Mapping[Label, float] = field(default_factory=lambda: dict(UTILITIES))
    """Base rho(z) > 0 for every label that is not excluded."""
    w_min: float = 0.5
    """Lower bound (published)."""
    w_max: float = 2.0
    """Upper bound (published)."""
    scope: Scope = "trajectory"
    """What has a weight: the whole trajectory (paper), or the tokens of each turn."""
    applies_to: AppliesTo = "all"
    """Sign of the advantages that are weighted (paper: all)."""
    normalize: Normalize = "none"
    """Where the mean weight is made 1: nowhere (paper), in each GRPO group, or in the batch.

    "balanced" scales the weights of each group's failures instead, such that its weighted
    advantages add up to 0 in the loss (`seal.train.advantages.balanced`). It is for both signs.
    """
    cascade_share: float = 1.0
    """Mass of a turn that failed only because an earlier one had, in [0, 1] (paper: 1)."""
    assignment: Assignment = "own"
    """The weight of a trajectory: its own (paper), that of another one, or the batch's mean."""
    failures_in_passes: FailuresInPasses = "as_pass"
    """What a failed turn counts in a trajectory that passes (paper: only failed rollouts are
    diagnosed; the published file: as a failure)."""

    def __post_init__(self) -> None:
        """Check what was configured."""
        if not (0 < self.w_min <= self.w_max and math.isfinite(self.w_max)):
            raise ValueError(
                f"expected 0 < w_min <= w_max < inf, got w_min={self.w_min}, w_max={self.w_max}"
            )
        check_share("cascade_share", self.cascade_share)
        check_choice("scope", self.scope, Scope)
        check_choice("applies_to", self.applies_to, AppliesTo)
        check_choice("normalize", self.normalize, Normalize)
        check_choice("assignment", self.assignment, Assignment)
        check_choice("failures_in_passes", self.failures_in_passes, FailuresInPasses)
        if self.assignment != "own" and self.scope == "turn":
            raise ValueError(
                f"assignment {self.assignment} is for whole trajectories: set scope to trajectory"
            )
        if self.normalize == "balanced" and self.applies_to != "all":
            raise ValueError("normalize balanced weighs both signs: set applies_to to all")
        for label in Label:
            if label in EXCLUDED:
                if label in self.utilities:
                    raise ValueError(f"{label.value} has no weight: remove its utility")
            elif label not in self.utilities:
                raise ValueError(f"no utility for {label.value}: every label that counts needs one")
            elif not (self.utilities[label] > 0 and math.isfinite(self.utilities[label])):
                raise ValueError(
                    f"the utility of {label.value} must be positive and finite, "
                    f"got {self.utilities[label]}"
                )


def weighed_turns(rollout: Rollout, config: WeightConfig) -> tuple[TurnDiagnosis, ...]:
    """The turns of a rollout as its weight counts them.

    In a trajectory that passes, a failed turn counts as a pass (`failures_in_passes`).

    >>> labels = (Label.SPURIOUS_TOOL_CALL, Label.PASS)
    >>> turns = tuple(TurnDiagnosis(i, label, "why", None) for i, label in enumerate(labels))
    >>> passed = Rollout("a", "multi_turn_miss_func", 1.0, 1.0, turns)
    >>> [turn.label.value for turn in weighed_turns(passed, WeightConfig())]
    ['pass', 'pass']
    >>> weighed_turns(passed, WeightConfig(failures_in_passes="as_failure")) == turns
    True
    """
    if rollout.reward < 1.0 or config.failures_in_passes == "as_failure":
        return rollout.turns
    return tuple(
        replace(turn, label=Label.PASS, cascade=False) if turn.label in FAILURES else turn
        for turn in rollout.turns
    )


def mean_utility(
    turns: Sequence[TurnDiagnosis], utilities: Mapping[Label, float], cascade_share: float
) -> float:
    """The weight before it is clipped: sum_z p(z) * rho(z); 1.0 without a turn that counts.

    p(z) is the share of label z in the mass of the turns (`turn_mass`). In the example an
    invalid call (rho = 2.0) is followed by a state that is wrong only because of it (rho = 1.0) and
    counts half: (1 * 2.0 + 0.5 * 1.0) / 1.5.

    >>> turns = [
    ...     TurnDiagnosis(0, Label.INVALID_TOOL_CALL, "why", None),
    ...     TurnDiagnosis(1, Label.STATE_MISMATCH, "why", None, cascade=True),
    ... ]
    >>> round(mean_utility(turns, UTILITIES, cascade_share=0.5), 4)
    1.6667
    """
    counted = [(turn.label, turn_mass(turn, cascade_share)) for turn in turns]
    total = math.fsum(mass for _, mass in counted)
    if total == 0:
        return 1.0
    # The sum over turns with mass / total equals the sum over labels with p(z).
    return math.fsum(mass * utilities[label] for label, mass in counted if mass > 0) / total


def trajectory_weight(
    turns: Sequence[TurnDiagnosis], utilities: Mapping[Label, float], config: WeightConfig
) -> float:
    """The weight w_j of a trajectory; exactly 1.0 if it has no turn that counts.

    Of three turns two pass (rho = 1.0) and one skipped its tool (rho = 1.5). In the fourth turn the
    verifier failed, so it does not count: w = 2/3 * 1.0 + 1/3 * 1.5.

    >>> labels = [Label.PASS, Label.PASS, Label.MISSING_TOOL_CALL, Label.CHECKER_ERROR]
    >>> turns = [TurnDiagnosis(i, label, "why", None) for i, label in enumerate(labels)]
    >>> round(trajectory_weight(turns, UTILITIES, WeightConfig()), 4)
    1.1667
    """
    if all(turn_mass(turn, config.cascade_share) == 0 for turn in turns):
        return 1.0
    return _clip(mean_utility(turns, utilities, config.cascade_share), config)


def turn_weights(
    turns: Sequence[TurnDiagnosis], utilities: Mapping[Label, float], config: WeightConfig
) -> tuple[float, ...]:
    """The weight of each turn's tokens, clip(s * rho(z) + (1 - s) * 1, w_min, w_max).

    s is 1, or cascade_share for a turn that failed only because an earlier one had. With s = 0 such
    a turn has the weight 1.0, as without diagnosis. So has a turn with an excluded label.

    >>> turns = [
    ...     TurnDiagnosis(0, Label.PASS, "why", None),
    ...     TurnDiagnosis(1, Label.MISSING_TOOL_CALL, "why", None),
    ...     TurnDiagnosis(2, Label.MISSING_TOOL_CALL, "why", None, cascade=True),
    ...     TurnDiagnosis(3, Label.CHECKER_ERROR, "why", None),
    ... ]
    >>> turn_weights(turns, UTILITIES, WeightConfig(scope="turn", cascade_share=0.5))
    (1.0, 1.5, 1.25, 1.0)
    """
    weights = []
    for turn in turns:
        if turn.label in EXCLUDED:
            weights.append(1.0)
        else:
            share = turn_mass(turn, config.cascade_share)
            weights.append(_clip(share * utilities[turn.label] + (1 - share), config))
    return tuple(weights)


def batch_weights(
    rollouts: Sequence[Rollout],
    groups: Sequence[str],
    utilities: Mapping[Label, float],
    config: WeightConfig,
    seed: str = "",
) -> list[tuple[float, ...]]:
    """For each rollout of a batch, in order, one weight for each of its turns.

    In scope "trajectory" the weight is repeated for every turn. A rollout without turns has the
    single weight 1.0. With `normalize` "group" or "batch", weights are divided by the mean of the
    rollouts' mean weights there; they are not clipped again. Rollouts with advantages of both signs
    count for this mean. "balanced" needs the advantages, so it comes later.

    Args:
        rollouts: Their turns and rewards are read.
        groups: The GRPO group of each rollout, e.g. the id of its prompt.
        utilities: rho(z) > 0 of this round.
        config: Bounds and variants.
        seed: For assignment "shuffled"; another one for each batch.

    Raises:
        ValueError: The number of groups is not that of the rollouts.

    The weights 1.0 and 1.5 have the mean 1.25:

    >>> passed = tuple(TurnDiagnosis(turn, Label.PASS, "why", None) for turn in (0, 1))
    >>> skipped = TurnDiagnosis(0, Label.MISSING_TOOL_CALL, "why", None)
    >>> batch = [
    ...     Rollout("task_7", "base", 1.0, 1.0, passed),
    ...     Rollout("task_7", "base", 0.0, 0.0, (skipped,)),
    ... ]
    >>> batch_weights(batch, ["task_7", "task_7"], UTILITIES, WeightConfig())
    [(1.0, 1.0), (1.5,)]
    >>> batch_weights(batch, ["task_7", "task_7"], UTILITIES, WeightConfig(normalize="group"))
    [(0.8, 0.8), (1.2,)]
    """
    if len(groups) != len(rollouts):
        raise ValueError(
            f"expected a group for each of {len(rollouts)} rollouts, got {len(groups)}"
        )
    counted = [weighed_turns(rollout, config) for rollout in rollouts]
    if config.scope == "turn":
        weights = [turn_weights(turns, utilities, config) or (1.0,) for turns in counted]
    else:
        own = [trajectory_weight(turns, utilities, config) for turns in counted]
        if config.assignment == "shuffled":
            random.Random(seed).shuffle(own)
        elif config.assignment == "mean" and own:
            own = [fmean(own)] * len(own)
        weights = [
            (weight,) * max(1, len(turns)) for weight, turns in zip(own, counted, strict=True)
        ]
    if config.normalize in ("none", "balanced"):
        return weights
    pools = groups if config.normalize == "group" else ["batch"] * len(groups)
    means: dict[str, list[float]] = {}
    for pool, by_turn in zip(pools, weights, strict=True):
        means.setdefault(pool, []).append(fmean(by_turn))
    divisors = {pool: fmean(values) for pool, values in means.items()}
    return [
        tuple(weight / divisors[pool] for weight in by_turn)
        for pool, by_turn in zip(pools, weights, strict=True)
    ]


def applies(advantage: float, config: WeightConfig) -> bool:
    """Whether an advantage is weighted: all of them, or those of one sign.

    >>> applies(-0.5, WeightConfig()), applies(-0.5, WeightConfig(applies_to="positive"))
    (True, False)
    """
    if config.applies_to == "all":
        return True
    return advantage > 0 if config.applies_to == "positive" else advantage < 0


def _clip(weight: float, config: WeightConfig) -> float:
    return min(max(weight, config.w_min), config.w_max)
