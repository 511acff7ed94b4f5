"""Labels of episodes written by hand: calls that were repaired, skipped, or made otherwise.

Turn 1 of the task asks for `cd` and `grep`; all other turns follow the reference. Each episode runs
in both modes, and its calls are raw text in two formats, or structured.
"""

from dataclasses import replace

import pytest

from env_service.environments.base import EpisodeOptions
from env_service.environments.bfcl.episode import BfclEpisode
from env_service.environments.bfcl.tasks import load_tasks, reference_calls
from seal.coevolution.interface import Interface
from seal.formats import ToolCall, render_calls
from seal.labels import Label
from seal.wire import Message, TurnDiagnosis

TASK = load_tasks()["multi_turn_base_0"]
REFERENCE = reference_calls(TASK)
CD, GREP = REFERENCE[1]
OTHER_GREP = ToolCall("grep", {**GREP.arguments, "pattern": "nothing like it"})
LS = ToolCall("ls", {})
PWD = ToolCall("pwd", {})
TOUCH = ToolCall("touch", {"file_name": "new.txt"})
UNKNOWN = ToolCall("search_text", {"pattern": "budget analysis"})
MISSPELLED = ToolCall("gerp", GREP.arguments)
ACTIVE = Interface(7, True, True, True, (Label.INVALID_TOOL_CALL,))
OPTIONS = {
    "eval": EpisodeOptions(),
    "train": EpisodeOptions("train", ACTIVE),
    "retry": EpisodeOptions("train", ACTIVE, unreadable_message="retry"),
}


class Broken(str):
    """The name of a tool whose call breaks off; "" for a call that names none."""


Said = list[ToolCall | Broken]
"""Calls of one message."""
BROKEN_GREP = Broken("grep")


def test_the_turn_is_as_described() -> None:
    assert (CD.name, GREP.name, len(REFERENCE[1])) == ("cd", "grep", 2)


CASES: dict[str, tuple[list[Said], Label, int | None]] = {
    "reference": ([[CD], [GREP]], Label.PASS, None),
    # ---- a call that nothing repairs
    "unknown tool, then ls": ([[UNKNOWN], [LS]], Label.INVALID_TOOL_CALL, 0),
    "unknown tool, then cd": ([[UNKNOWN], [CD]], Label.INVALID_TOOL_CALL, 0),
    "misspelled grep, then another grep": (
        [[CD], [MISSPELLED], [OTHER_GREP]],
        Label.INVALID_TOOL_CALL,
        1,
    ),
    "broken grep, then ls": ([[CD, BROKEN_GREP], [LS]], Label.INVALID_TOOL_CALL, 0),
    "broken grep, then wrong state": ([[CD, BROKEN_GREP], [TOUCH]], Label.INVALID_TOOL_CALL, 0),
    "broken grep beside another grep": (
        [[CD, BROKEN_GREP, OTHER_GREP]],
        Label.INVALID_TOOL_CALL,
        0,
    ),
    "nameless call, then another grep": (
        [[CD, Broken("")], [OTHER_GREP]],
        Label.INVALID_TOOL_CALL,
        0,
    ),
    "grep before its broken call": (
        [[CD], [OTHER_GREP], [LS, BROKEN_GREP], [LS]],
        Label.INVALID_TOOL_CALL,
        2,
    ),
    # ---- a call that was repaired: what else is wrong is the label
    "broken grep, then another grep": (
        [[CD, BROKEN_GREP], [OTHER_GREP]],
        Label.RESPONSE_MISMATCH,
        None,
    ),
    "broken grep, then grep and too much": (
        [[CD, BROKEN_GREP], [GREP], [TOUCH]],
        Label.STATE_MISMATCH,
        None,
    ),
    "broken ls, then ls, no grep": ([[CD, Broken("ls")], [LS]], Label.MISSING_TOOL_CALL, None),
    # ---- a turn that passed
    "broken grep, then grep": ([[CD, BROKEN_GREP], [GREP]], Label.PASS, None),
    "unknown tool, then the reference": ([[UNKNOWN], [CD], [GREP]], Label.PASS, None),
    "the reference beside a broken call": ([[CD, GREP, Broken("")]], Label.PASS, None),
    # ---- a call that was skipped, or made otherwise
    "grep skipped": ([[CD]], Label.MISSING_TOOL_CALL, None),
    "grep skipped, ls instead": ([[CD], [LS]], Label.MISSING_TOOL_CALL, None),
    "other arguments": ([[CD], [OTHER_GREP]], Label.RESPONSE_MISMATCH, None),
    "both skipped": ([[PWD]], Label.MISSING_TOOL_CALL, None),
    "no call": ([], Label.MISSING_TOOL_CALL, None),
}


@pytest.mark.parametrize("mode", OPTIONS)
@pytest.mark.parametrize("form", ["hermes", "qwen3_coder", "structured"])
@pytest.mark.parametrize("name", CASES)
def test_the_label_of_a_turn_by_hand(name: str, form: str, mode: str) -> None:
    said, label, step = CASES[name]
    turn = play(said, form, mode)[1]
    assert (turn.label, turn.step, turn.cascade) == (label, step, False), turn
    assert "grep" not in turn.reason  # a name of the reference that the policy need not have said


def test_a_call_that_the_feedback_provokes_is_no_repair() -> None:
    """Only with the rule "retry" a message that holds nothing else does not end the turn."""
    for form in ("hermes", "structured"):
        for repair, label in (
            (LS, Label.INVALID_TOOL_CALL),
            (CD, Label.INVALID_TOOL_CALL),
            (OTHER_GREP, Label.RESPONSE_MISMATCH),
            (GREP, Label.PASS),
        ):
            turn = play([[CD], [BROKEN_GREP], [repair]], form, "retry")[1]
            assert turn.label == label, (form, repair, turn)
            assert turn.step == (1 if label == Label.INVALID_TOOL_CALL else None)


def test_a_turn_that_fails_by_an_earlier_one_keeps_its_invalid_call() -> None:
    """The turn would pass by itself, so it is a cascade; its label is by the same rules."""
    wrong: dict[int, list[Said]] = {0: [[*REFERENCE[0][:-1]]], 3: [[UNKNOWN], [*REFERENCE[3]]]}
    turns = labels_of(wrong, "hermes", "eval")
    assert turns[0].label == Label.STATE_MISMATCH
    assert (turns[3].label, turns[3].cascade) == (Label.INVALID_TOOL_CALL, True)


def play(said: list[Said], form: str, mode: str) -> list[TurnDiagnosis]:
    return labels_of({1: said}, form, mode)


def labels_of(changed: dict[int, list[Said]], form: str, mode: str) -> list[TurnDiagnosis]:
    """Labels of the reference with other messages in some turns."""
    raw = "hermes" if form == "structured" else form
    episode = BfclEpisode(TASK, replace(OPTIONS[mode], tool_format=raw))
    episode.open()
    for turn, calls in enumerate(REFERENCE):
        for one in changed.get(turn, [[*calls]]):
            assert episode.step(message(one, form)).info.turn == turn
        reply = episode.step({"role": "assistant", "content": "Done."})
    assert reply.is_terminated and not reply.info.truncated
    return [*episode.evaluate().diagnosis]


def message(said: Said, form: str) -> Message:
    if form == "structured":
        entries = [_entry(one) for one in said]
        return {"role": "assistant", "content": "", "tool_calls": entries}
    parts = [_raw(one, form) for one in said]
    return {"role": "assistant", "content": "\n".join(parts)}


def _entry(one: ToolCall | Broken) -> dict[str, object]:
    if isinstance(one, ToolCall):
        function: dict[str, object] = {"name": one.name, "arguments": one.arguments}
    else:
        function = {"name": str(one), "arguments": '{"pattern": '}
    return {"id": "1", "type": "function", "function": function}


def _raw(one: ToolCall | Broken, form: str) -> str:
    if isinstance(one, ToolCall):
        return render_calls([one], form)
    if form == "hermes":
        return f'<tool_call>\n{{"name": "{one}", "arguments": {{"pattern": }}}}\n</tool_call>'
    # Not an unclosed <function=...>: that takes in the next call of the message.
    return f'<tool_call>\n{{"name": "{one}"}}\n</tool_call>'
