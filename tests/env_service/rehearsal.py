"""What other calls than the reference's do in one turn, found out by running them.

In: a task, then calls for one of its turns. Out: which tool classes end up in another state, how
many results of the reference are missing, which calls give an error. It is written without the
verifier, so that tests can hold the verifier against it.
"""

import pickle
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from env_service.environments.bfcl.execution import ToolExecutor, error_of
from env_service.environments.bfcl.tasks import BfclTask, reference_calls, tool_owner
from seal.formats import ToolCall


@dataclass(frozen=True)
class Outcome:
    """What a turn's calls do after a reference that was followed up to there."""

    differing: frozenset[str]
    """Tool classes with a public attribute that is not as the reference leaves it."""
    missing: Counter[str]
    """Results of the reference that are not among those of the episode so far."""
    new_errors: frozenset[int]
    """Calls, by place, whose error the reference does not get as well."""

    @property
    def failed(self) -> bool:
        """Whether the official checks refuse it."""
        return bool(self.differing or self.missing)


class Rehearsal:
    """A task's reference, run once, with a copy of the world at the start of each turn."""

    def __init__(self, task: BfclTask) -> None:
        self.task = task
        self.program = reference_calls(task)
        world = ToolExecutor(task)
        # Pickled: four times as fast as copy.deepcopy, most of all where there is a `Random`.
        self._starts = [pickle.dumps(world)]
        self._ends: list[ToolExecutor] = []
        self._results: list[list[str]] = []
        for turn, calls in enumerate(self.program):
            self._results.append(self._run(world, turn, calls))
            self._starts.append(pickle.dumps(world))
            self._ends.append(pickle.loads(self._starts[-1]))

    def play(self, turn: int, calls: Sequence[ToolCall]) -> Outcome:
        """Run other calls in a turn."""
        world: ToolExecutor = pickle.loads(self._starts[turn])
        results = self._run(world, turn, calls)
        wanted = self._results[turn]
        so_far = Counter(text for earlier in self._results[:turn] for text in earlier)
        known = self.reference_of(turn)
        return Outcome(
            differing=frozenset(
                name
                for name, instance in world.instances.items()
                if _public(instance) != _public(self._ends[turn].instances[name])
            ),
            missing=Counter(wanted) - so_far - Counter(results),
            new_errors=frozenset(
                place
                for place, one in enumerate(zip(calls, results, strict=True))
                if error_of(one[1]) is not None and one not in known
            ),
        )

    def reference_of(self, turn: int) -> list[tuple[ToolCall, str]]:
        """The reference's calls of a turn with their results."""
        return [*zip(self.program[turn], self._results[turn], strict=True)]

    def classes(self, calls: Sequence[ToolCall]) -> set[str]:
        """Tool classes that calls belong to."""
        return {owner for call in calls if (owner := tool_owner(self.task, call.name))}

    def schema(self, call: ToolCall) -> Mapping[str, Any]:
        """The schema of a call's arguments, from its tool's doc."""
        parameters: Mapping[str, Any] = self.task.docs_at(len(self.program))[call.name]["function"][
            "parameters"
        ]
        return parameters

    def _run(self, world: ToolExecutor, turn: int, calls: Sequence[ToolCall]) -> list[str]:
        available = self.task.docs_at(turn).keys()
        return [world.execute(call, available) for call in calls]


def _public(instance: object) -> dict[str, Any]:
    return {name: value for name, value in vars(instance).items() if not name.startswith("_")}
