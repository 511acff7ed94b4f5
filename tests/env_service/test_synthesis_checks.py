"""Every check and every filter of synthetic tasks has a candidate that nothing else refuses."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from env_service.environments.bfcl.synthesis import verification
from env_service.environments.bfcl.synthesis.filters import (
    EvaluationSide,
    Kept,
    check_words,
    usable_seeds,
)
from env_service.environments.bfcl.synthesis.targets import targets_of
from env_service.environments.bfcl.synthesis.verification import Refused, checked, executed, parsed
from env_service.environments.bfcl.tasks import BfclTask, call_text, load_tasks, take_doc
from env_service.environments.bfcl.tool_classes import tool_class
from seal.formats import ToolCall
from seal.labels import Label

FILES = load_tasks()["multi_turn_base_5"]
TRAVEL = load_tasks()["multi_turn_base_150"]
TRADING = load_tasks()["multi_turn_base_102"]
LS, PWD = ToolCall("ls", {"a": True}), ToolCall("pwd", {})
LIST_ALL = "List everything here, hidden files too"


def planted(seed: BfclTask, *turns: tuple[str, Sequence[ToolCall]], name: str = "x_1") -> BfclTask:
    """A task of a seed's world, with requests and calls."""
    return replace(
        seed,
        task_id=name,
        turns=tuple(({"role": "user", "content": text},) for text, _ in turns),
        reference=tuple(tuple(map(call_text, calls)) for _, calls in turns),
    )


def make(name: str) -> tuple[str, list[ToolCall]]:
    return f"Make the folder {name} here", [ToolCall("mkdir", {"dir_name": name})]


def test_a_task_that_passes_everything() -> None:
    task = planted(FILES, make("alpha_beta"), (f"{LIST_ALL}.", [LS]))
    assert checked(task).changes == (True, False)


# ---- checks ------------------------------------------------------------------------------------


def _error_in_the_second_place() -> BfclTask:
    """TravelAPI's errors come after a status: BFCL's own convention does not see them."""
    call = ToolCall("cancel_booking", {"access_token": "wrong", "booking_id": "none"})
    return planted(TRAVEL, ("Cancel booking none with the access token wrong.", [call]))


def _no_effect() -> BfclTask:
    """Going up returns nothing, and where one is belongs to no state that is compared."""
    text, calls = make("alpha_beta")
    down, up = (ToolCall("cd", {"folder": folder}) for folder in ("alpha_beta", ".."))
    return planted(FILES, (text, [*calls, down]), ("Go one folder up, to '..', please.", [up]))


def _held_out_tool() -> BfclTask:
    """The reference can call it before its turn, as in bfcl-eval, and a policy cannot."""
    task = planted(FILES, ("Tell me where I am.", [PWD]), ("", []), (f"{LIST_ALL}.", [LS]))
    shown = list(task.tools)
    return replace(task, held_out_docs={1: (take_doc(shown, "pwd"),)}, tools=tuple(shown))


def _nothing_to_do() -> BfclTask:
    """And no harmless call is available, which would pass, too."""
    task = planted(FILES, ("Thank you.", []))
    harmless = {call.name for call in verification.HARMLESS}
    left = tuple(doc for doc in task.tools if doc["function"]["name"] not in harmless)
    return replace(task, tools=left)


def _seen_before() -> BfclTask:
    """The official check looks for a result in all turns so far."""
    text, calls = make("alpha_beta")
    again = (f"{text}, and tell me again where I am.", [*calls, PWD])
    return planted(FILES, ("Tell me where I am.", [PWD]), again)


CHECKS: Sequence[tuple[str, str, BfclTask]] = (
    ("_has_no_error", "a result reports an error", _error_in_the_second_place()),
    ("_does_something", "a turn has no effect", _no_effect()),
    ("_passes", "the reference does not pass", _held_out_tool()),
    ("_needs_calls", "silence passes", _nothing_to_do()),
    (
        "_needs_these_calls",
        "harmless calls pass",
        planted(FILES, ("Tell me where I am.", [PWD])),
    ),
    (
        "_needs_its_order",
        "the turns pass in another order",
        planted(FILES, (f"{LIST_ALL}.", [LS]), (f"{LIST_ALL}, again.", [LS])),
    ),
    (
        "_needs_every_call",
        "a call can be left out",
        _seen_before(),
    ),
    (
        "_can_be_done",
        "a value is neither stated nor shown",
        planted(FILES, ("Make a folder.", make("alpha_beta")[1])),
    ),
)


@pytest.mark.parametrize(("check", "why", "task"), CHECKS, ids=[check for check, _, _ in CHECKS])
def test_a_check_refuses_what_no_other_does(
    check: str, why: str, task: BfclTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Refused, match=why):
        checked(task)
    monkeypatch.setattr(verification, check, lambda *_: None)
    checked(task)


@pytest.mark.parametrize("reference", ["ls(", "no_such_tool()", "ls(a=[])(1)", "ls(a=open('x'))"])
def test_a_reference_that_cannot_be_read_is_refused(reference: str) -> None:
    task = replace(planted(FILES, (LIST_ALL, [LS])), reference=((reference,),))
    with pytest.raises(Refused, match="the reference cannot be read"):
        checked(task)


def test_only_the_second_execution_sees_a_tool_that_answers_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    task = planted(TRADING, ("Tell me what time it is.", [ToolCall("get_current_time", {})]))

    def clock(first: Sequence[str]) -> Callable[[Any], dict[str, str]]:
        texts = itertools.chain(first, itertools.repeat("later"))
        return lambda self: {"current_time": next(texts)}

    trading = tool_class("TradingBot")
    monkeypatch.setattr(trading, "get_current_time", clock(["now", "soon"]))
    with pytest.raises(Refused, match="does not do the same twice"):
        checked(task)
    monkeypatch.setattr(trading, "get_current_time", clock(["now", "soon"]))
    monkeypatch.setattr(verification, "_is_repeatable", lambda *_: None)
    checked(task)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("x1_y", "Make x1_yz here"),
        ("alpha", "Make alpha_2 here"),
    ],
)
def test_a_value_within_another_word_is_not_stated(value: str, text: str) -> None:
    task = planted(FILES, (text, [ToolCall("mkdir", {"dir_name": value})]))
    with pytest.raises(Refused, match="neither stated nor shown"):
        checked(task)


def test_a_phrase_or_an_earlier_result_is_enough() -> None:
    count = ToolCall("wc", {"file_name": "notes.txt", "mode": "l"})
    new = ToolCall("touch", {"file_name": "notes.txt"})
    one = planted(FILES, ("Create notes.txt.", [new]), ("Count its lines.", [count]))
    assert checked(one)
    with pytest.raises(Refused, match="neither stated nor shown"):
        checked(planted(FILES, ("Create notes.txt.", [new]), ("Count.", [count])))


# ---- filters -----------------------------------------------------------------------------------

ALPHA, BETA, GAMMA, DELTA, OMEGA = (
    ToolCall("mkdir", {"dir_name": name}) for name in ("alpha", "beta", "gamma", "delta", "omega")
)
LONG = "please do what the old captain of the northern fleet asked for"


@pytest.mark.parametrize(
    ("theirs", "ours", "why"),
    [
        (([ALPHA],), ([ALPHA],), "it contains an evaluation program"),
        (([ALPHA], [BETA]), ([ALPHA, GAMMA, BETA],), "it contains an evaluation program"),
        (
            ([OMEGA], [ALPHA, BETA, GAMMA]),
            ([DELTA, ALPHA], [BETA, GAMMA]),
            "it has a run of an evaluation program",
        ),
    ],
)
def test_a_program_of_the_evaluation_side_is_refused(
    theirs: Sequence[Sequence[ToolCall]], ours: Sequence[Sequence[ToolCall]], why: str
) -> None:
    side = EvaluationSide([planted(FILES, *(("A", calls) for calls in theirs))])
    with pytest.raises(Refused, match=why):
        side.check(planted(FILES, *(("B", calls) for calls in ours)))


@pytest.mark.parametrize(
    "ours",
    [
        ([ALPHA, GAMMA],),  # a single call is shared by nature
        ([BETA], [ALPHA]),  # another order
        ([DELTA, ALPHA, GAMMA],),
        ([replace(ALPHA, arguments={"dir_name": "alpha2"}), BETA],),
    ],
)
def test_a_program_of_its_own_is_not_refused(ours: Sequence[Sequence[ToolCall]]) -> None:
    side = EvaluationSide([planted(FILES, ("A", [ALPHA]), ("A", [BETA]), ("A", [GAMMA, OMEGA]))])
    side.check(planted(FILES, *(("B", calls) for calls in ours)))


def test_words_of_an_evaluation_message_are_refused() -> None:
    side = EvaluationSide([planted(FILES, (LONG, [ALPHA]))])
    side.check(planted(FILES, ("the old captain of the northern fleet", [BETA])))
    with pytest.raises(Refused, match="words of an evaluation message"):
        side.check(planted(FILES, ("Do what the OLD captain, of the northern fleet!", [BETA])))


def test_a_message_that_names_a_tool_is_refused() -> None:
    check_words(planted(FILES, ("Make the folder alpha here.", [ALPHA])))
    check_words(planted(FILES, ("Make 'mkdir'.", [ToolCall("mkdir", {"dir_name": "mkdir"})])))
    with pytest.raises(Refused, match="names a tool by its identifier"):
        check_words(planted(FILES, ("Use mkdir for alpha.", [ALPHA])))


def test_a_task_is_kept_once() -> None:
    kept = Kept()
    kept.add(planted(FILES, ("Make alpha, a folder for the captain.", [ALPHA])))
    kept.add(planted(FILES, ("Another text with the same kind of call.", [BETA])))
    kept.add(planted(FILES, ("Make alpha, a folder for the captain.", [ALPHA, BETA])))
    with pytest.raises(Refused, match="its program is there already"):
        kept.add(planted(FILES, ("Quite other words, only the program is known.", [ALPHA])))
    with pytest.raises(Refused, match="nearly the same task is there already"):
        kept.add(planted(FILES, ("Make a folder, alpha, for the captain.", [GAMMA])))


def test_a_seed_in_a_state_of_the_evaluation_side_is_not_used() -> None:
    other = replace(TRAVEL, initial_config={"MathAPI": {}, **FILES.initial_config})
    assert usable_seeds([FILES, TRAVEL], [other]) == [TRAVEL]
    assert usable_seeds([FILES, TRAVEL], []) == [FILES, TRAVEL]
    empty = replace(TRAVEL, initial_config={"MathAPI": {}})
    assert usable_seeds([empty], [empty]) == [empty]  # without a state nothing is shared


# ---- targets -----------------------------------------------------------------------------------


def targets(task: BfclTask) -> set[Label]:
    return {*targets_of(task, executed(task, parsed(task)))}


def test_targets_follow_from_the_execution() -> None:
    new = ToolCall("touch", {"file_name": "notes.txt"})
    text = ToolCall("echo", {"content": "Hello", "file_name": "notes.txt"})
    read = ToolCall("cat", {"file_name": "notes.txt"})
    assert targets(planted(FILES, ("A", [LS]))) == set()
    assert targets(planted(FILES, ("A", [new, text]))) == {
        Label.STATE_MISMATCH,
        Label.RECOVERY_FAILURE,
    }
    assert Label.MISSING_TOOL_CALL in targets(planted(FILES, ("A", [new, text, read])))
    assert targets(planted(FILES, ("A", [new]), ("B", [LS]), ("C", [read]))) == {
        Label.RESPONSE_MISMATCH
    }
    assert targets(planted(FILES, ("A", []), ("B", [LS]))) == {Label.SPURIOUS_TOOL_CALL}
    assert Label.INVALID_TOOL_CALL in targets(_held_out_tool())
    three = ToolCall("get_flight_cost", {"travel_from": "SFO", "travel_to": "LAX"})
    three = replace(three, arguments={**three.arguments, "travel_date": "2025-01-01"})
    three = replace(three, arguments={**three.arguments, "travel_class": "economy"})
    assert Label.ARGUMENT_MISMATCH in targets(planted(TRAVEL, ("A", [three])))
    both = next(
        task
        for task in load_tasks().values()
        if {"GorillaFileSystem", "TwitterAPI"} == {*task.involved_classes}
    )
    two = [LS, ToolCall("posting_get_login_status", {})]
    assert targets(planted(both, ("A", two))) == {Label.INSTANCE_MISMATCH}
