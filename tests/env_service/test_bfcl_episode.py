"""The dialogue of a live episode: the benchmark's in mode eval, the interface's in mode train."""

from collections.abc import Sequence
from typing import get_args

import pytest
from bfcl_eval.constants.default_prompts import (
    DEFAULT_USER_PROMPT_FOR_ADDITIONAL_FUNCTION_PROMPTING,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from env_service.environments.base import EpisodeOptions, EpisodeOver
from env_service.environments.bfcl.episode import BfclEpisode
from env_service.environments.bfcl.execution import ToolExecutor
from env_service.environments.bfcl.tasks import load_tasks, reference_calls
from env_service.environments.dialogue import FEEDBACK_NAME
from seal.coevolution.diagnosis import CallEvidence
from seal.coevolution.interface import INITIAL, Interface
from seal.formats import ParseFault, ToolCall, render_calls
from seal.labels import Label
from seal.wire import CONVERSATION_COMPLETED, Message, StepReply, TokenLimit, ToolDoc

ACTIVE = Interface(7, True, True, True, (Label.MISSING_TOOL_CALL, Label.STATE_MISMATCH))
DONE = (Label.PASS, Label.CORRECT_ABSTENTION)
BROKEN_CALL = '<tool_call>\n{"name": "cd", "arguments": {"folder": }}\n</tool_call>'


class Forbidden(Interface):
    """An interface whose every use is a leak."""

    def tool_docs(self, docs: Sequence[ToolDoc]) -> list[ToolDoc]:
        raise AssertionError("mode eval asked the interface for docs")

    def system_note(self) -> str | None:
        raise AssertionError("mode eval asked the interface for a note")

    def parse_feedback(self, faults: Sequence[ParseFault]) -> str | None:
        raise AssertionError("mode eval asked the interface for feedback")

    def call_feedback(self, call: CallEvidence) -> str | None:
        raise AssertionError("mode eval asked the interface for feedback")


def episode_of(task_id: str, options: EpisodeOptions) -> BfclEpisode:
    return BfclEpisode(load_tasks()[task_id], options)


def say(episode: BfclEpisode, text: str) -> StepReply:
    return episode.step({"role": "assistant", "content": text})


def call(name: str, **arguments: object) -> str:
    return render_calls([ToolCall(name, arguments)], "hermes")


def test_mode_eval_shows_the_benchmark_whatever_the_interface() -> None:
    leaky = Forbidden(7, True, True, True, (Label.MISSING_TOOL_CALL,))
    for task in [*load_tasks().values()][::20]:
        episode = BfclEpisode(task, EpisodeOptions("eval", leaky, "hermes", "structured"))
        executor = ToolExecutor(task)
        opened = episode.open()
        assert (opened.info.interface_version, opened.info.tools) == (0, task.tools)
        shown: list[tuple[Message, ...]] = [opened.state]
        for index, calls in enumerate(reference_calls(task)):
            wrong = ToolCall(calls[0].name if calls else "pwd", {"wrong": 1})
            both = [*calls, wrong]
            results = say(episode, render_calls(both, "hermes")).state
            texts = [executor.execute(one, task.docs_at(index).keys()) for one in both]
            assert [message["content"] for message in results] == texts
            assert [message["name"] for message in results] == [one.name for one in both]
            shown.append(say(episode, BROKEN_CALL).state)
        assert shown.pop() == ({"role": "user", "content": CONVERSATION_COMPLETED},)
        for index, state in enumerate(shown):
            revealed = [doc["function"] for doc in task.held_out_docs.get(index, ())]
            text = DEFAULT_USER_PROMPT_FOR_ADDITIONAL_FUNCTION_PROMPTING.format(functions=revealed)
            expected = ({"role": "user", "content": text},) if revealed else task.turns[index]
            assert state == expected
        episode.evaluate()


def test_mode_train_shows_cues_note_and_hints() -> None:
    plain = episode_of("multi_turn_base_0", EpisodeOptions(tools="structured"))
    options = EpisodeOptions("train", ACTIVE, "hermes", "structured")
    episode = episode_of("multi_turn_base_0", options)
    opened = episode.open()
    assert opened.info.interface_version == 7
    assert [message["role"] for message in opened.state] == ["system", "user"]
    assert opened.state[0]["content"] == ACTIVE.system_note()
    assert opened.state[1:] == plain.open().state
    assert opened.info.tools != plain.open().info.tools
    assert load_tasks()["multi_turn_base_0"].tools == plain.open().info.tools
    (result,) = say(episode, call("cd", dir="document")).state
    (untouched,) = say(plain, call("cd", dir="document")).state
    assert result["content"].startswith(untouched["content"] + "\n")
    (fine,) = say(episode, call("pwd")).state
    assert fine == say(plain, call("pwd")).state[0]


def test_the_prompt_holds_note_and_docs_in_one_system_message() -> None:
    episode = episode_of("multi_turn_base_0", EpisodeOptions("train", ACTIVE))
    system, user = episode.open().state
    note = ACTIVE.system_note()
    assert note is not None
    assert system["content"].startswith(note)
    assert system["content"].count('{"type": "function"') == 32
    assert user["role"] == "user"


def test_revealed_docs_carry_cues_in_mode_train_only() -> None:
    texts = []
    for options in (EpisodeOptions(), EpisodeOptions("train", ACTIVE)):
        episode = episode_of("multi_turn_miss_func_3", options)
        episode.open()
        (message,) = say(episode, "No.").state
        texts.append(message["content"])
    eval_text, train_text = texts
    assert "I have updated some more functions" in eval_text
    assert "I have updated some more functions" in train_text
    assert eval_text != train_text


SILENT = Interface(1, True, True, False, ())


@pytest.mark.parametrize("interface", [INITIAL, SILENT, ACTIVE], ids=["none", "silent", "active"])
def test_broken_calls_end_the_turn_and_a_hint_on_them_stands_with_the_next_one(
    interface: Interface,
) -> None:
    plain = episode_of("multi_turn_base_0", EpisodeOptions())
    episode = episode_of("multi_turn_base_0", EpisodeOptions("train", interface))
    (question,) = say(plain, BROKEN_CALL).state
    reply = say(episode, BROKEN_CALL)
    assert reply.info.turn == 1 and reply.state[-1] == question
    hints = reply.state[:-1]
    assert [(hint["role"], hint["name"]) for hint in hints] == (
        [("tool", FEEDBACK_NAME)] if interface is ACTIVE else []
    )
    # After the last turn no observation follows, so there is none for a hint to stand with.
    for turn in range(2, 4):
        assert say(episode, "Done.").info.turn == turn
    last = say(episode, BROKEN_CALL)
    assert last.is_terminated
    assert [message["content"] for message in last.state] == [CONVERSATION_COMPLETED]


@pytest.mark.parametrize("interface", [INITIAL, SILENT, ACTIVE], ids=["none", "silent", "active"])
def test_with_the_rule_retry_broken_calls_are_answered_in_every_arm(interface: Interface) -> None:
    options = EpisodeOptions("train", interface, unreadable_message="retry")
    episode = episode_of("multi_turn_miss_func_3", options)
    reply = say(episode, BROKEN_CALL)
    assert reply.info.turn == 0
    (told,) = reply.state
    assert (told["role"], told["name"]) == ("tool", FEEDBACK_NAME)
    error, *hint = told["content"].split("\n")
    # As in the published environment, the tools are named: those that may be called at this turn.
    named = error.rpartition(": ")[2].split(", ")
    task = load_tasks()["multi_turn_miss_func_3"]
    assert named == [*task.docs_at(0)] and named != [*task.docs_at(len(task.turns) - 1)]
    assert len(hint) == (1 if interface is ACTIVE else 0)
    assert say(episode, "Sorry.").info.turn == 1


def test_mode_eval_has_no_other_rule_than_the_benchmark() -> None:
    with pytest.raises(ValueError, match="unreadable_message must be ends_turn"):
        EpisodeOptions(unreadable_message="retry")


def test_good_calls_beside_a_broken_one_are_executed() -> None:
    text = f"{call('pwd')}\n{BROKEN_CALL}"
    plain = episode_of("multi_turn_base_0", EpisodeOptions())
    assert [message["name"] for message in say(plain, text).state] == ["pwd"]
    hinted = episode_of("multi_turn_base_0", EpisodeOptions("train", ACTIVE))
    assert [message["name"] for message in say(hinted, text).state] == ["pwd", FEEDBACK_NAME]
    rule = EpisodeOptions("train", INITIAL, unreadable_message="retry")
    told = episode_of("multi_turn_base_0", rule)
    assert [message["name"] for message in say(told, text).state] == ["pwd", FEEDBACK_NAME]
    assert plain.evaluate().diagnosis[0].label == Label.INVALID_TOOL_CALL


def test_a_broken_structured_call_is_answered_under_its_id() -> None:
    episode = episode_of("multi_turn_base_0", EpisodeOptions("train", ACTIVE))
    calls = [
        {"id": "a", "type": "function", "function": {"name": "pwd", "arguments": "{"}},
        {"id": "b", "type": "function", "function": {"name": "pwd", "arguments": "{}"}},
    ]
    reply = episode.step({"role": "assistant", "content": "", "tool_calls": calls})
    ids = [(message["name"], message["tool_call_id"]) for message in reply.state]
    assert ids == [("pwd", "b"), (FEEDBACK_NAME, "a")]


@pytest.mark.parametrize("text", [call("pwd"), BROKEN_CALL])
def test_twenty_steps_a_turn_and_no_more(text: str) -> None:
    options = EpisodeOptions("train", ACTIVE, unreadable_message="retry")
    episode = episode_of("multi_turn_base_0", options)
    for _ in range(20):
        assert not say(episode, text).is_terminated
    assert say(episode, "Next.").info.turn == 1
    for _ in range(20):
        assert not say(episode, text).is_terminated
    last = say(episode, text)
    assert last.is_terminated and last.info.truncated
    assert last.state[-1]["content"] == CONVERSATION_COMPLETED
    assert [turn.turn for turn in episode.evaluate().diagnosis] == [0, 1]
    with pytest.raises(EpisodeOver):
        say(episode, "Hello?")


def test_evaluating_in_mid_episode_leaves_it_untouched() -> None:
    task = load_tasks()["multi_turn_base_0"]
    judged, left_alone = BfclEpisode(task, EpisodeOptions()), BfclEpisode(task, EpisodeOptions())
    assert judged.evaluate().diagnosis == ()
    for calls in reference_calls(task):
        for text in (*(render_calls([one], "hermes") for one in calls), "Done."):
            assert say(judged, text) == say(left_alone, text)
            assert judged.evaluate().accuracy in (0.0, 1.0)
    assert judged.evaluate() == left_alone.evaluate()
    assert judged.evaluate().accuracy == 1.0


@pytest.mark.parametrize("task_id", ["multi_turn_base_0", "multi_turn_miss_func_0"])
@given(st.data())
@settings(deadline=None, max_examples=25)
def test_where_tokens_run_out_changes_the_label_of_the_open_turn_alone(
    task_id: str, data: st.DataObject
) -> None:
    """Wherever the reference is cut: the verdict is that of a client that says nothing."""
    task = load_tasks()[task_id]
    episode = BfclEpisode(task, EpisodeOptions())
    texts = [
        text
        for calls in reference_calls(task)
        for text in (*(render_calls([one], "hermes") for one in calls), "Done.")
    ]
    said = data.draw(st.integers(0, len(texts) - 1))
    for text in texts[:said]:
        say(episode, text)
    is_open = said > 0 and texts[said - 1] != "Done."
    silent = episode.evaluate()
    told = episode.evaluate(data.draw(st.sampled_from(get_args(TokenLimit))))
    assert told.truncated and not silent.truncated
    assert (told.accuracy, told.progress) == (silent.accuracy, silent.progress)
    ended = len(silent.diagnosis) - is_open
    assert told.diagnosis[:ended] == silent.diagnosis[:ended]
    assert len(told.diagnosis) == len(silent.diagnosis)
    assert all(turn.label not in DONE for turn in told.diagnosis[ended:])


def test_all_calls_of_the_last_turn_and_no_token_for_its_answer() -> None:
    """bfcl-eval's verdict is 1.0, and the turn was not answered: no pass."""
    task = load_tasks()["multi_turn_base_0"]
    episode = BfclEpisode(task, EpisodeOptions())
    for turn, calls in enumerate(reference_calls(task)):
        if turn:
            say(episode, "Done.")
        say(episode, render_calls(calls, "hermes"))
    silent, told = episode.evaluate(), episode.evaluate("max_model_len")
    assert silent.accuracy == told.accuracy == 1.0
    assert [turn.label for turn in silent.diagnosis] == [Label.PASS] * 4
    assert [turn.label for turn in told.diagnosis] == [*[Label.PASS] * 3, Label.RESPONSE_MISMATCH]


def test_a_turn_in_which_the_assistant_has_not_spoken_has_no_label() -> None:
    episode = episode_of("multi_turn_base_0", EpisodeOptions())
    say(episode, "Done.")
    assert [turn.turn for turn in episode.evaluate().diagnosis] == [0]
