"""A world of two tools, a lamp and a counter: the template for a new environment.

In: task ids toy_lamp and toy_mixed. Out: episodes of the protocol that all environments share. A
new environment supplies what this file supplies: tasks, docs, `execute` and `verify`. The lamp is
checked as state, the counter's total as a response. Fast tests use this environment too.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from env_service.environments.base import EpisodeOptions, SelfCheckFailed, UnknownSplit, UnknownTask
from env_service.environments.dialogue import (
    StepRecord,
    ToolResult,
    TurnDialogue,
    Verdict,
    call_evidence,
    fault_evidence,
    run_calls,
    turn_progress,
)
from seal.coevolution.diagnosis import TurnEvidence
from seal.formats import ToolCall
from seal.wire import Message, ToolDoc

STEP_LIMIT = 4
"""Steps with calls that a turn may have."""


@dataclass(frozen=True)
class ToyTask:
    """One task of the toy world."""

    task_id: str
    """Its id."""
    turns: tuple[str, ...]
    """What the user says in each turn."""
    reference: tuple[tuple[ToolCall, ...], ...]
    """Calls that solve each turn."""


TASKS: Mapping[str, ToyTask] = {
    task.task_id: task
    for task in (
        ToyTask(
            task_id="toy_lamp",
            turns=("Switch the lamp on.",),
            reference=((ToolCall("switch_lamp", {"on": True}),),),
        ),
        ToyTask(
            task_id="toy_mixed",
            turns=("Add 3 to the counter.", "How are you?", "Lamp on, and 1 more on the counter."),
            reference=(
                (ToolCall("add", {"amount": 3}),),
                (),
                (ToolCall("switch_lamp", {"on": True}), ToolCall("add", {"amount": 1})),
            ),
        ),
    )
}


def _doc(name: str, description: str, argument: str, type_name: str) -> ToolDoc:
    properties = {argument: {"type": type_name, "description": f"The {argument} argument."}}
    parameters = {"type": "dict", "properties": properties, "required": [argument]}
    return {
        "type": "function",
        "function": {"name": name, "description": description, "parameters": parameters},
    }


DOCS: Mapping[str, ToolDoc] = {
    "switch_lamp": _doc("switch_lamp", "Switch the lamp on or off.", "on", "boolean"),
    "add": _doc("add", "Add to the counter and return its total.", "amount", "integer"),
}


class ToyWorld:
    """The state of one episode."""

    def __init__(self) -> None:
        self.lamp = False
        self.counter = 0

    def execute(self, call: ToolCall) -> ToolResult:
        """Run one call; if anything is wrong with it, the result is an error."""
        match call.name, call.arguments:
            case "switch_lamp", {"on": bool(on)} if len(call.arguments) == 1:
                self.lamp = on
                return ToolResult(f'{{"lamp": "{"on" if on else "off"}"}}', None)
            case "add", {"amount": int(amount)} if len(call.arguments) == 1:
                self.counter += amount
                return ToolResult(f'{{"total": {self.counter}}}', None)
        text = '{"error": "no such tool, or arguments that it does not take"}'
        return ToolResult(text, text)


class ToyEpisode(TurnDialogue):
    """One live episode."""

    def __init__(self, task: ToyTask, options: EpisodeOptions) -> None:
        super().__init__(task.task_id, "toy", options, STEP_LIMIT)
        self._task = task
        self._world = ToyWorld()

    def turn_count(self) -> int:
        """Number of turns of the task."""
        return len(self._task.turns)

    def user_messages(self, turn: int, revealed: Sequence[ToolDoc]) -> Sequence[Message]:
        """What the user says."""
        return [{"role": "user", "content": self._task.turns[turn]}]

    def docs(self) -> Sequence[ToolDoc]:
        """Both tools."""
        return tuple(DOCS.values())

    def available_docs(self, turn: int) -> Mapping[str, ToolDoc]:
        """Both tools, in every turn."""
        return DOCS

    def execute(self, call: ToolCall, turn: int) -> ToolResult:
        """Run a call on the live world."""
        return self._world.execute(call)

    def verify(self, turns: Sequence[Sequence[StepRecord]], truncated: bool) -> Verdict:
        """Judge a replay of the episode against a replay of the reference."""
        return verify(self._task, turns, truncated)


def verify(task: ToyTask, turns: Sequence[Sequence[StepRecord]], truncated: bool) -> Verdict:
    """Verdict and evidence, on fresh worlds."""
    model, reference = ToyWorld(), ToyWorld()
    checked: list[tuple[TurnEvidence, bool]] = []
    complete = len(turns) == len(task.turns)
    for index, steps in enumerate(turns):
        wrong_lamp = model.lamp != reference.lamp
        wrong_counter = model.counter != reference.counter
        executed = [
            (step, call, result)
            for step, record in enumerate(steps)
            for call, result in run_calls(record, model.execute)
        ]
        called = [call for _, call, _ in executed]
        seen = [result.text for _, _, result in executed]
        wanted = [(call, reference.execute(call).text) for call in task.reference[index]]
        missing = [call for call, text in wanted if text not in seen]
        # A wrong total is carried over if the counter was wrong before and the call is right.
        carried = [
            call for call in missing if call.name == "add" and wrong_counter and call in called
        ]
        differences = ("ToyWorld.lamp",) if model.lamp != reference.lamp else ()
        cut = truncated and not complete and index == len(turns) - 1
        evidence = TurnEvidence(
            turn=index,
            reference_calls=bool(wanted),
            parse_faults=fault_evidence(steps),
            calls=tuple(
                call_evidence(step, call, DOCS.get(call.name), result.error)
                for step, call, result in executed
            ),
            state_differences=() if wrong_lamp else differences,
            missing_responses=tuple(call.name for call in missing if call not in carried),
            carried_differences=differences if wrong_lamp else (),
            carried_missing=tuple(call.name for call in carried),
            model_classes=frozenset({"ToyWorld"} if executed else ()),
            reference_classes=frozenset({"ToyWorld"} if wanted else ()),
            truncated=cut,
            checker_error=None,
            reference_error=None,
        )
        accepted = not wanted or (bool(executed) and not missing and not differences)
        checked.append((evidence, accepted and not cut))
    return Verdict(
        accuracy=float(complete and all(accepted for _, accepted in checked)),
        evidence=tuple(evidence for evidence, _ in checked),
        progress=turn_progress([bool(calls) for calls in task.reference], checked),
    )


class ToyEnvironment:
    """Both tasks."""

    def task_ids(self, split: str) -> Sequence[str]:
        """Task ids of "all", "train" or "val"."""
        splits = {"all": tuple(TASKS), "train": ("toy_lamp",), "val": ("toy_mixed",)}
        if split not in splits:
            raise UnknownSplit(f"unknown split {split!r} of toy; known splits: {', '.join(splits)}")
        return splits[split]

    def create(self, task_id: str, options: EpisodeOptions) -> ToyEpisode:
        """Make an episode of a task."""
        if task_id not in TASKS:
            raise UnknownTask(f"unknown toy task {task_id!r}; known tasks: {', '.join(TASKS)}")
        return ToyEpisode(TASKS[task_id], options)

    def self_check(self) -> None:
        """Replay both references."""
        for task in TASKS.values():
            turns = [[StepRecord(calls, ())] for calls in task.reference]
            if verify(task, turns, truncated=False).accuracy != 1.0:
                raise SelfCheckFailed(f"toy: the reference of {task.task_id} does not pass")
