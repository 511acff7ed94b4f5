"""One attempt at a task: draw it, word it, hold something back, verify and compare it.

In: the sides of a split, the knobs, pools made before, and the number of an attempt. Out: a
`Candidate`, or the reason why there is none. An attempt depends on nothing but its number, so
attempts can be made in any order and by any process.
"""

import hashlib
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version

from env_service.environments.bfcl.demonstrations.variants import renamed
from env_service.environments.bfcl.synthesis.categories import task_of
from env_service.environments.bfcl.synthesis.filters import (
    EarlierPools,
    EvaluationSide,
    check_words,
    usable_seeds,
)
from env_service.environments.bfcl.synthesis.pool import Provenance
from env_service.environments.bfcl.synthesis.report import Origin
from env_service.environments.bfcl.synthesis.sampler import Program, Shape, sample
from env_service.environments.bfcl.synthesis.sides import Sides
from env_service.environments.bfcl.synthesis.targets import targets_of
from env_service.environments.bfcl.synthesis.verification import Execution, Refused, checked
from env_service.environments.bfcl.synthesis.wording import Request, fingerprint, request
from env_service.environments.bfcl.tasks import CATEGORIES, BfclTask, class_docs
from env_service.environments.bfcl.tool_classes import TOOL_CLASSES

AUTHOR = "sampler"


@dataclass(frozen=True)
class Knobs:
    """What is to be made."""

    seed: int = 1
    """Of every generator."""
    categories: tuple[str, ...] = CATEGORIES
    """Equally often."""
    classes: tuple[str, ...] = TOOL_CLASSES
    """Tool classes that a task may have."""
    turns: tuple[int, int] | None = None
    """Fewest and most turns that call tools; None for all that the seeds' side has."""
    calls: tuple[int, int] | None = None
    """The same of the calls of a turn."""
    indirect_share: float = 0.5
    """Probability that a value is said indirectly where it can be."""


@dataclass(frozen=True)
class Candidate:
    """A task that has passed every check, and is not yet in the pool."""

    task: BfclTask
    """The task; it gets its id when it is kept."""
    provenance: Provenance
    """Where it comes from."""


class Proposer:
    """Makes attempts.

    Args:
        sides: The side that lends the seeds, and the others.
        knobs: What is to be made.
        earlier: Pools that were made before and share nothing with this one: hash of each file of
            tasks, by the pool's name.
        earlier_tasks: All tasks of these pools.
    """

    def __init__(
        self,
        sides: Sides,
        knobs: Knobs,
        earlier: Mapping[str, str] | None = None,
        earlier_tasks: Sequence[BfclTask] = (),
    ) -> None:
        self.origin = Origin(sides.side, earlier or {})
        """What the report says of it."""
        base = [task for task in sides.lending if task.category == CATEGORIES[0]]
        wanted = set(knobs.classes)
        self.seeds = [
            task
            for task in usable_seeds(base, sides.others)
            if wanted.intersection(task.involved_classes)
        ]
        """Tasks whose worlds are used, in turn."""
        self._knobs = knobs
        self.split_sha256 = sides.split_sha256
        """Of the split's file."""
        self._evaluation = EvaluationSide(sides.others)
        self._earlier = EarlierPools(earlier_tasks)
        # As long as the tasks of this side are, unless the knobs say otherwise.
        counts = [[len(turn) for turn in task.reference if turn] for task in base]
        self._turn_counts = _within(knobs.turns, [len(turns) for turns in counts])
        self._call_counts = _within(knobs.calls, [count for turns in counts for count in turns])

    def attempt(self, number: int) -> Candidate | Refused:
        """Make one attempt."""
        try:
            return self._attempt(number)
        except Refused as reason:
            return reason

    def checked(self, task: BfclTask) -> Execution:
        """Compare a task with the other sides and earlier pools, and make all checks.

        Raises:
            Refused: One of them failed.
        """
        check_words(task)
        self._evaluation.check(task)
        self._earlier.check(task)
        return checked(task)

    def _attempt(self, number: int) -> Candidate:
        seed = self.seeds[number % len(self.seeds)]
        rng_seed = f"{self._knobs.seed}/{seed.task_id}/{number}"
        rng = random.Random(rng_seed)
        shape = self._shape(number, rng)
        world = _only(renamed(seed, rng), self._knobs.classes)
        program = sample(world, shape, rng)
        if program is None:
            raise Refused("the state has no use for so many calls")
        requests = [
            request(
                [step.call for step in steps],
                [step.indirect for step in steps],
                shape.indirect_share,
                rng,
            )
            for steps in program
        ]
        task = task_of(world, program, requests, shape.category, rng)
        if task is None:
            raise Refused("there is no value that can be given later")
        execution = self.checked(task)
        steps = [step for turn in program for step in turn]
        return Candidate(
            task,
            Provenance(
                author=AUTHOR,
                seed_task=seed.task_id,
                rng_seed=rng_seed,
                calls=shape.calls,
                indirect_share=shape.indirect_share,
                indirect_values=_indirect_values(program, requests),
                result_calls=sum(step.uses_result for step in steps),
                changing_calls=sum(step.changes for step in steps),
                targets=targets_of(task, execution),
                results_sha256=_sha256(json.dumps(execution.results)),
                split_sha256=self.split_sha256,
                wording_sha256=fingerprint(),
                bfcl_eval=version("bfcl_eval"),
            ),
        )

    def _shape(self, number: int, rng: random.Random) -> Shape:
        categories = self._knobs.categories
        # Seeds and categories both go round; every seed meets every category.
        category = categories[(number // len(self.seeds) + number) % len(categories)]
        turns = rng.choice(self._turn_counts)
        calls = tuple(rng.choice(self._call_counts) for _ in range(turns))
        return Shape(calls, category, self._knobs.indirect_share)


def _within(wanted: tuple[int, int] | None, counts: Sequence[int]) -> list[int]:
    """The counts within a range, or the range itself if none is."""
    if wanted is None:
        return sorted(counts)
    low, high = wanted
    within = sorted(count for count in counts if low <= count <= high)
    return within or list(range(low, high + 1))


def _only(task: BfclTask, classes: Sequence[str]) -> BfclTask:
    """The task's world without its other classes, and without what the task asks for."""
    kept = tuple(name for name in task.involved_classes if name in classes)
    return replace(
        task,
        turns=(),
        reference=(),
        involved_classes=kept,
        initial_config={
            name: task.initial_config[name] for name in kept if name in task.initial_config
        },
        tools=tuple(doc for name in kept for doc in class_docs(name)),
    )


def _indirect_values(program: Program, requests: Sequence[Request]) -> int:
    return sum(
        request.words[f"{argument}_{number}"] == phrase
        for request, steps in zip(requests, program, strict=True)
        for number, step in enumerate(steps)
        for argument, phrase in step.indirect.items()
    )


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
