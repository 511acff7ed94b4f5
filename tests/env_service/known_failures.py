"""Episodes whose failure is known by construction, from the reference program alone.

In: a task and a seed. Out: `KnownFailure` values: what the assistant says in each turn, raw, the
turn that was spoiled, and the labels that its diagnosis may give. Reference turns stand before and
after it. Called by the label tests. What a spoiled turn does is found out by running it here, on
the tool classes: neither the verifier nor the diagnosis has a say in what the truth is.
"""

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from material import held_out
from rehearsal import Outcome, Rehearsal

from env_service.environments.bfcl.tasks import BfclTask
from seal.formats import ToolCall, render_calls
from seal.labels import Label

ANSWER = "Done."
UNUSABLE = frozenset({"multi_turn_miss_func_49"})
"""Its reference calls a tool before it is revealed, so no episode can follow it."""

Calls = tuple[ToolCall, ...]
Steps = tuple[Calls, ...]


class Construction(StrEnum):
    """How a turn is spoiled."""

    BAD_JSON = "bad_json"
    """A call that cannot be read is all that is said."""
    BAD_JSON_AMONG_OTHERS = "bad_json_among_others"
    """A call cannot be read, others of the turn are made, none later of the tool that it names."""
    UNKNOWN_TOOL = "unknown_tool"
    """A call names a tool that does not exist."""
    HELD_OUT_TOOL = "held_out_tool"
    """A call names a tool that a later turn reveals."""
    MISSING_ARGUMENT = "missing_argument"
    """A call leaves out an argument that its doc requires."""
    EXTRA_ARGUMENT = "extra_argument"
    """A call has an argument that its doc does not know."""
    ILL_TYPED = "ill_typed"
    """An argument is of another type than its doc declares."""
    SKIPPED = "skipped"
    """The turn is answered without a call."""
    REPEATED = "repeated"
    """A call is made twice, and twice is not once."""
    IGNORED_ERROR = "ignored_error"
    """A call that keeps to its schema gives an error, and that is left so."""
    SPURIOUS = "spurious"
    """A call is made in a turn that needs none."""
    EARLY_ANSWER = "early_answer"
    """The turn's last call that changes the state is left out."""
    WRONG_VALUE = "wrong_value"
    """An argument has another value of its type, and what the call does or says changes."""
    READ_ONLY_OMISSION = "read_only_omission"
    """A call whose result alone matters is left out, others of the turn are made."""
    WRONG_VALUE_AND_ERROR = "wrong_value_and_error"
    """Another value, which changes the state, and of which some call of the turn gives an error."""
    OMISSION_AND_ERROR = "omission_and_error"
    """A call is left out, so that the state differs and a later call of the turn gives an error."""


NOT_UNIQUE: Mapping[Construction, frozenset[Label]] = {
    # The state is wrong because of the value, and there is an error that was not recovered from.
    Construction.WRONG_VALUE_AND_ERROR: frozenset({Label.RECOVERY_FAILURE, Label.STATE_MISMATCH}),
    # The call that is missing is the cause, the error is what the policy could have seen.
    Construction.OMISSION_AND_ERROR: frozenset(
        {Label.RECOVERY_FAILURE, Label.STATE_MISMATCH, Label.INSTANCE_MISMATCH}
    ),
}
"""Constructions that two labels describe with the same right, and the labels they may get."""


@dataclass(frozen=True)
class KnownFailure:
    """One episode with one spoiled turn."""

    construction: Construction
    """How it was spoiled."""
    task_id: str
    """The task."""
    turn: int
    """The spoiled turn."""
    messages: tuple[tuple[str, ...], ...]
    """What the assistant says in each turn."""
    labels: frozenset[Label]
    """Labels the spoiled turn may get; one, unless the construction is in NOT_UNIQUE."""


def known_failures(task: BfclTask, seed: int) -> Iterator[KnownFailure]:
    """One episode of every construction that the task has room for."""
    if task.task_id in UNUSABLE:
        return
    rehearsal = Rehearsal(task)
    rng = random.Random(f"{seed} {task.task_id}")
    reference = [(*map(_said, _one_message(calls)), ANSWER) for calls in rehearsal.program]
    for construction, build in _BUILDERS.items():
        found = next(build(rehearsal, rng), None)
        if found is not None:
            turn, said, labels = found
            messages = (*reference[:turn], said, *reference[turn + 1 :])
            yield KnownFailure(construction, task.task_id, turn, messages, labels)


_Built = Iterator[tuple[int, tuple[str, ...], frozenset[Label]]]
"""A turn, what is said in it, the labels that are right."""
_INVALID = frozenset({Label.INVALID_TOOL_CALL})
_NO_JSON = (
    '<tool_call>\n{"name": "NAME", "arguments": {"a": 1}\n</tool_call>',
    "<tool_call>\n{'name': 'NAME', 'arguments': {}}\n</tool_call>",
    '<tool_call>\n{"name": "NAME", "arguments": {}}',
    "<tool_call>\nNAME now\n</tool_call>",
)
"""Left out of a message whose other calls count."""
_NO_CALL = (
    '<tool_call>\n{"name": "NAME", "arguments": [1]}\n</tool_call>',
    '<tool_call>\n{"arguments": {"a": 1}}\n</tool_call>',
)
"""JSON, but no call: refuses the whole message."""


def _bad_json(rehearsal: Rehearsal, rng: random.Random) -> _Built:
    turn, name = rng.randrange(len(rehearsal.program)), rng.choice([*rehearsal.task.docs_at(0)])
    # Nothing was called, so the message ends the turn: no answer follows.
    yield turn, (rng.choice(_NO_JSON + _NO_CALL).replace("NAME", name),), _INVALID


def _bad_json_among_others(rehearsal: Rehearsal, rng: random.Random) -> _Built:
    for turn, place, call in _places(rehearsal, rng):
        before, after = rehearsal.program[turn][:place], rehearsal.program[turn][place + 1 :]
        again = call.name in {one.name for one in after}
        if (before or after) and not again and rehearsal.play(turn, (*before, *after)).failed:
            # In one message with calls that can be read: alone it would end the turn.
            beside, later = (before, after) if before else (after[:1], after[1:])
            broken = rng.choice(_NO_JSON).replace("NAME", call.name)
            said = (f"{_said(beside)}\n{broken}", *(_said((one,)) for one in later), ANSWER)
            yield turn, said, _INVALID


def _unknown_tool(rehearsal: Rehearsal, rng: random.Random) -> _Built:
    names = ("no_such_tool", "print", "Tools.list_all", "x" * 90)
    yield from _with_other_call(rehearsal, rng, lambda: ToolCall(rng.choice(names), {"a": 1}), {})


def _held_out_tool(rehearsal: Rehearsal, rng: random.Random) -> _Built:
    for reveal, names in held_out(rehearsal.task).items():
        later = [call for calls in rehearsal.program for call in calls if call.name in names]
        if later:
            other = _always(rng.choice(later))
            yield from _with_other_call(
                rehearsal, rng, other, range(reveal, len(rehearsal.program))
            )


def _always(call: ToolCall) -> Callable[[], ToolCall]:
    return lambda: call


def _with_other_call(
    rehearsal: Rehearsal, rng: random.Random, other: Callable[[], ToolCall], without: Any
) -> _Built:
    """Another call in the place of one of a turn's, or all alone in a turn that needs none.

    The turn's later calls are made, and are no repair.
    """
    for turn in _shuffled(range(len(rehearsal.program)), rng):
        program = rehearsal.program[turn]
        calls = _replaced(program, rng.randrange(len(program)) if program else 0, other())
        wanted = bool(program)
        if turn not in without and (not wanted or rehearsal.play(turn, calls).failed):
            yield turn, _turn(_steps(calls, rng)), _INVALID


def _missing_argument(rehearsal: Rehearsal, rng: random.Random) -> _Built:
    def spoiled(call: ToolCall) -> Iterator[ToolCall]:
        required = rehearsal.schema(call).get("required", ())
        for name in _shuffled([name for name in call.arguments if name in required], rng):
            rest = {key: value for key, value in call.arguments.items() if key != name}
            yield ToolCall(call.name, rest)

    yield from _broken_arguments(rehearsal, rng, spoiled)


def _extra_argument(rehearsal: Rehearsal, rng: random.Random) -> _Built:
    def spoiled(call: ToolCall) -> Iterator[ToolCall]:
        name = rng.choice(["force_it", "verbosity", "class", "no name"])
        yield ToolCall(call.name, {**call.arguments, name: rng.choice([True, 1, "x"])})

    yield from _broken_arguments(rehearsal, rng, spoiled)


def _ill_typed(rehearsal: Rehearsal, rng: random.Random) -> _Built:
    others: Mapping[str, tuple[Any, ...]] = {
        "string": (17, ["a"], None, {"text": "a"}),
        "integer": ("one", 1.5, True, None),
        "float": ("a lot", True, [1.0], None),
        "boolean": ("true", 1, None),
        "array": ("a", {"a": 1}, 1),
    }

    def spoiled(call: ToolCall) -> Iterator[ToolCall]:
        fields = rehearsal.schema(call)["properties"]
        for name in _shuffled([name for name in call.arguments if name in fields], rng):
            for value in _shuffled(others.get(fields[name]["type"], ()), rng):
                yield ToolCall(call.name, {**call.arguments, name: value})

    yield from _broken_arguments(rehearsal, rng, spoiled)


def _broken_arguments(
    rehearsal: Rehearsal, rng: random.Random, spoiled: Callable[[ToolCall], Iterator[ToolCall]]
) -> _Built:
    for turn, place, call in _places(rehearsal, rng):
        for other in spoiled(call):
            calls = _replaced(rehearsal.program[turn], place, other)
            if rehearsal.play(turn, calls).failed:
                said = _turn(_unrepaired(calls, place, rng))
                yield turn, said, frozenset({Label.ARGUMENT_MISMATCH})


def _skipped(rehearsal: Rehearsal, rng: random.Random) -> _Built:
    for turn in _shuffled(range(len(rehearsal.program)), rng):
        if rehearsal.program[turn]:
            yield turn, (ANSWER,), frozenset({Label.MISSING_TOOL_CALL})


def _repeated(rehearsal: Rehearsal, rng: random.Random) -> _Built:
    for turn, _, call in _places(rehearsal, rng):
        calls = (*rehearsal.program[turn], call)
        outcome = rehearsal.play(turn, calls)
        if outcome.differing and not outcome.new_errors:
            yield turn, _turn(_steps(calls, rng)), frozenset({Label.STATE_MISMATCH})


def _ignored_error(rehearsal: Rehearsal, rng: random.Random) -> _Built:
    for turn, place, other in _other_values(rehearsal, rng):
        calls = _replaced(rehearsal.program[turn], place, other)
        outcome = rehearsal.play(turn, calls)
        if place in outcome.new_errors and not outcome.differing and outcome.failed:
            said = _turn(_unrepaired(calls, place, rng))
            yield turn, said, frozenset({Label.RECOVERY_FAILURE})


def _wrong_value(rehearsal: Rehearsal, rng: random.Random) -> _Built:
    for turn, place, other in _other_values(rehearsal, rng):
        calls = _replaced(rehearsal.program[turn], place, other)
        outcome = rehearsal.play(turn, calls)
        if outcome.failed and not outcome.new_errors:
            label = Label.STATE_MISMATCH if outcome.differing else Label.RESPONSE_MISMATCH
            yield turn, _turn(_steps(calls, rng)), frozenset({label})


def _wrong_value_and_error(rehearsal: Rehearsal, rng: random.Random) -> _Built:
    for turn, place, other in _other_values(rehearsal, rng):
        calls = _replaced(rehearsal.program[turn], place, other)
        outcome = rehearsal.play(turn, calls)
        if outcome.differing and outcome.new_errors:
            said = _turn(_steps(calls, rng))
            yield turn, said, NOT_UNIQUE[Construction.WRONG_VALUE_AND_ERROR]


def _spurious(rehearsal: Rehearsal, rng: random.Random) -> _Built:
    known = [call for calls in rehearsal.program for call in calls]
    for turn in _shuffled(range(len(rehearsal.program)), rng):
        for call in _shuffled(known, rng):
            if not rehearsal.program[turn] and call.name in rehearsal.task.docs_at(turn):
                yield turn, _turn(((call,),)), frozenset({Label.SPURIOUS_TOOL_CALL})


def _early_answer(rehearsal: Rehearsal, rng: random.Random) -> _Built:
    for turn in _shuffled(range(len(rehearsal.program)), rng):
        calls = rehearsal.program[turn]
        for place in reversed(range(len(calls))):
            rest = calls[:place] + calls[place + 1 :]
            outcome = rehearsal.play(turn, rest)
            if outcome.differing:
                if rest and not outcome.new_errors:
                    yield turn, _turn(_steps(rest, rng)), _left_out(rehearsal, turn, rest, outcome)
                break


def _read_only_omission(rehearsal: Rehearsal, rng: random.Random) -> _Built:
    for turn, rest, outcome in _omissions(rehearsal, rng):
        if outcome.missing and not outcome.differing and not outcome.new_errors:
            yield turn, _turn(_steps(rest, rng)), _left_out(rehearsal, turn, rest, outcome)


def _omission_and_error(rehearsal: Rehearsal, rng: random.Random) -> _Built:
    for turn, rest, outcome in _omissions(rehearsal, rng):
        if outcome.differing and outcome.new_errors:
            said = _turn(_steps(rest, rng))
            yield turn, said, NOT_UNIQUE[Construction.OMISSION_AND_ERROR]


_BUILDERS: Mapping[Construction, Callable[[Rehearsal, random.Random], _Built]] = {
    Construction.BAD_JSON: _bad_json,
    Construction.BAD_JSON_AMONG_OTHERS: _bad_json_among_others,
    Construction.UNKNOWN_TOOL: _unknown_tool,
    Construction.HELD_OUT_TOOL: _held_out_tool,
    Construction.MISSING_ARGUMENT: _missing_argument,
    Construction.EXTRA_ARGUMENT: _extra_argument,
    Construction.ILL_TYPED: _ill_typed,
    Construction.SKIPPED: _skipped,
    Construction.REPEATED: _repeated,
    Construction.IGNORED_ERROR: _ignored_error,
    Construction.SPURIOUS: _spurious,
    Construction.EARLY_ANSWER: _early_answer,
    Construction.WRONG_VALUE: _wrong_value,
    Construction.READ_ONLY_OMISSION: _read_only_omission,
    Construction.WRONG_VALUE_AND_ERROR: _wrong_value_and_error,
    Construction.OMISSION_AND_ERROR: _omission_and_error,
}


def _left_out(rehearsal: Rehearsal, turn: int, rest: Calls, outcome: Outcome) -> frozenset[Label]:
    """The truth about a call that is missing: a class that was left out explains the failure."""
    unused = rehearsal.classes(rehearsal.program[turn]) - rehearsal.classes(rest)
    if outcome.differing:
        explained = outcome.differing <= unused
        return frozenset({Label.INSTANCE_MISMATCH if explained else Label.STATE_MISMATCH})
    # A call of the rest is there, whatever it gave; the one that was left out was skipped, unless
    # its tool was called otherwise or what it says was seen all the same.
    called = {call.name for call in rest}
    skipped = any(
        call.name not in called and outcome.missing[result]
        for call, result in rehearsal.reference_of(turn)
    )
    return frozenset({Label.MISSING_TOOL_CALL if skipped else Label.RESPONSE_MISMATCH})


def _omissions(rehearsal: Rehearsal, rng: random.Random) -> Iterator[tuple[int, Calls, Outcome]]:
    for turn, place, _ in _places(rehearsal, rng):
        calls = rehearsal.program[turn]
        rest = calls[:place] + calls[place + 1 :]
        if rest:
            yield turn, rest, rehearsal.play(turn, rest)


def _other_values(rehearsal: Rehearsal, rng: random.Random) -> Iterator[tuple[int, int, ToolCall]]:
    """Turn, place and a call there with one other value of the same type."""
    for turn, place, call in _places(rehearsal, rng):
        fields = rehearsal.schema(call)["properties"]
        for name in _shuffled(call.arguments, rng):
            value = _other_value(fields[name]["type"], call.arguments[name], rng)
            if value is not None:
                yield turn, place, ToolCall(call.name, {**call.arguments, name: value})


def _other_value(declared: str, value: Any, rng: random.Random) -> Any:
    """None where there is none, or where the reference itself breaks the schema."""
    match declared, value:
        case "boolean", bool():
            return not value
        case ("integer", int()) | ("float", int() | float()):
            return value + rng.choice([1, 2, 7])
        case "string", str():
            return rng.choice([value + "_2", "other", value[1:] or "b"])
        case "array", [_, *rest]:
            return rest
    return None


def _places(rehearsal: Rehearsal, rng: random.Random) -> Iterator[tuple[int, int, ToolCall]]:
    """Turn, place within it, and call there, of all calls in random order."""
    places = [
        (turn, place, call)
        for turn, calls in enumerate(rehearsal.program)
        for place, call in enumerate(calls)
    ]
    yield from _shuffled(places, rng)


def _shuffled(values: Any, rng: random.Random) -> list[Any]:
    return rng.sample([*values], k=len(values))


def _replaced(calls: Calls, place: int, other: ToolCall) -> Calls:
    return (*calls[:place], other, *calls[place + 1 :])


def _one_message(calls: Calls) -> Steps:
    return (calls,) if calls else ()


def _steps(calls: Calls, rng: random.Random) -> Steps:
    """All calls in one message, or one a message where the step limit is far."""
    together = len(calls) > 15 or rng.random() < 0.5
    return _one_message(calls) if together else tuple((call,) for call in calls)


def _unrepaired(calls: Calls, place: int, rng: random.Random) -> Steps:
    """The same, but no call of the same tool in a later message, which would be a repair."""
    again = any(call.name == calls[place].name for call in calls[place + 1 :])
    return _one_message(calls) if again else _steps(calls, rng)


def _said(calls: Calls) -> str:
    return render_calls(calls, "hermes")


def _turn(steps: Steps) -> tuple[str, ...]:
    return (*map(_said, steps), ANSWER)
