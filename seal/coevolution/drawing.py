"""Which synthetic tasks a training round gets: those that invite the policy's failures.

In: the failure profile C_t, and the labels that each task of a pool invites (its targets). Out: a
weight for each task, and the tasks of a step. `seal.train.synthetic` draws, and `seal.train.state`
has the scores made anew.

    score(l)  = prevalence(l) * (1 - mean reward of the trajectories with l), divided by their sum
    weight(i) = 1 + steering * sum of score(l) over the targets l of task i

so a weight is between 1 and 1 + steering. Prevalence and mean reward are those of C_t
(`seal.coevolution.profile`), made of the trajectories of real tasks in every round that has any: a
synthetic task that was drawn for a label would raise its prevalence, and so be drawn more often.

>>> from seal.coevolution.profile import profile_of
>>> from seal.coevolution.rollout import Rollout
>>> from seal.wire import TurnDiagnosis
>>> failed, skipped = (
...     Rollout("a", "base", 0.0, 0.0, (TurnDiagnosis(0, label, "why", None),))
...     for label in (Label.STATE_MISMATCH, Label.MISSING_TOOL_CALL)
... )
>>> scores = scores_of(profile_of(1, [failed, failed, failed, skipped]))
>>> scores == {Label.STATE_MISMATCH: 0.75, Label.MISSING_TOOL_CALL: 0.25}
True
>>> weights(scores, [(Label.STATE_MISMATCH,), (), tuple(scores)], steering=4.0)
[4.0, 1.0, 5.0]

**The draw.** Tasks are drawn without replacement in passes over the pool. In a pass, task i has the
key log(u_i) / w_i with u_i uniform in (0, 1), and the tasks come by descending key, which draws one
after the other with probabilities in proportion to the weights (Efraimidis and Spirakis, 2006).
The u_i depend on seed, step and pass alone, so a step's tasks do not depend on how often it asks.
A pass ends when every task has been drawn, or, with weights that differ, when half of them have:
the other half are those that C_t wants least, and they would come next whatever it wants.
"""

import math
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, TypeAlias

from seal.coevolution.checks import json_fields
from seal.coevolution.profile import FailureProfile, ProfileHistory, ProfileWindow
from seal.coevolution.rollout import Rollout
from seal.labels import FAILURES, Label

Choice: TypeAlias = Literal["failures", "shuffled"]
Scores: TypeAlias = Mapping[Label, float]
"""Labels with a score above 0; the scores add up to 1. Empty: nothing has failed."""


def scores_of(profile: FailureProfile) -> dict[Label, float]:
    """How much each failure is wanted: frequent and unsolved ones most."""
    wanted = {
        label: profile.prevalence(label) * (1 - profile.by_label[label].mean_reward)
        for label in FAILURES
        if label in profile.by_label
    }
    # By rounding, a mean reward may be slightly above 1.
    wanted = {label: value for label, value in wanted.items() if value > 0}
    total = math.fsum(wanted.values())
    return {label: value / total for label, value in wanted.items()}


def steering_rollouts(rollouts: Sequence[Rollout]) -> Sequence[Rollout]:
    """The rollouts of a round that scores are made from: of real tasks if there are any."""
    return [rollout for rollout in rollouts if not rollout.synthetic] or rollouts


def weights(scores: Scores, targets: Iterable[Iterable[Label]], steering: float) -> list[float]:
    """The weight of each task, in the order of `targets`, each in [1, 1 + steering]."""
    return [
        1 + steering * min(1.0, math.fsum(scores.get(label, 0.0) for label in {*labels}))
        for labels in targets
    ]


def dealt_out(targets: Sequence[tuple[Label, ...]], seed: int) -> list[tuple[Label, ...]]:
    """The control `shuffled`: every task gets the targets of another one, all of them used once."""
    return random.Random(f"{seed}/targets").sample(targets, k=len(targets))


@dataclass(frozen=True)
class Drawn:
    """What has been drawn from a pool so far."""

    passes: int = 0
    """Passes that have ended."""
    tasks: tuple[int, ...] = ()
    """Numbers of the tasks drawn in this pass, in order."""


@dataclass(frozen=True)
class Drawing:
    """A run's drawing from its pool between two rounds, as a checkpoint keeps it."""

    pool_sha256: str
    """Of the pool whose tasks are numbered."""
    drawn: Drawn = field(default_factory=Drawn)
    """What has been drawn."""
    scores: Scores = field(default_factory=dict)
    """What the next tasks are drawn with."""
    history: ProfileHistory = field(default_factory=ProfileHistory)
    """Profiles of `steering_rollouts`, as far as C_t looks back; empty without steering."""

    def after(self, profile: FailureProfile, window: ProfileWindow, refresh: int) -> "Drawing":
        """The drawing after a round, with new scores every `refresh` rounds.

        `profile` is that of the round's `steering_rollouts`; its version is the round's number.
        """
        history = self.history.after(profile, window)
        scores = self.scores if profile.version % refresh else scores_of(history.window)
        return replace(self, history=history, scores=scores)

    def to_json(self) -> dict[str, Any]:
        """The drawing as JSON values."""
        return {
            "pool_sha256": self.pool_sha256,
            "drawn": asdict(self.drawn),
            "scores": {label.value: score for label, score in self.scores.items()},
            "history": self.history.to_json(),
        }

    @classmethod
    def from_json(cls, data: object) -> "Drawing":
        """Read what `to_json` wrote.

        Raises:
            ValueError: A field is missing, unknown or of the wrong kind.
        """
        names = ("pool_sha256", "drawn", "scores", "history")
        values = json_fields(data, names, "drawing")
        drawn = json_fields(values["drawn"], ("passes", "tasks"), "drawing.drawn")
        try:
            return cls(
                pool_sha256=str(values["pool_sha256"]),
                drawn=Drawn(int(drawn["passes"]), tuple(map(int, drawn["tasks"]))),
                scores={Label(name): float(score) for name, score in values["scores"].items()},
                history=ProfileHistory.from_json(values["history"]),
            )
        except (TypeError, AttributeError) as error:
            raise ValueError(f"drawing: {type(error).__name__}: {error}") from None


def draw(
    drawn: Drawn, task_weights: Sequence[float], count: int, seed: int, step: int
) -> tuple[list[int], Drawn]:
    """Draw tasks.

    Args:
        drawn: What was drawn before.
        task_weights: The weight of each task of the pool, above 0; at least one.
        count: How many to draw.
        seed: Of the run.
        step: Training step, from 1.

    Returns:
        Numbers of the tasks, and what has been drawn now. Drawing a and then b tasks of a step is
        drawing a + b.
    """
    size = len(task_weights)
    end = size if len(set(task_weights)) == 1 else math.ceil(size / 2)
    tasks: list[int] = []
    while len(tasks) < count:
        # A new weight may make a pass shorter than it is.
        if len(drawn.tasks) >= end:
            drawn = Drawn(drawn.passes + 1)
        before = {*drawn.tasks}
        keys = _keys(task_weights, f"{seed}/{step}/{drawn.passes}")
        left = sorted((i for i in range(size) if i not in before), key=lambda i: -keys[i])
        some = left[: min(count - len(tasks), end - len(before))]
        tasks += some
        drawn = Drawn(drawn.passes, (*drawn.tasks, *some))
    return tasks, drawn


def _keys(task_weights: Sequence[float], seed: str) -> list[float]:
    rng = random.Random(seed)
    # 1 - random() is in (0, 1].
    return [math.log(1 - rng.random()) / weight for weight in task_weights]
