"""What a policy can get wrong in a task: the labels that its shape invites.

In: a task that was verified, and its execution. Out: labels. They are computed from what the
reference does, not from words. That a shape really brings its label out is a hypothesis; measured
labels, by target, will show it.

| label | shape |
|---|---|
| state_mismatch | a turn of two or more calls that changes the state |
| argument_mismatch | a call with three or more required arguments, or with a nested one |
| missing_tool_call | a turn of three or more calls |
| instance_mismatch | a turn with calls of two classes |
| response_mismatch | a turn that only reads, with a value of an earlier result |
| recovery_failure | without an earlier call of its turn, a call reports an error |
| spurious_tool_call | a turn that must be left alone: miss_func, miss_param |
| invalid_tool_call | a tool that is held out, or three classes of tools |
"""

from collections.abc import Iterable, Iterator

from env_service.environments.bfcl.demonstrations.variants import leaves
from env_service.environments.bfcl.execution import ToolExecutor
from env_service.environments.bfcl.synthesis.sampler import fails
from env_service.environments.bfcl.synthesis.sources import Leaf, content_of, values_of
from env_service.environments.bfcl.synthesis.verification import Execution
from env_service.environments.bfcl.tasks import BfclTask, reference_calls, tool_owner
from seal.formats import ToolCall
from seal.labels import Label

MANY_ARGUMENTS = 3
MANY_CALLS = 3
MANY_CLASSES = 3


def targets_of(task: BfclTask, execution: Execution) -> tuple[Label, ...]:
    """Labels that the task invites, in the order of `Label`."""
    targets = {*_targets(task, execution)}
    return tuple(label for label in Label if label in targets)


def _targets(task: BfclTask, execution: Execution) -> Iterator[Label]:
    shown: set[Leaf] = set()
    docs = task.docs_at(len(task.turns))
    for calls, results, changes in zip(
        reference_calls(task), execution.results, execution.changes, strict=True
    ):
        if not calls:
            yield Label.SPURIOUS_TOOL_CALL
        if changes and len(calls) > 1:
            yield Label.STATE_MISMATCH
        if len(calls) >= MANY_CALLS:
            yield Label.MISSING_TOOL_CALL
        if len({tool_owner(task, call.name) for call in calls}) > 1:
            yield Label.INSTANCE_MISMATCH
        for call, result in zip(calls, results, strict=True):
            required = docs[call.name]["function"]["parameters"].get("required", ())
            nested = any(isinstance(value, list | dict) for value in call.arguments.values())
            if nested or len(required) >= MANY_ARGUMENTS:
                yield Label.ARGUMENT_MISMATCH
            if not changes and shown.intersection(leaves(call.arguments)):
                yield Label.RESPONSE_MISMATCH
            shown |= values_of(content_of(result))
    if _needs_earlier_calls(task):
        yield Label.RECOVERY_FAILURE
    if task.held_out_docs or len(task.involved_classes) >= MANY_CLASSES:
        yield Label.INVALID_TOOL_CALL


def _needs_earlier_calls(task: BfclTask) -> bool:
    """Whether, somewhere, a turn without one of its calls meets an error in a later one."""
    program = reference_calls(task)
    for number, turn in enumerate(program):
        for left_out in range(len(turn) - 1):
            executor = ToolExecutor(task)
            before = [call for calls in program[:number] for call in calls]
            _results(task, executor, [*before, *turn[:left_out]])
            if any(map(fails, _results(task, executor, turn[left_out + 1 :]))):
                return True
    return False


def _results(task: BfclTask, executor: ToolExecutor, calls: Iterable[ToolCall]) -> list[str]:
    available = task.docs_at(len(task.turns)).keys()
    return [executor.execute(call, available) for call in calls]
