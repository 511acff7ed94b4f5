"""BFCL's four categories: what is held back from the policy, and when it is given.

In: a program and its requests. Out: a task of one category. Counted on BFCL: in miss_func one empty
turn is inserted and a tool held out until then (184 of 200 tasks exactly so); in miss_param a value
is left out and given in a turn of its own (192 of 200); long_context changes nothing else (163 of
200).
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from env_service.environments.bfcl.synthesis.sampler import Program
from env_service.environments.bfcl.synthesis.wording import Request
from env_service.environments.bfcl.tasks import CATEGORIES, BfclTask, call_text, take_doc
from seal.formats import ToolCall
from seal.wire import Message

BASE, MISS_FUNC, MISS_PARAM, LONG_CONTEXT = CATEGORIES


@dataclass(frozen=True)
class Turn:
    """What a turn of a task says and asks for."""

    messages: tuple[Message, ...]
    """Of the user; empty where held-out tools are revealed."""
    calls: tuple[ToolCall, ...]
    """The reference."""


def task_of(
    seed: BfclTask,
    program: Program,
    requests: Sequence[Request],
    category: str,
    rng: random.Random,
) -> BfclTask | None:
    """The task, still with the seed's id; None if nothing in the program can be held back."""
    turns = [
        Turn(_said(request.text), tuple(step.call for step in steps))
        for request, steps in zip(requests, program, strict=True)
    ]
    task = replace(seed, category=category)
    if category == MISS_FUNC:
        return _without_a_tool(task, turns, rng)
    if category == MISS_PARAM:
        return _without_a_value(task, turns, program, requests, rng)
    return with_turns(task, turns)


def with_turns(task: BfclTask, turns: Sequence[Turn]) -> BfclTask:
    """The task with other turns."""
    return replace(
        task,
        turns=tuple(turn.messages for turn in turns),
        reference=tuple(tuple(map(call_text, turn.calls)) for turn in turns),
    )


def _said(text: str) -> tuple[Message, ...]:
    return ({"role": "user", "content": text},)


def _without_a_tool(task: BfclTask, turns: Sequence[Turn], rng: random.Random) -> BfclTask:
    """A tool is missing until the turn after the one that asks for it."""
    firsts: dict[str, int] = {}
    for number, turn in enumerate(turns):
        for call in turn.calls:
            firsts.setdefault(call.name, number)
    name = rng.choice(list(firsts))
    place = firsts[name]
    asked, answered = replace(turns[place], calls=()), replace(turns[place], messages=())
    shown = list(task.tools)
    held_out = {place + 1: (take_doc(shown, name),)}
    task = replace(task, tools=tuple(shown), held_out_docs=held_out)
    return with_turns(task, [*turns[:place], asked, answered, *turns[place + 1 :]])


def _without_a_value(
    task: BfclTask,
    turns: Sequence[Turn],
    program: Program,
    requests: Sequence[Request],
    rng: random.Random,
) -> BfclTask | None:
    """A value is missing in a request, and the next message gives it."""
    known, removable = "", []
    for place, (request, steps) in enumerate(zip(requests, program, strict=True)):
        removable += [
            (place, key)
            for key, value in request.removable.items()
            if value not in known + request.without(key)
        ]
        known += "\n".join([request.text, *(step.result for step in steps)])
    if not removable:
        return None
    place, key = rng.choice(removable)
    asked = Turn(_said(requests[place].without(key)), ())
    answered = Turn(_said(requests[place].given_later(key, rng)), turns[place].calls)
    return with_turns(task, [*turns[:place], asked, answered, *turns[place + 1 :]])
