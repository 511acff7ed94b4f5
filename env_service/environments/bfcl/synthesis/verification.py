"""The checks that a task must pass: it is executed, and bfcl-eval's own checks decide.

In: a task with its reference. Out: the `Execution` of the reference, or `Refused` with the reason.
Each check stands in a function of its own. Nothing here knows who proposed the task.

A task is kept only if its reference passes and these do not pass: silence, a harmless call in each
turn, the turns in another order, and the reference with any one call left out. So the verdict tells
a policy that did the task from one that did not. Every value of the reference is stated or shown
before it is needed, so a policy can do the task.
"""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from env_service.environments.base import EpisodeOptions
from env_service.environments.bfcl.demonstrations.dialogue import CLOSING, Demonstration
from env_service.environments.bfcl.demonstrations.variants import leaves
from env_service.environments.bfcl.execution import ToolExecutor
from env_service.environments.bfcl.synthesis.sampler import EMPTY, fails, same_state
from env_service.environments.bfcl.synthesis.tools import every_tool
from env_service.environments.bfcl.synthesis.wording import as_sentence, phrase_for, spoken
from env_service.environments.bfcl.tasks import BfclTask, reference_calls
from env_service.environments.bfcl.verifier import verify
from env_service.environments.dialogue import StepRecord
from seal.coevolution.interface import INITIAL
from seal.formats import ToolCall

Calls = Sequence[Sequence[ToolCall]]
"""Calls by turn."""

HARMLESS = (
    ToolCall("pwd", {}),
    ToolCall("absolute_value", {"number": 1}),
    ToolCall("message_get_login_status", {}),
    ToolCall("ticket_get_login_status", {}),
    ToolCall("trading_get_login_status", {}),
    ToolCall("travel_get_login_status", {}),
    ToolCall("posting_get_login_status", {}),
    ToolCall("find_nearest_tire_shop", {}),
)
"""A call of each class that changes nothing."""


class Refused(Exception):
    """A task is not kept; the message is the reason, as the report counts it."""


@dataclass(frozen=True)
class Execution:
    """What a reference does."""

    results: tuple[tuple[str, ...], ...]
    """By turn, what each call returned."""
    changes: tuple[bool, ...]
    """For each turn, whether it changed the state."""
    instances: Mapping[str, Any]
    """The tool instances after it."""


def checked(task: BfclTask) -> Execution:
    """Make all checks.

    Raises:
        Refused: One of them failed.
    """
    calls = parsed(task)
    execution = executed(task, calls)
    _is_repeatable(execution, executed(task, calls))
    _has_no_error(execution)
    _does_something(execution)
    _passes(task, calls)
    _needs_calls(task, calls)
    _needs_these_calls(task, calls)
    _needs_its_order(task, calls)
    _needs_every_call(task, calls)
    _can_be_done(task, calls)
    return execution


def parsed(task: BfclTask) -> Calls:
    """Check 1: the reference can be read."""
    try:
        return reference_calls(task)
    except (ValueError, SyntaxError):
        raise Refused("the reference cannot be read") from None


def executed(task: BfclTask, calls: Calls) -> Execution:
    """Run the reference on fresh instances."""
    executor = ToolExecutor(task)
    available = task.docs_at(len(task.turns)).keys()
    results, changes = [], []
    for turn in calls:
        before = copy.deepcopy(executor.instances)
        results.append(tuple(executor.execute(call, available) for call in turn))
        changes.append(not same_state(before, executor.instances))
    return Execution(tuple(results), tuple(changes), executor.instances)


def _is_repeatable(first: Execution, second: Execution) -> None:
    """Check 2: on fresh instances it does the same again."""
    if first.results != second.results or not same_state(first.instances, second.instances):
        raise Refused("the reference does not do the same twice")


def _has_no_error(execution: Execution) -> None:
    """Check 3: no result reports an error, wherever it stands in it."""
    if any(fails(result) for turn in execution.results for result in turn):
        raise Refused("a result reports an error")


def _does_something(execution: Execution) -> None:
    """Check 4: each turn with calls changes the state or shows something."""
    for results, changes in zip(execution.results, execution.changes, strict=True):
        if results and not changes and all(result in EMPTY for result in results):
            raise Refused("a turn has no effect")


def _passes(task: BfclTask, calls: Calls) -> None:
    """Check 5: the official checks accept the reference."""
    if not accepted(task, calls):
        raise Refused("the reference does not pass")


def _needs_calls(task: BfclTask, calls: Calls) -> None:
    """Check 6, in part: silence is refused."""
    if accepted(task, [() for _ in calls]):
        raise Refused("silence passes")


def _needs_these_calls(task: BfclTask, calls: Calls) -> None:
    """Check 6, in part: a harmless call in each turn is refused."""
    available = task.docs_at(0)
    harmless = next((call for call in HARMLESS if call.name in available), None)
    if harmless is not None and accepted(task, [(harmless,) for _ in calls]):
        raise Refused("harmless calls pass")


def _needs_its_order(task: BfclTask, calls: Calls) -> None:
    """Check 6, in part: the turns one place further are refused."""
    if len(calls) > 1 and accepted(task, [*calls[1:], calls[0]]):
        raise Refused("the turns pass in another order")


def _needs_every_call(task: BfclTask, calls: Calls) -> None:
    """Check 6, in part: with any one call left out the reference is refused."""
    for number, turn in enumerate(calls):
        for place in range(len(turn)):
            left = [*turn[:place], *turn[place + 1 :]]
            if accepted(task, [*calls[:number], left, *calls[number + 1 :]]):
                raise Refused("a call can be left out")


def _can_be_done(task: BfclTask, calls: Calls) -> None:
    """Check 7: every value is stated by then, or shown by an earlier result."""
    dialogue = Demonstration(task, EpisodeOptions("eval", INITIAL, "hermes", "structured"))
    for turn in calls:
        for call in turn:
            for argument, value in call.arguments.items():
                if not _is_known(dialogue, call.name, argument, value):
                    raise Refused("a value is neither stated nor shown")
            dialogue.call([call])
        dialogue.say(CLOSING)


def _is_known(dialogue: Demonstration, tool: str, argument: str, value: Any) -> bool:
    phrase = phrase_for(every_tool()[tool], argument, value)
    if phrase is not None:
        return dialogue.shows(phrase) or dialogue.shows(as_sentence(phrase))
    values = [*leaves(value)]
    # A boolean is no leaf, so without a phrase nobody has stated it.
    return bool(values) and all(
        dialogue.shows(leaf) or dialogue.shows(spoken(leaf)) for leaf in values
    )


def accepted(task: BfclTask, calls: Calls) -> bool:
    """Whether the official checks accept these calls."""
    turns = [[StepRecord(tuple(turn), ())] for turn in calls]
    return verify(task, turns, truncated=False).accuracy == 1.0
