"""The official verdict on an episode, and the evidence for its labels.

In: a task and what the assistant asked for, turn by turn. Out: accuracy as bfcl-eval's
multi_turn_checker decides it, and one `TurnEvidence` for each turn in which the assistant spoke,
not only up to the first failure.

The assistant's calls and the reference are both replayed on fresh instances, so the live episode
does not change. The comparisons are bfcl_eval's own state_checker and response_checker.

The rules of the verdict: the assistant must have spoken in every turn of the task. A turn without
reference calls is not checked. A turn with reference calls needs at least one executed call, every
public attribute equal to the reference's, and every result of the reference among all results of
the assistant so far.

A limit (the step limit, or the policy's token budget) that ends the episode in the task's last turn
does not change these rules: bfcl-eval's loop writes down the turn that it cuts, and its checker
then judges the whole file. A limit in an earlier turn fails the task, because later turns are
missing. A last turn in which the assistant never spoke also fails the task, with or without
reference calls: bfcl-eval asks the model at least once in each turn that it writes down, so such a
turn is missing in its file, and it fails every file with fewer turns than the reference. That the
policy ran out of tokens is not known here: `TurnDialogue.evaluate` adds it to the evidence.

The evidence separates a failure from its consequences. After a failed turn, each later turn that
the checks refuse is replayed a second time, in the state that the reference leaves before it:

- If the turn passes there, everything wrong with it is carried over.
- If it fails there and every call returns what it returned in the episode, no earlier failure has
  reached the turn: what is wrong there is its own. The same holds if a call was broken (unreadable,
  unavailable, against its schema), because no state makes a call broken.
- Otherwise the policy may have acted on a state that the reference never has (another booking's id,
  a missing folder). Then these are carried over: an attribute that differed when the turn began,
  and a missing result if the same call was made in a tool class with such an attribute.
"""

from collections import Counter
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, replace

from bfcl_eval.eval_checker.multi_turn_eval.multi_turn_checker import (
    response_checker,
    state_checker,
)

from env_service.environments.base import CallStopped
from env_service.environments.bfcl.execution import EXCEPTION_PREFIX, ToolExecutor
from env_service.environments.bfcl.tasks import BfclTask, call_key, reference_calls, tool_owner
from env_service.environments.dialogue import (
    StepRecord,
    Verdict,
    call_evidence,
    fault_evidence,
    run_calls,
    turn_progress,
)
from seal.coevolution.diagnosis import CallEvidence, TurnEvidence
from seal.formats import ToolCall
from seal.wire import ToolDoc


def verify(task: BfclTask, turns: Sequence[Sequence[StepRecord]], truncated: bool) -> Verdict:
    """Judge an episode.

    Args:
        task: The task.
        turns: Steps of each turn in which the assistant spoke, from turn 0 on.
        truncated: The last of these turns hit the step limit.
    """
    walk = _Walk(task)
    complete = len(turns) == len(task.turns)
    cut = len(turns) - 1 if truncated and not complete else None
    checked = [walk.turn(index, steps, index == cut) for index, steps in enumerate(turns)]
    passed = complete and all(turn.passed for turn in checked)
    return Verdict(
        accuracy=1.0 if passed else 0.0,
        evidence=tuple(turn.evidence for turn in checked),
        progress=turn_progress(
            [bool(calls) for calls in task.reference],
            [(turn.evidence, turn.passed) for turn in checked],
        ),
    )


@dataclass(frozen=True)
class _CheckedTurn:
    passed: bool
    """The official checks accept this turn, and no step limit prevented later turns."""
    evidence: TurnEvidence
    """What the turn has shown."""
    results: tuple[str, ...]
    """What its calls returned."""


@dataclass(frozen=True)
class _Executed:
    call: ToolCall
    result: str
    error: str | None
    """The result if it reports an error, else None."""
    step: int
    """Index of the step within the turn; 0 for the reference."""


@dataclass(frozen=True)
class _Blame:
    """What is wrong after a turn: by its own doing, or carried over from earlier turns."""

    own_differences: frozenset[str]
    """Attributes that differ because of this turn, as Class.attribute."""
    carried_differences: frozenset[str]
    """Attributes that differ because of earlier turns."""
    own_missing: tuple[str, ...]
    """Tool of each result of the reference that the assistant has not seen because of this turn."""
    carried_missing: tuple[str, ...]
    """Tool of each such result that is missing because of earlier turns."""


@dataclass(frozen=True)
class _Comparison:
    differing: frozenset[str]
    """Public attributes that differ from the reference's, as Class.attribute."""
    missing: tuple[str, ...]
    """Results of the reference that the assistant has not seen so far."""
    checker_error: str | None
    """What bfcl_eval's checker raised, if anything."""


class _Walk:
    """Replays an episode and its reference side by side."""

    def __init__(self, task: BfclTask) -> None:
        self._task = task
        self._reference = reference_calls(task)
        self._every_tool = task.docs_at(len(task.turns)).keys()
        self._model_side = ToolExecutor(task)
        self._reference_side = ToolExecutor(task)
        self._model_results: list[str] = []  # of all turns so far: the official check needs them
        self._carried: frozenset[str] = frozenset()  # attributes that differed after the last turn
        self._failed = False  # an earlier turn failed, also if the checks do not look at it

    def turn(self, index: int, steps: Sequence[StepRecord], truncated: bool) -> _CheckedTurn:
        """Replay and check one turn."""
        docs = self._task.docs_at(index)
        executed = _run(self._model_side, steps, docs.keys())
        self._model_results += [run.result for run in executed]
        wanted = self._follow(self._reference_side, index)
        compared = self._compare(index, [run.result for run in wanted])
        agrees = not compared.differing and not compared.missing and compared.checker_error is None
        passed = (not wanted or (bool(executed) and agrees)) and not truncated
        blame = self._blame(index, steps, compared, wanted, executed)
        evidence = TurnEvidence(
            turn=index,
            reference_calls=bool(wanted),
            parse_faults=fault_evidence(steps),
            calls=tuple(
                self._call_evidence(index, run, docs.get(run.call.name)) for run in executed
            ),
            state_differences=tuple(sorted(blame.own_differences)),
            missing_responses=blame.own_missing,
            carried_differences=tuple(sorted(blame.carried_differences)),
            carried_missing=blame.carried_missing,
            model_classes=self._classes(run.call for run in executed if run.call.name in docs),
            reference_classes=self._classes(run.call for run in wanted),
            truncated=truncated,
            checker_error=compared.checker_error,
            reference_error=_raised(wanted),
        )
        self._carried = compared.differing
        spurious = bool(executed) and not wanted
        self._failed = self._failed or not passed or spurious or bool(compared.differing)
        return _CheckedTurn(passed, evidence, tuple(run.result for run in executed))

    def _follow(self, side: ToolExecutor, index: int) -> list[_Executed]:
        """Run the reference of a turn; it may call a tool that is not yet revealed."""
        return _run(side, [StepRecord(self._reference[index], ())], self._every_tool)

    def _call_evidence(self, index: int, run: _Executed, doc: ToolDoc | None) -> CallEvidence:
        evidence = call_evidence(run.step, run.call, doc, run.error)
        # Four references give a ticket's id as a string; the doc requires an integer.
        as_reference = call_key(run.call) in map(call_key, self._reference[index])
        return replace(evidence, violations=()) if as_reference else evidence

    def _blame(
        self,
        index: int,
        steps: Sequence[StepRecord],
        compared: _Comparison,
        wanted: Sequence[_Executed],
        executed: Sequence[_Executed],
    ) -> _Blame:
        """Separate a turn's own failures from those of earlier turns."""
        missing = _without_result(compared.missing, wanted, executed)
        alone = None
        if self._failed and wanted and executed and (compared.differing or missing):
            alone = self._alone(index, steps)
        if alone is not None and alone.passed:
            return _Blame(frozenset(), compared.differing, (), _tools(missing))
        carried = compared.differing & self._carried
        if alone is not None and _untouched(alone, executed):
            carried -= frozenset(alone.evidence.state_differences)
            of_alone = alone.evidence.missing_responses
            ordered = sorted(missing, key=lambda run: run.call.name not in of_alone)
            own, left = ordered[: len(of_alone)], ordered[len(of_alone) :]
        else:
            own = [run for run in missing if not self._is_consequence(run.call, executed)]
            left = [run for run in missing if self._is_consequence(run.call, executed)]
        return _Blame(compared.differing - carried, carried, _tools(own), _tools(left))

    def _alone(self, index: int, steps: Sequence[StepRecord]) -> _CheckedTurn | None:
        """The same turn, replayed in the state that the reference leaves before it."""
        walk = _Walk(self._task)
        for earlier in range(index):
            followed = walk._follow(walk._model_side, earlier)
            walk._model_results += [run.result for run in followed]
            walk._follow(walk._reference_side, earlier)
        try:
            return walk.turn(index, steps, truncated=False)
        except CallStopped:
            return None  # a call may have more to do there than in the episode

    def _compare(self, index: int, wanted: list[str]) -> _Comparison:
        """bfcl_eval's two checks; the state check runs class by class, so that it names all."""
        differing: set[str] = set()
        model, reference = self._model_side.instances, self._reference_side.instances
        try:
            for name in self._task.involved_classes:
                state = state_checker({name: model[name]}, {name: reference[name]})
                if not state["valid"]:
                    differing.update(f"{name}.{key}" for key in state["details"]["differences"])
            responses = response_checker(self._model_results, wanted, index)
        except Exception as error:  # the named border: a checker that fails gives no verdict
            fault = f"{type(error).__name__}: {error}"
            return _Comparison(frozenset(differing), (), fault)
        missing = () if responses["valid"] else tuple(responses["details"]["missing_items"])
        return _Comparison(frozenset(differing), missing, None)

    def _is_consequence(self, call: ToolCall, executed: Sequence[_Executed]) -> bool:
        """The call was made, but an earlier turn left its tool class in another state."""
        carried_classes = {attribute.split(".")[0] for attribute in self._carried}
        calls = {call_key(run.call) for run in executed}
        return tool_owner(self._task, call.name) in carried_classes and call_key(call) in calls

    def _classes(self, calls: Iterable[ToolCall]) -> frozenset[str]:
        owners = (tool_owner(self._task, call.name) for call in calls)
        return frozenset(owner for owner in owners if owner is not None)


def _run(
    executor: ToolExecutor, steps: Sequence[StepRecord], available: Set[str]
) -> list[_Executed]:
    return [
        _Executed(call, result.text, result.error, step)
        for step, record in enumerate(steps)
        for call, result in run_calls(record, lambda call: executor.result(call, available))
    ]


def _without_result(
    missing: Sequence[str], wanted: Sequence[_Executed], executed: Sequence[_Executed]
) -> list[_Executed]:
    """The reference's calls whose results are missing.

    If several calls return the same text and only some of these texts are missing, calls whose tool
    was not called come first: the assistant cannot have seen their results.
    """
    called = {run.call.name for run in executed}
    left = Counter(missing)
    calls = []
    for run in sorted(wanted, key=lambda candidate: candidate.call.name in called):
        if left[run.result]:
            left[run.result] -= 1
            calls.append(run)
    return calls


def _tools(calls: Iterable[_Executed]) -> tuple[str, ...]:
    return tuple(run.call.name for run in calls)


def _untouched(alone: _CheckedTurn, executed: Sequence[_Executed]) -> bool:
    """Whether no earlier failure can have changed the turn."""
    broken = alone.evidence.parse_faults or any(
        call.violations or not call.available for call in alone.evidence.calls
    )
    return bool(broken) or alone.results == tuple(run.result for run in executed)


def _raised(wanted: Sequence[_Executed]) -> str | None:
    """The first result of the reference that is an exception, if any."""
    results = (run.result for run in wanted)
    return next((text for text in results if text.startswith(EXCEPTION_PREFIX)), None)
