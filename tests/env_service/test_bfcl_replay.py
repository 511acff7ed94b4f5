"""References played through the HTTP app: the whole way from /create to the official verdict."""

import pytest
from serving import Service

from env_service.environments.bfcl.tasks import load_tasks, reference_calls
from seal.formats import FORMATS, render_calls
from seal.labels import Label
from seal.wire import CONVERSATION_COMPLETED

BEFORE_ITS_REVEAL = "multi_turn_miss_func_49"
"""Its reference calls a tool before it is revealed, so no episode can follow it."""


def replay(service: Service, task_id: str, tool_format: str) -> tuple[float, list[str]]:
    """Accuracy and labels of a reference played as one message a turn."""
    service.ok(
        "/create",
        env_type="bfcl",
        task_id=task_id,
        instance_id=task_id,
        params={"tool_format": tool_format},
    )
    step = 0
    for calls in reference_calls(load_tasks()[task_id]):
        texts = [render_calls(calls, tool_format)] if calls else []
        for text in (*texts, "Done."):
            reply = service.say(task_id, text, step=step)
            step += 1
    assert reply["state"] == [{"role": "user", "content": CONVERSATION_COMPLETED}]
    verdict = service.ok("/evaluate", instance_id=task_id)
    service.ok("/release", instance_id=task_id)
    return verdict["accuracy"], [turn["label"] for turn in verdict["diagnosis"]]


@pytest.mark.parametrize("tool_format", FORMATS)
def test_references_pass(bfcl: Service, tool_format: str) -> None:
    for task_id in [*load_tasks()][:: 20 * len(FORMATS)]:
        accuracy, labels = replay(bfcl, task_id, tool_format)
        assert accuracy == 1.0, task_id
        assert set(labels) <= {Label.PASS, Label.CORRECT_ABSTENTION}


@pytest.mark.slow
def test_all_references_but_one_pass(bfcl: Service) -> None:
    failed = []
    for task_id in load_tasks():
        accuracy, labels = replay(bfcl, task_id, "hermes")
        if accuracy != 1.0:
            failed.append(task_id)
        else:
            assert set(labels) <= {Label.PASS, Label.CORRECT_ABSTENTION}, task_id
    assert failed == [BEFORE_ITS_REVEAL]
    assert len(load_tasks()) == 800


def test_all_tasks_and_the_splits_are_listed(bfcl: Service) -> None:
    assert bfcl.ok("/get_env_profile", env_type="bfcl", params={"split": "all"}) == [*load_tasks()]
    status, code, message = bfcl.refused(
        "/get_env_profile", env_type="bfcl", params={"split": "tset"}
    )
    assert (status, code) == (422, "unknown_split")
    assert "all" in message
