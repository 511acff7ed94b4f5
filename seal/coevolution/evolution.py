"""Failure profile to learning interface: Omega_{t+1} = Evolve(Omega_t, C_t) (paper section 3.3).

In: the interface and the profile of the last round. Out: the next interface. The service evolves it
when the trainer sends a profile.

A part is active while certain failures are prevalent and unsolved:

| component | part | active while one of these is prevalent and unsolved |
|---|---|---|
| phi_schema | schema_cues | argument_mismatch, invalid_tool_call |
| phi_schema | affordance_cues | missing_tool_call |
| phi_err | recovery_feedback | recovery_failure, argument_mismatch, invalid_tool_call |
| phi_cap | guidelines | each failure label for itself, at most `max_guidelines` |

Prevalent and unsolved means (published configuration): the share among failed turns is at least
`min_prevalence`, the mean reward of the trajectories that carry the label is below
`max_mean_reward`, and there are at least `min_observations` such turns. So a part is switched off
when its failure is mastered. Guidelines are chosen by prevalence * (1 - mean reward).

With a binary reward every failure has a mean reward near 0, and a share of failures does not fall
as the policy improves. So by the published rule parts hardly ever go off. `prevalence_over` "turns"
is a variant of this project with what the paper says: the label's share among all turns of its kind
takes the place of its share among failed turns, measured on rollouts without cues where there are
enough (`FailureProfile.rate`).

`hysteresis` h > 0 is an addition of this project and off in its recipes. With it, parts change less
often from round to round. A part that is on stays on until its labels fall below the thresholds

    prevalence >= min_prevalence * (1 - h)        turns >= min_observations * (1 - h)
    mean reward < max_mean_reward + h * (1 - max_mean_reward)

The score of a guideline that is shown is multiplied by (1 + h) when guidelines are chosen. A chosen
guideline moves in front of another one only if its score is more than (1 + h) times as high.

Two choices of parts are controls of this project, which show what the diagnosis adds. "all" has
every part on from the first round. "random" draws, in each round, as many parts as the failures
would have switched on.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from seal.coevolution import texts
from seal.coevolution.checks import check_choice, check_share
from seal.coevolution.interface import Interface
from seal.coevolution.profile import FailureProfile
from seal.labels import FAILURES, Label

Choice: TypeAlias = Literal["failures", "all", "random"]
PrevalenceOver: TypeAlias = Literal["failures", "turns"]

_SCHEMA_LABELS = (Label.ARGUMENT_MISMATCH, Label.INVALID_TOOL_CALL)
_AFFORDANCE_LABELS = (Label.MISSING_TOOL_CALL,)
_RECOVERY_LABELS = (Label.RECOVERY_FAILURE, *_SCHEMA_LABELS)
_LARGE = 10**9
_ROUNDING = 1e-9
"""Tolerance of the thresholds, because statistics are floats."""


@dataclass(frozen=True)
class InterfaceConfig:
    """Which components may act, and when. The defaults are the published rule.

    Raises:
        ValueError: A threshold is out of its range; the message says which.
    """

    schema_cues: bool = True
    """Component phi_schema: marks in tool docs and the affordance cue."""
    static_schema_cues: bool = False
    """Marks in tool docs from the first round on, for any profile (the published file)."""
    recovery_feedback: bool = True
    """Component phi_err: hints after errors."""
    guidelines: bool = True
    """Component phi_cap: guidelines in the system message."""
    min_prevalence: float = 0.10
    """Least share of a label among failed turns, or among turns (`prevalence_over`), in [0, 1]."""
    max_mean_reward: float = 0.6
    """A label is mastered if its trajectories have this mean reward, in [0, 1]."""
    min_observations: int = 8
    """Least mass of turns with the label."""
    max_guidelines: int = 3
    """Most guidelines that are shown at once."""
    hysteresis: float = 0.0
    """How far the thresholds of an active part are relaxed, h in [0, 1); 0 as published."""
    prevalence_over: PrevalenceOver = "failures"
    """What prevalence is a share of: failed turns (published), or all turns of the label's kind."""
    choice: Choice = "failures"
    """What decides which parts are on: the failures (paper); "all" and "random" are controls."""
    seed: int = 0
    """Seed of choice "random"."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_share("min_prevalence", self.min_prevalence)
        check_share("max_mean_reward", self.max_mean_reward)
        if not 1 <= self.min_observations <= _LARGE:
            raise ValueError(
                f"min_observations must be in [1, {_LARGE}], got {self.min_observations}"
            )
        if not 0 <= self.max_guidelines <= _LARGE:
            raise ValueError(f"max_guidelines must be in [0, {_LARGE}], got {self.max_guidelines}")
        if not 0 <= self.hysteresis < 1:
            raise ValueError(f"hysteresis must be in [0, 1), got {self.hysteresis}")
        check_choice("prevalence_over", self.prevalence_over, PrevalenceOver)
        check_choice("choice", self.choice, Choice)
        if self.choice == "random" and self.hysteresis > 0:
            raise ValueError("choice random keeps no part on, so hysteresis must be 0")


def evolve(interface: Interface, profile: FailureProfile, config: InterfaceConfig) -> Interface:
    """The next interface; the same arguments give the same one.

    With a profile without any turn, all parts stay as they are, except that static ones go on.
    """
    evolved = _by_failures(interface, profile, config)
    if config.choice == "failures":
        return evolved
    parts = _parts(config)
    if config.choice == "random":
        random.Random(f"{config.seed} {profile.version}").shuffle(parts)
    guidelines = [part for part in parts if isinstance(part, Label)]
    surplus = guidelines[config.max_guidelines :]
    parts = [part for part in parts if part not in surplus]
    if config.choice == "random":
        parts = parts[: len(evolved.active())]
    return Interface(
        version=profile.version,
        schema_cues="schema_cues" in parts or config.static_schema_cues,
        affordance_cues="affordance_cues" in parts,
        recovery_feedback="recovery_feedback" in parts,
        guidelines=tuple(part for part in parts if isinstance(part, Label)),
    )


def _by_failures(
    interface: Interface, profile: FailureProfile, config: InterfaceConfig
) -> Interface:
    static = config.static_schema_cues
    if not profile.by_label:
        cued = interface.schema_cues or static
        return replace(interface, version=profile.version, schema_cues=cued)

    def presses(labels: Sequence[Label], active: bool) -> bool:
        return any(_prevalent_and_unsolved(label, active, profile, config) for label in labels)

    return Interface(
        version=profile.version,
        schema_cues=static
        or (config.schema_cues and presses(_SCHEMA_LABELS, interface.schema_cues)),
        affordance_cues=config.schema_cues
        and presses(_AFFORDANCE_LABELS, interface.affordance_cues),
        recovery_feedback=config.recovery_feedback
        and presses(_RECOVERY_LABELS, interface.recovery_feedback),
        guidelines=_chosen(interface.guidelines, profile, config) if config.guidelines else (),
    )


def largest(config: InterfaceConfig, length: Callable[[str], int]) -> Interface:
    """The longest interface that a recipe can show: every part, with the longest guidelines.

    `length` gives the length of a text, e.g. in tokens.

    >>> largest(InterfaceConfig(max_guidelines=1, schema_cues=False), len).active()
    ('recovery_feedback', 'guideline:argument_mismatch')
    """
    by_length = sorted(FAILURES, key=lambda label: -length(texts.GUIDELINES[label]))
    return Interface(
        version=1,
        schema_cues=config.schema_cues or config.static_schema_cues,
        affordance_cues=config.schema_cues,
        recovery_feedback=config.recovery_feedback,
        guidelines=tuple(by_length[: config.max_guidelines]) if config.guidelines else (),
    )


def _parts(config: InterfaceConfig) -> list[str | Label]:
    """Every part that the components allow; a label stands for its guideline."""
    parts: list[str | Label] = ["schema_cues", "affordance_cues"] if config.schema_cues else []
    parts += ["recovery_feedback"] if config.recovery_feedback else []
    return [*parts, *FAILURES] if config.guidelines else parts


def _prevalence(label: Label, profile: FailureProfile, config: InterfaceConfig) -> float:
    if config.prevalence_over == "turns":
        return profile.rate(label, config.min_observations)
    return profile.prevalence(label)


def _prevalent_and_unsolved(
    label: Label, active: bool, profile: FailureProfile, config: InterfaceConfig
) -> bool:
    """Whether a failure is prevalent and unsolved, by relaxed thresholds if its part is active."""
    seen = profile.by_label.get(label)
    if seen is None:
        return False
    slack = config.hysteresis if active else 0.0
    mastered = config.max_mean_reward + slack * (1 - config.max_mean_reward)
    return (
        seen.turns >= config.min_observations * (1 - slack) - _ROUNDING
        and _prevalence(label, profile, config) >= config.min_prevalence * (1 - slack) - _ROUNDING
        and seen.mean_reward < mastered - _ROUNDING
    )


def _chosen(
    shown: Sequence[Label], profile: FailureProfile, config: InterfaceConfig
) -> tuple[Label, ...]:
    """Failures whose guideline is shown next, the most urgent first."""
    scores = {
        label: _prevalence(label, profile, config) * (1 - profile.by_label[label].mean_reward)
        for label in FAILURES
        if _prevalent_and_unsolved(label, label in shown, profile, config)
    }
    ahead = 1 + config.hysteresis
    weighted = {label: scores[label] * (ahead if label in shown else 1) for label in scores}
    # Sorting is stable: among equals, shown guidelines come first, then labels of higher priority.
    ranked = sorted(scores, key=lambda label: (-weighted[label], label not in shown))
    chosen = ranked[: config.max_guidelines]
    kept = [label for label in shown if label in chosen]
    placed: list[Label] = []
    for label in (*kept, *(label for label in chosen if label not in kept)):
        place = len(placed)
        while place > 0 and scores[label] > scores[placed[place - 1]] * ahead:
            place -= 1
        placed.insert(place, label)
    return tuple(placed)
