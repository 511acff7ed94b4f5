"""The toy world's verdict: labels, consequences, progress."""

from collections.abc import Sequence
from typing import get_args

import pytest

from env_service.environments.base import BadExitStatus, EpisodeOptions
from env_service.environments.toy.environment import TASKS, ToyEpisode
from seal.formats import ToolCall, render_calls
from seal.labels import Label
from seal.wire import EvaluateReply, TokenLimit, TurnProgress

ADD_3 = ToolCall("add", {"amount": 3})
ADD_1 = ToolCall("add", {"amount": 1})
LAMP_ON = ToolCall("switch_lamp", {"on": True})


def judged(*turns: Sequence[ToolCall]) -> EvaluateReply:
    episode = ToyEpisode(TASKS["toy_mixed"], EpisodeOptions(mode="eval"))
    for calls in turns:
        texts = [render_calls(calls, "hermes")] if calls else []
        for text in (*texts, "Done."):
            episode.step({"role": "assistant", "content": text})
    return episode.evaluate()


def labels(reply: EvaluateReply) -> list[tuple[str, bool]]:
    return [(turn.label, turn.cascade) for turn in reply.diagnosis]


def test_the_reference_passes() -> None:
    reply = judged([ADD_3], [], [LAMP_ON, ADD_1])
    assert reply.accuracy == 1.0
    assert reply.progress == TurnProgress(2, 2, 1, 1)
    assert labels(reply) == [
        (Label.PASS, False),
        (Label.CORRECT_ABSTENTION, False),
        (Label.PASS, False),
    ]


def test_a_wrong_total_is_carried_over() -> None:
    reply = judged([ADD_1], [], [LAMP_ON, ADD_1])
    assert labels(reply)[::2] == [
        (Label.RESPONSE_MISMATCH, False),
        (Label.RESPONSE_MISMATCH, True),
    ]
    assert reply.progress == TurnProgress(2, 0, 1, 1)


def test_a_call_that_is_wrong_itself_is_no_consequence() -> None:
    reply = judged([ADD_1, ADD_1], [], [LAMP_ON, ADD_3])
    assert labels(reply)[2] == (Label.RESPONSE_MISMATCH, False)


def test_a_spurious_call_is_no_abstention_and_what_it_changes_is_carried_over() -> None:
    reply = judged([ADD_3], [ADD_1], [LAMP_ON, ADD_1])
    assert labels(reply)[1:] == [
        (Label.SPURIOUS_TOOL_CALL, False),
        (Label.RESPONSE_MISMATCH, True),
    ]
    assert reply.progress == TurnProgress(2, 1, 1, 0)


def test_turns_that_were_never_begun_count_as_not_passed() -> None:
    assert judged().progress == TurnProgress(2, 0, 1, 0)
    assert judged([ADD_3]).progress == TurnProgress(2, 1, 1, 0)


def say(episode: ToyEpisode, *texts: str) -> None:
    for text in texts:
        episode.step({"role": "assistant", "content": text})


@pytest.mark.parametrize(("task_id", "accuracy"), [("toy_lamp", 1.0), ("toy_mixed", 0.0)])
@pytest.mark.parametrize("limit", get_args(TokenLimit))
def test_a_right_turn_that_ran_out_of_tokens_before_its_answer_is_no_pass(
    task_id: str, accuracy: float, limit: TokenLimit
) -> None:
    """In the task's last turn, too; the accuracy is what it is without the limit."""
    episode = ToyEpisode(TASKS[task_id], EpisodeOptions(mode="eval"))
    say(episode, render_calls([LAMP_ON if task_id == "toy_lamp" else ADD_3], "hermes"))
    unsaid, told = episode.evaluate(), episode.evaluate(limit)
    assert (labels(unsaid), unsaid.truncated) == ([(Label.PASS, False)], False)
    assert (labels(told), told.truncated) == ([(Label.RESPONSE_MISMATCH, False)], True)
    assert (
        told.diagnosis[0].reason
        == "the dialogue was cut (step limit or tokens) before the turn was answered"
    )
    assert (told.accuracy, told.progress) == (unsaid.accuracy, unsaid.progress)
    assert told.accuracy == accuracy
    assert episode.evaluate() == unsaid  # it leaves nothing behind


def test_a_turn_that_was_answered_stays_a_pass_when_the_next_one_has_no_tokens() -> None:
    episode = ToyEpisode(TASKS["toy_mixed"], EpisodeOptions(mode="eval"))
    say(episode, render_calls([ADD_3], "hermes"), "Done.")
    told = episode.evaluate("response_length")
    assert (labels(told), told.truncated) == ([(Label.PASS, False)], True)


def test_a_cut_turn_keeps_the_label_of_what_it_did_wrong() -> None:
    episode = ToyEpisode(TASKS["toy_mixed"], EpisodeOptions(mode="eval"))
    say(episode, render_calls([ToolCall("add", {"amount": "3"})], "hermes"))
    assert labels(episode.evaluate("max_model_len")) == [(Label.ARGUMENT_MISMATCH, False)]


def test_an_exit_status_that_does_not_fit_the_episode_is_refused() -> None:
    episode = ToyEpisode(TASKS["toy_lamp"], EpisodeOptions(mode="eval"))
    for status in ("completed", "step_limit"):
        with pytest.raises(BadExitStatus, match=f"is '{status}', but the episode goes on"):
            episode.evaluate(status)
    say(episode, render_calls([LAMP_ON], "hermes"), "Done.")
    assert episode.evaluate("completed") == episode.evaluate()
    with pytest.raises(BadExitStatus, match="but the episode has ended: expected completed, or"):
        episode.evaluate("response_length")


@pytest.mark.parametrize(
    ("task_id", "call", "label", "progress"),
    [
        ("toy_mixed", ADD_3, Label.RESPONSE_MISMATCH, TurnProgress(2, 0, 1, 0)),
        ("toy_lamp", LAMP_ON, Label.PASS, TurnProgress(1, 1, 0, 0)),
    ],
)
def test_the_step_limit_fails_a_task_in_any_turn_but_the_last(
    task_id: str, call: ToolCall, label: Label, progress: TurnProgress
) -> None:
    episode = ToyEpisode(TASKS[task_id], EpisodeOptions(mode="eval"))
    message = {"role": "assistant", "content": render_calls([call], "hermes")}
    while not (reply := episode.step(message)).is_terminated:
        continue
    verdict = episode.evaluate("step_limit")
    assert verdict == episode.evaluate()
    assert reply.info.truncated and verdict.truncated
    assert verdict.accuracy == float(label == Label.PASS)
    assert (labels(verdict), verdict.progress) == ([(label, False)], progress)
