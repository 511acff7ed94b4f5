"""The toy world's verdict: labels, consequences, progress."""

from collections.abc import Sequence

import pytest

from env_service.environments.base import EpisodeOptions
from env_service.environments.toy.environment import TASKS, ToyEpisode
from seal.coevolution.labels import Label
from seal.formats import ToolCall, render_calls
from seal.wire import EvaluateReply, TurnProgress

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
    verdict = episode.evaluate()
    assert reply.info.truncated and verdict.truncated
    assert verdict.accuracy == float(label == Label.PASS)
    assert (labels(verdict), verdict.progress) == ([(label, False)], progress)
