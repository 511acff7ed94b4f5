"""What mutations are made of: values and calls that a task makes plausible, places to put them.

In: a program, what else belongs to its task (`Material`) and a `random.Random`. Out: a call or a
value that a policy could have come up with, the place of some call or argument, and the program
with something else in that place. Called by mutations.py; no program that comes in is changed.

>>> with_call([[ToolCall("ls", {})], []], 0, 0, ToolCall("pwd", {}))
[[ToolCall(name='pwd', arguments={})], []]
"""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from env_service.environments.bfcl.tasks import BfclTask
from seal.formats import ToolCall
from seal.wire import ToolDoc

Program = list[list[ToolCall]]
"""Calls of each turn."""

PYTHON_NAMES = ("print", "sorted", "len", "max", "str", "json", "copy", "func_call", "lambda")
REFUSED_NAMES = ("kill", "exit", "quit", "remove", "unlink", "popen", "Popen", "run")
ODD_KEYS = (
    "from",
    "class",
    "file name",
    "file-name",
    "",
    "1st",
    "None",
    "\ufb01le_name",
    "a=1, b",
)
UNICODE = (
    "caf\u00e9 \u4f60\u597d \U0001f600",
    "\u202eabc\u200b",
    "\ufb01le \u212b \u0130",
    "a\x00b\x7f\x85\u2028",
    "\ud800",
    'it\'s "x"\n\t\\ {curly} %s',
)


@dataclass(frozen=True)
class Material:
    """What a task has beside its reference program."""

    tools: Sequence[ToolDoc]
    """Docs of all of its tools."""
    known: Mapping[str, Sequence[Any]]
    """Values, by argument name, that the program need not mention but that exist."""


class NothingToMutate(ValueError):
    """A program has no room for a mutation."""


def plausible_call(doc: ToolDoc, program: Program, task: Material, rng: random.Random) -> ToolCall:
    """A call of a tool with the arguments that its doc asks for, and some of the optional ones."""
    parameters = doc["function"]["parameters"]
    wanted = [
        (key, schema)
        for key, schema in parameters["properties"].items()
        if key in parameters["required"] or rng.random() < 0.5
    ]
    arguments = {key: plausible_value(key, schema, program, task, rng) for key, schema in wanted}
    return ToolCall(doc["function"]["name"], arguments)


def plausible_value(
    key: str, schema: Mapping[str, Any], program: Program, task: Material, rng: random.Random
) -> Any:
    calls = [call for turn in program for call in turn]
    known = [call.arguments[key] for call in calls if key in call.arguments]
    known += task.known.get(key, ())
    if known and rng.random() < 0.7:
        return rng.choice(known)
    match schema["type"]:
        case "string":
            return rng.choice([*values(program, str), key, "a"])
        case "integer":
            return rng.choice([0, 1, 2, 10])  # small: a tool may raise one number to another
        case "float":
            return rng.choice([0.0, 1.5, -2.0, 10])
        case "boolean":
            return rng.random() < 0.5
        case "array":
            items = schema["items"]
            return [
                plausible_value(key, items, [], Material([], {}), rng)
                for _ in range(rng.randint(0, 3))
            ]
    return {}


def values(program: Program, kind: type) -> Iterator[Any]:
    for calls in program:
        for call in calls:
            yield from (value for value in call.arguments.values() if isinstance(value, kind))


def pick(program: Program, rng: random.Random) -> tuple[int, int]:
    """Turn and place of some call."""
    places = [(turn, index) for turn, calls in enumerate(program) for index in range(len(calls))]
    if not places:
        raise NothingToMutate("the program has no call")
    return rng.choice(places)


def pick_argument(program: Program, rng: random.Random, kind: type) -> tuple[int, int, str]:
    places = [
        (turn, index, key)
        for turn, calls in enumerate(program)
        for index, call in enumerate(calls)
        for key, value in call.arguments.items()
        if isinstance(value, kind)
    ]
    if not places:
        raise NothingToMutate(f"no call has an argument of type {kind.__name__}")
    return rng.choice(places)


def with_value(
    program: Program, rng: random.Random, kind: type, change: Callable[[str, Any], Any]
) -> Program:
    """The program with the value of one argument of this type changed."""
    turn, index, key = pick_argument(program, rng, kind)
    call = program[turn][index]
    changed = {**call.arguments, key: change(key, call.arguments[key])}
    return with_call(program, turn, index, ToolCall(call.name, changed))


def with_call(program: Program, turn: int, index: int, call: ToolCall) -> Program:
    calls = program[turn]
    return with_turn(program, turn, [*calls[:index], call, *calls[index + 1 :]])


def with_turn(program: Program, turn: int, calls: list[ToolCall]) -> Program:
    return [*program[:turn], calls, *program[turn + 1 :]]


def held_out(task: BfclTask) -> dict[int, tuple[str, ...]]:
    """Names of the tools that become available at a turn."""
    return {
        turn: tuple(doc["function"]["name"] for doc in docs)
        for turn, docs in task.held_out_docs.items()
    }
