"""Trajectories that a policy could have produced: a reference program with seeded mistakes.

In: a task's reference program, what else belongs to the task and a `random.Random`. Out: a
`Trajectory`: the calls of each step of each turn, and the name of what was done to the program.
Called by tests that compare two ways of executing or judging the same calls. Nothing here knows
what a call does; the same seed gives the same trajectories on every machine.

>>> program = [[ToolCall("cd", {"folder": "a"}), ToolCall("ls", {})]]
>>> mutate(program, Material([], {}), random.Random(1), Mutation.ONE_MESSAGE).turns
(((ToolCall(name='cd', arguments={'folder': 'a'}), ToolCall(name='ls', arguments={})),),)
"""

import copy
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from material import (
    ODD_KEYS,
    PYTHON_NAMES,
    REFUSED_NAMES,
    UNICODE,
    Material,
    NothingToMutate,
    Program,
    pick,
    pick_argument,
    plausible_call,
    values,
    with_call,
    with_turn,
    with_value,
)

from seal.formats import ToolCall

Turns = tuple[tuple[tuple[ToolCall, ...], ...], ...]
"""Calls of each step of each turn."""

LONG = 20_000
"""Characters of a very long string."""
DEPTH = 250
"""Brackets around a deeply nested value: more than Python's own parser takes (200)."""


class Mutation(StrEnum):
    """What is done to a program."""

    UNCHANGED = "unchanged"
    DROPPED = "dropped"
    """One or two calls are missing."""
    REPEATED = "repeated"
    """One call is made again, at once or at the end of its turn."""
    REORDERED = "reordered"
    """The calls of one turn come in another order, or two turns change places."""
    TRUNCATED = "truncated"
    """All calls from one on are missing; sometimes the turns after it were never begun."""
    WRONG_VALUE = "wrong_value"
    """Another value of the same type."""
    SAME_VALUE = "same_value"
    """An argument has the value of another one of the same call."""
    MISSING_ARGUMENT = "missing_argument"
    EXTRA_ARGUMENT = "extra_argument"
    WRONG_TYPE = "wrong_type"
    """A value of another type."""
    DEEP_VALUE = "deep_value"
    """A value in more brackets than Python's parser takes."""
    OTHER_TOOL = "other_tool"
    """Other tools of the task are called, too or instead."""
    UNKNOWN_NAME = "unknown_name"
    """A name that is no tool: a slip of the pen, a name of Python, a refused name."""
    OTHER_TURN = "other_turn"
    """Calls are made in another turn, in an empty one if there is one."""
    KEYWORD_ORDER = "keyword_order"
    """Arguments in another order."""
    ODD_KEYWORD = "odd_keyword"
    """An argument whose name Python cannot write as a keyword."""
    POSITIONAL = "positional"
    """Arguments without their names, where the writing has a way to leave them out."""
    UNICODE = "unicode"
    """Text beyond ASCII, control characters and quotes."""
    LONG_STRING = "long_string"
    CALL_LIKE_TEXT = "call_like_text"
    """Text inside an argument that looks like a call."""
    SPLIT_STEPS = "split_steps"
    """One call a message."""
    ONE_MESSAGE = "one_message"
    """All calls of a turn in one message."""


@dataclass(frozen=True)
class Trajectory:
    """What an assistant asked for in an episode."""

    mutation: str
    """Name of the mutation; two names with a plus between them for a combination."""
    turns: Turns
    """Steps of each turn that was begun; a step may be empty (a message without a call)."""
    positional: bool
    """Whether a writing that can should leave argument names out."""


def draw(program: Sequence[Sequence[ToolCall]], task: Material, rng: random.Random) -> Trajectory:
    """One trajectory with one mutation, or (one time in four) with two."""
    while True:
        kinds = rng.sample(list(Mutation), k=2 if rng.random() < 0.25 else 1)
        try:
            return mutate(program, task, rng, *kinds)
        except NothingToMutate:
            continue  # e.g. an argument is to be left out where no call has one


def mutate(
    program: Sequence[Sequence[ToolCall]],
    task: Material,
    rng: random.Random,
    *kinds: Mutation,
) -> Trajectory:
    """A trajectory with these mutations, applied in this order.

    Args:
        program: Calls of each turn; not changed.
        task: What else of the task a policy could put in.
        rng: Where every choice comes from.
        kinds: What to do.

    Raises:
        NothingToMutate: The program has no room for one of the mutations.
    """
    changed: Program = [list(turn) for turn in program]
    for kind in kinds:
        changed = _CHANGES[kind](changed, task, rng)
    return Trajectory("+".join(kinds), _in_steps(changed, kinds, rng), Mutation.POSITIONAL in kinds)


def _in_steps(program: Program, kinds: Sequence[Mutation], rng: random.Random) -> Turns:
    one, single = Mutation.ONE_MESSAGE in kinds, Mutation.SPLIT_STEPS in kinds
    turns = []
    for calls in program:
        cuts = [
            index
            for index in range(1, len(calls))
            if single or (not one and rng.random() < 0.4)  # else somewhere in between
        ]
        bounds = [0, *cuts, len(calls)]
        steps = [tuple(calls[a:b]) for a, b in zip(bounds, bounds[1:], strict=False) if a < b]
        if not one and not single and rng.random() < 0.3:
            steps.append(())  # the message that closes a turn
        turns.append(tuple(steps))
    return tuple(turns)


def _unchanged(program: Program, task: Material, rng: random.Random) -> Program:
    return program


def _dropped(program: Program, task: Material, rng: random.Random) -> Program:
    for _ in range(rng.randint(1, 2)):
        turn, index = pick(program, rng)
        program = with_turn(program, turn, program[turn][:index] + program[turn][index + 1 :])
        if not any(program):
            break
    return program


def _repeated(program: Program, task: Material, rng: random.Random) -> Program:
    turn, index = pick(program, rng)
    calls = list(program[turn])
    calls.insert(rng.choice([index, len(calls)]), calls[index])
    return with_turn(program, turn, calls)


def _reordered(program: Program, task: Material, rng: random.Random) -> Program:
    long_turns = [index for index, calls in enumerate(program) if len(calls) > 1]
    if long_turns and rng.random() < 0.7:
        turn = rng.choice(long_turns)
        return with_turn(program, turn, rng.sample(program[turn], k=len(program[turn])))
    if len(program) < 2:
        raise NothingToMutate("no turn has two calls")
    one, other = rng.sample(range(len(program)), k=2)
    swapped = list(program)
    swapped[one], swapped[other] = program[other], program[one]
    return swapped


def _truncated(program: Program, task: Material, rng: random.Random) -> Program:
    turn, index = pick(program, rng)
    if turn and rng.random() < 0.3:
        return program[:turn]  # every turn that was begun is whole
    begun = [*program[:turn], program[turn][:index]]
    return begun if rng.random() < 0.4 else begun + [[] for _ in program[turn + 1 :]]


def _wrong_value(program: Program, task: Material, rng: random.Random) -> Program:
    def other(key: str, value: Any) -> Any:
        if key in task.known and rng.random() < 0.5:
            return rng.choice(task.known[key])
        if isinstance(value, bool):
            return not value
        if isinstance(value, int | float):
            return rng.choice([value + 1, -value, value * 10, value / 2])
        if isinstance(value, str):
            others = [text for text in values(program, str) if text != value]
            return rng.choice([value + "x", value[:-1], value.upper(), "", *others[:4]])
        if isinstance(value, list):
            return rng.choice([value[:-1], value + value, value[::-1], []])
        return {}

    return with_value(program, rng, object, other)


def _same_value(program: Program, task: Material, rng: random.Random) -> Program:
    places = [
        (turn, index)
        for turn, calls in enumerate(program)
        for index, call in enumerate(calls)
        if len(call.arguments) > 1
    ]
    if not places:
        raise NothingToMutate("no call has two arguments")
    turn, index = rng.choice(places)
    call = program[turn][index]
    one, other = rng.sample(sorted(call.arguments), k=2)
    changed = {**call.arguments, other: copy.deepcopy(call.arguments[one])}
    return with_call(program, turn, index, ToolCall(call.name, changed))


def _missing_argument(program: Program, task: Material, rng: random.Random) -> Program:
    turn, index, key = pick_argument(program, rng, object)
    call = program[turn][index]
    rest = {name: value for name, value in call.arguments.items() if name != key}
    return with_call(program, turn, index, ToolCall(call.name, rest))


def _extra_argument(program: Program, task: Material, rng: random.Random) -> Program:
    turn, index = pick(program, rng)
    call = program[turn][index]
    keys = [key for key in ("path", "verbose", "self", "user_id", "x") if key not in call.arguments]
    extra = {rng.choice(keys): rng.choice([1, True, "x", None, [1.5]])}
    first = rng.random() < 0.5
    arguments = {**extra, **call.arguments} if first else {**call.arguments, **extra}
    return with_call(program, turn, index, ToolCall(call.name, arguments))


def _wrong_type(program: Program, task: Material, rng: random.Random) -> Program:
    def other(key: str, value: Any) -> Any:
        choices = [None, [value], {"value": value}, {}, True, 7, 2.5, str(value)]
        return rng.choice([choice for choice in choices if type(choice) is not type(value)])

    return with_value(program, rng, object, other)


def _deep_value(program: Program, task: Material, rng: random.Random) -> Program:
    def other(key: str, value: Any) -> Any:
        for _ in range(DEPTH):
            value = [value]
        return value

    return with_value(program, rng, object, other)


def _other_tool(program: Program, task: Material, rng: random.Random) -> Program:
    if not task.tools:
        raise NothingToMutate("no tool docs were given")
    for _ in range(rng.randint(1, 4)):
        call = plausible_call(rng.choice(task.tools), program, task, rng)
        if rng.random() < 0.3 and any(program):
            program = with_call(program, *pick(program, rng), call)
            continue
        turn = rng.randrange(len(program))
        calls = list(program[turn])
        calls.insert(rng.randint(0, len(calls)), call)
        program = with_turn(program, turn, calls)
    return program


def _unknown_name(program: Program, task: Material, rng: random.Random) -> Program:
    turn, index = pick(program, rng)
    call = program[turn][index]
    slips = (call.name + "s", call.name.upper() + "_", "do_" + call.name, "Tools." + call.name)
    name = rng.choice(
        [*slips, rng.choice(PYTHON_NAMES), rng.choice(REFUSED_NAMES), "no name", "x" * 90]
    )
    return with_call(program, turn, index, ToolCall(name, call.arguments))


def _other_turn(program: Program, task: Material, rng: random.Random) -> Program:
    if len(program) < 2:
        raise NothingToMutate("there is one turn only")
    turn, index = pick(program, rng)
    empty = [other for other, calls in enumerate(program) if not calls]
    others = empty or [other for other in (turn - 1, turn + 1) if 0 <= other < len(program)]
    target = rng.choice(others)
    moved = program[turn] if rng.random() < 0.5 else program[turn][index : index + 1]
    rest = [call for call in program[turn] if not any(call is one for one in moved)]
    return with_turn(with_turn(program, turn, rest), target, program[target] + moved)


def _keyword_order(program: Program, task: Material, rng: random.Random) -> Program:
    return [
        [
            ToolCall(call.name, dict(rng.sample([*call.arguments.items()], k=len(call.arguments))))
            for call in calls
        ]
        for calls in program
    ]


def _odd_keyword(program: Program, task: Material, rng: random.Random) -> Program:
    turn, index, key = pick_argument(program, rng, object)
    call = program[turn][index]
    odd = rng.choice(ODD_KEYS)
    renamed = {odd if name == key else name: value for name, value in call.arguments.items()}
    return with_call(program, turn, index, ToolCall(call.name, renamed))


def _unicode(program: Program, task: Material, rng: random.Random) -> Program:
    text = rng.choice(UNICODE)
    return with_value(program, rng, str, lambda key, value: rng.choice([text, value + text]))


def _long_string(program: Program, task: Material, rng: random.Random) -> Program:
    piece = rng.choice(["x", "long text ", "line\n", "\u00e9"])
    text = (piece * LONG)[:LONG]
    return with_value(program, rng, str, lambda key, value: rng.choice([text, value + text]))


def _call_like_text(program: Program, task: Material, rng: random.Random) -> Program:
    names = sorted({call.name for calls in program for call in calls})
    names += [doc["function"]["name"] for doc in task.tools]

    def other(key: str, value: Any) -> Any:
        name = rng.choice(names)
        text = rng.choice(
            [
                f"{name}(folder='x')",
                f"f({name}())",
                f"see {name} (twice)",
                "a word (or two)",
                "f(1)",
            ]
        )
        return rng.choice([text, f"{value} {text}"])

    return with_value(program, rng, str, other)


_CHANGES: Mapping[Mutation, Callable[[Program, Material, random.Random], Program]] = {
    Mutation.UNCHANGED: _unchanged,
    Mutation.DROPPED: _dropped,
    Mutation.REPEATED: _repeated,
    Mutation.REORDERED: _reordered,
    Mutation.TRUNCATED: _truncated,
    Mutation.WRONG_VALUE: _wrong_value,
    Mutation.SAME_VALUE: _same_value,
    Mutation.MISSING_ARGUMENT: _missing_argument,
    Mutation.EXTRA_ARGUMENT: _extra_argument,
    Mutation.WRONG_TYPE: _wrong_type,
    Mutation.DEEP_VALUE: _deep_value,
    Mutation.OTHER_TOOL: _other_tool,
    Mutation.UNKNOWN_NAME: _unknown_name,
    Mutation.OTHER_TURN: _other_turn,
    Mutation.KEYWORD_ORDER: _keyword_order,
    Mutation.ODD_KEYWORD: _odd_keyword,
    Mutation.POSITIONAL: _unchanged,  # a matter of writing
    Mutation.UNICODE: _unicode,
    Mutation.LONG_STRING: _long_string,
    Mutation.CALL_LIKE_TEXT: _call_like_text,
    Mutation.SPLIT_STEPS: _unchanged,  # a matter of steps
    Mutation.ONE_MESSAGE: _unchanged,
}
