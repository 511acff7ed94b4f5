"""Programs: calls that ran, drawn one by one from what the tools accept in their present state.

In: a training task, whose classes and initial state are used, and a `Shape`. Out: a `Program`.

The rule. Up to CANDIDATES calls are drawn, each of a tool that was used less than others, with
arguments of its source. Each runs on a copy of its tool's state; one that fails, or that neither
changes the state nor shows anything new, is out. One of the rest is kept, with weight
1 + RESULT_WEIGHT if it uses a value that an earlier result has shown + CHANGE_WEIGHT if it changes
the state. So programs depend on their own results, as people's do.
"""

import copy
import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from bfcl_eval.eval_checker.multi_turn_eval.multi_turn_checker import state_checker

from env_service.environments.bfcl.execution import EXCEPTION_PREFIX, ToolExecutor
from env_service.environments.bfcl.synthesis.sources import Memory, Source
from env_service.environments.bfcl.synthesis.tools import TOOLS
from env_service.environments.bfcl.tasks import BfclTask
from seal.formats import ToolCall

CANDIDATES = 8
"""Calls of which one is kept."""
DRAWS = 24
"""Draws that may be made to find them: many tools have no use in a given state."""
RESULT_WEIGHT = 6.0
"""Added for a value of an earlier result."""
CHANGE_WEIGHT = 1.0
"""Added for a changed state."""
EMPTY = ("", "None", "{}", "[]")
"""Results that show nothing."""


@dataclass(frozen=True)
class Shape:
    """How large and of what kind a task is to be: the knobs of its difficulty."""

    calls: tuple[int, ...]
    """Calls of each turn."""
    category: str
    """One of BFCL's categories."""
    indirect_share: float
    """Probability that a value is not said where "that booking" or a name is enough."""


@dataclass(frozen=True)
class Step:
    """One call of a program."""

    call: ToolCall
    """Name and arguments."""
    result: str
    """What it returned."""
    changes: bool
    """Whether it changed the state."""
    uses_result: bool
    """Whether an earlier result has shown one of its values."""
    indirect: Mapping[str, str]
    """Argument -> what can be said for it instead of its value."""


Program: TypeAlias = tuple[tuple[Step, ...], ...]
"""Steps by turn."""


def sample(task: BfclTask, shape: Shape, rng: random.Random) -> Program | None:
    """Draw a program; None if the state has no use for so many calls."""
    world = _World(task, rng)
    program = []
    for count in shape.calls:
        steps = []
        for _ in range(count):
            step = world.step()
            if step is None:
                return None
            steps.append(step)
        program.append(tuple(steps))
    return tuple(program)


def fails(result: str) -> bool:
    """Whether a result reports an error anywhere in it.

    BFCL's own convention sees an error only at the beginning.

    >>> fails('{"booking_status": false, "error": "Token expired"}')
    True
    >>> fails('{"file_content": "an error was found"}')
    False
    """
    quoted = ('"error"', "'error'", '"Error:', "'Error:")
    return result.startswith(EXCEPTION_PREFIX) or any(mark in result for mark in quoted)


def same_state(instances: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether bfcl-eval's own check finds the same state in two sets of tool instances."""
    return bool(state_checker(dict(instances), dict(other))["valid"])


@dataclass(frozen=True)
class _Tried:
    """A candidate that ran on a copy."""

    step: Step
    owner: str
    after: Any
    """The copy."""


class _World:
    """The live state of a program that grows."""

    def __init__(self, task: BfclTask, rng: random.Random) -> None:
        self._rng = rng
        self._executor = ToolExecutor(task)
        self._available = task.docs_at(len(task.turns)).keys()
        self._memory = Memory()
        self._source = Source(rng, self._memory)
        self._owners = {
            name: owner
            for owner in task.involved_classes
            for name in TOOLS[owner]
            if name in self._available
        }
        self._used: Counter[str] = Counter()

    def step(self) -> Step | None:
        """Make one more call; None if none was found."""
        tried: list[_Tried] = []
        for name in self._drawn():
            candidate = self._try(name)
            tried += [] if candidate is None else [candidate]
            if len(tried) == CANDIDATES:
                break
        if not tried:
            return None
        weights = [
            1 + RESULT_WEIGHT * candidate.step.uses_result + CHANGE_WEIGHT * candidate.step.changes
            for candidate in tried
        ]
        (kept,) = self._rng.choices(tried, weights)
        self._executor.instances[kept.owner] = kept.after
        call = kept.step.call
        self._memory.learn(TOOLS[kept.owner][call.name], call, kept.step.result)
        self._used[call.name] += 1
        return kept.step

    def _drawn(self) -> list[str]:
        names = list(self._owners)
        weights = [1 / (1 + self._used[name]) ** 2 for name in names]
        return self._rng.choices(names, weights, k=DRAWS)

    def _try(self, name: str) -> _Tried | None:
        owner = self._owners[name]
        tool, before = TOOLS[owner][name], self._executor.instances[owner]
        arguments = tool.arguments(self._source, before)
        if arguments is None:
            return None
        call = ToolCall(name, arguments)
        after = self._executor.instances[owner] = copy.deepcopy(before)
        result = self._executor.execute(call, self._available)
        self._executor.instances[owner] = before
        changes = not fails(result) and not same_state({owner: before}, {owner: after})
        idle = not changes and (result in EMPTY or result in self._memory.results)
        if fails(result) or idle:
            return None
        phrases = {key: self._memory.indirect(tool, key, value) for key, value in arguments.items()}
        step = Step(
            call=call,
            result=result,
            changes=changes,
            uses_result=self._memory.uses_result(arguments),
            indirect={key: text for key, text in phrases.items() if text is not None},
        )
        return _Tried(step, owner, after)
