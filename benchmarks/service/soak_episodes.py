"""Episodes of the soak: references with seeded mistakes, and bfcl-eval's verdict on them.

In: a random.Random. Out: the messages of one episode, and the calls in them. The verdict is
computed in a process that does nothing else: bfcl-eval's checker keeps what it makes in its module,
and evaluates text.

Left out is what the service does otherwise than bfcl-eval on purpose: calls of tools that are not
revealed yet, text in an argument that looks like a call, and mistakes in the long-context TravelAPI
(its instances share their credit cards, so bfcl-eval cannot see a wrong booking).
"""

import copy
import random
import re
import signal
from dataclasses import dataclass

from bfcl_eval.eval_checker.multi_turn_eval.func_source_code import long_context

from benchmarks.service.references import BEFORE_ITS_REVEAL, verdict
from env_service.environments.bfcl.tasks import BfclTask, call_text, load_tasks, reference_calls
from seal.formats import ToolCall, parse, render_calls

TOOL_FORMAT = "hermes"
MISTAKES = ("none", "drop", "repeat", "wrong value", "wrong value")
STEPS_A_TURN = 20
"""More steps in a turn end the episode; bfcl-eval's checker has no such limit."""

Turns = tuple[tuple[tuple[str, ...], ...], ...]
"""Text of each call of each step of each turn."""


@dataclass(frozen=True)
class SoakEpisode:
    """What a client says, and the calls in it."""

    task_id: str
    messages: tuple[str, ...]
    """Assistant messages, in order."""
    turns: Turns
    """The same calls for the official checker."""
    slow_message: int | None
    """Index of the message with a call that takes far too long or too much memory; None: none."""


def draw(rng: random.Random, slow: bool) -> SoakEpisode:
    """A random episode."""
    tasks = [
        task
        for task in load_tasks().values()
        if task.task_id != BEFORE_ITS_REVEAL and (not slow or "MathAPI" in task.involved_classes)
    ]
    task = rng.choice(tasks)
    program = [[_as_read(call) for call in turn] for turn in reference_calls(task)]
    for _ in range(rng.choice((1, 1, 2))):
        program = _with_mistake(program, rng.choice(MISTAKES) if _comparable(task) else "none", rng)
    slow_turn = None
    if slow:
        # The first is refused for its memory, the second computes for a while.
        precision = rng.choice((10**9, 3 * 10**7))
        slow_turn = rng.randrange(len(program))
        call = ToolCall("square_root", {"number": 2, "precision": precision})
        program[slow_turn] = [*program[slow_turn], call]
    messages: list[str] = []
    turns = []
    slow_message = None
    for index, calls in enumerate(program):
        one_call = len(calls) < STEPS_A_TURN and rng.random() < 0.5
        steps = [[call] for call in calls] if one_call else [calls] if calls else []
        messages += [render_calls(step, TOOL_FORMAT) for step in steps]
        if index == slow_turn:
            slow_message = len(messages) - 1
        messages.append("Done.")
        turns.append(tuple(tuple(call_text(call) for call in step) for step in steps))
    return SoakEpisode(task.task_id, tuple(messages), tuple(turns), slow_message)


def official_verdict(task_id: str, turns: Turns) -> bool:
    """Whether bfcl-eval passes the calls; if its checker raises, it does not."""
    cards = copy.deepcopy(long_context.CREDIT_CARD_EXTENSION)
    try:
        return bool(verdict(load_tasks()[task_id], turns)["valid"])
    except Exception:  # the named border: the checker compares whatever the calls have left
        return False
    finally:
        # Bookings of long-context tasks charge these cards for good.
        long_context.CREDIT_CARD_EXTENSION.clear()
        long_context.CREDIT_CARD_EXTENSION.update(cards)


def ignore_interrupts() -> None:
    """For the process of the official verdicts: the soak handles signals, and then ends it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def _comparable(task: BfclTask) -> bool:
    """Whether service and bfcl-eval judge mistakes in this task alike."""
    if task.long_context and "TravelAPI" in task.involved_classes:
        return False
    return not any(
        re.search(r"\w\s*\(.*\(", text, re.DOTALL) for turn in task.reference for text in turn
    )


def _with_mistake(
    program: list[list[ToolCall]], mistake: str, rng: random.Random
) -> list[list[ToolCall]]:
    places = [(turn, index) for turn, calls in enumerate(program) for index in range(len(calls))]
    if mistake == "none" or not places:
        return program
    turn, index = rng.choice(places)
    calls = program[turn]
    match mistake:
        case "drop":
            changed = calls[:index] + calls[index + 1 :]
        case "repeat":
            changed = [*calls[: index + 1], *calls[index:]]
        case _:
            changed = [*calls[:index], _with_wrong_value(calls[index], rng), *calls[index + 1 :]]
    return [changed if number == turn else other for number, other in enumerate(program)]


def _with_wrong_value(call: ToolCall, rng: random.Random) -> ToolCall:
    if not call.arguments:
        return call
    key = rng.choice(sorted(call.arguments))
    value = call.arguments[key]
    wrong: object
    match value:
        case bool():
            wrong = not value
        case int() | float():
            wrong = rng.choice((value + 1, -value, value * 2))
        case str():
            wrong = rng.choice((value + "x", value[:-1], ""))
        case _:
            wrong = "x"
    return ToolCall(call.name, {**call.arguments, key: wrong})


def _as_read(call: ToolCall) -> ToolCall:
    """The call as the service reads it: JSON has no tuples."""
    return parse(render_calls([call], TOOL_FORMAT), TOOL_FORMAT).calls[0]
