"""The dialogue loop against a scripted service: no socket, no environment."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any, get_args

import httpx
import pytest

from seal.client.client import EnvironmentClient, EnvironmentFault, Task
from seal.client.episode import Episode, OutOf, run_episode
from seal.wire import CONVERSATION_COMPLETED, Message, TokenLimit, ToolDoc

TASK = Task(task_id="toy_1", mode="train", run_id="run", interface_version=3, tool_format="hermes")
TOOL: ToolDoc = {"type": "function", "function": {"name": "light", "parameters": {}}}


class ScriptedService:
    """Answers the client: one tool result, then the end."""

    def __init__(self, *, fail_on: str = "", step_limit: bool = False, label: str = "pass") -> None:
        self.requests: list[tuple[str, dict[str, Any]]] = []
        self._step_limit = step_limit
        self._label = label
        self._fail_on = fail_on

    def __call__(self, request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content)
        path = request.url.path
        self.requests.append((path, body))
        if path == self._fail_on:
            error = {"code": "environment_error", "message": "it broke"}
            return httpx.Response(500, json={"success": False, "error": error})
        return httpx.Response(200, json={"success": True, "data": self._data(path, body)})

    def asked_to_judge(self) -> Any:
        """Params of the only /evaluate."""
        (params,) = [body["params"] for path, body in self.requests if path == "/evaluate"]
        return params

    def _data(self, path: str, body: dict[str, Any]) -> Any:
        match path:
            case "/create":
                info = {"tools": [TOOL], "category": "toy", "interface_version": 3}
                info |= {"instance_id": body["instance_id"], "task_id": "toy_1", "mode": "train"}
                return {"state": [{"role": "user", "content": "light the lamp"}], "info": info}
            case "/step":
                last = body["params"]["step"] == 1
                content = CONVERSATION_COMPLETED if last else "lit"
                role = "user" if last else "tool"
                return {
                    "state": [{"role": role, "content": content}],
                    "reward": 0.0,
                    "is_terminated": last,
                    "info": {"turn": 1, "step": 0, "truncated": last and self._step_limit},
                }
            case "/evaluate":
                turn = {"turn": 0, "label": self._label, "reason": "why", "step": None}
                return {
                    "accuracy": 1.0,
                    "diagnosis": [turn],
                    "interface_version": 3,
                    "truncated": False,
                    "task_id": "toy_1",
                    "category": "toy",
                    "progress": {
                        "scorable": 2,
                        "scorable_passed": 2,
                        "abstention": 0,
                        "abstention_passed": 0,
                    },
                }
            case _:
                return None


def play(service: ScriptedService, answers: list[str | OutOf]) -> Episode:
    async def generate(messages: Sequence[Message], tools: Sequence[ToolDoc]) -> str | OutOf:
        assert list(tools) == [TOOL]
        return answers.pop(0)

    async def run() -> Episode:
        transport = httpx.MockTransport(service)
        async with EnvironmentClient("http://service", "toy", transport=transport) as client:
            return await run_episode(client, TASK, generate)

    return asyncio.run(run())


def test_an_episode_goes_from_create_to_release_with_numbered_steps() -> None:
    service = ScriptedService()
    episode = play(service, ["a call", "Done."])
    assert [path for path, _ in service.requests] == [
        "/create",
        "/step",
        "/step",
        "/evaluate",
        "/release",
    ]
    assert [b["params"]["step"] for p, b in service.requests if p == "/step"] == [0, 1]
    assert len({body["instance_id"] for _, body in service.requests}) == 1
    assert episode.reward == 1.0
    assert [turn.label for turn in episode.turns] == ["pass"]
    assert episode.interface_version == 3
    assert (episode.step_turns, episode.truncated) == ((0, 1), False)
    assert episode.progress.scorable_passed == 2
    assert service.requests[0][1]["params"]["interface_version"] == 3
    assert [m["role"] for m in episode.messages] == [
        "user",
        "assistant",
        "tool",
        "assistant",
        "user",
    ]


@pytest.mark.parametrize("limit", get_args(TokenLimit))
def test_a_policy_out_of_tokens_ends_the_episode_as_truncated_and_is_still_judged(
    limit: TokenLimit,
) -> None:
    service = ScriptedService()
    episode = play(service, ["a call", OutOf(limit)])
    assert episode.truncated
    assert [path for path, _ in service.requests][-2:] == ["/evaluate", "/release"]
    assert episode.exit_status == limit
    assert service.asked_to_judge() == {"sparse": False, "exit_status": limit}


@pytest.mark.parametrize(("step_limit", "status"), [(False, "completed"), (True, "step_limit")])
def test_the_service_is_told_what_it_ended_itself(step_limit: bool, status: str) -> None:
    service = ScriptedService(step_limit=step_limit)
    episode = play(service, ["a call", "Done."])
    assert (episode.exit_status, episode.truncated) == (status, step_limit)
    assert service.asked_to_judge() == {"sparse": False, "exit_status": status}


@pytest.mark.parametrize("path", ["/create", "/step", "/evaluate"])
def test_a_service_failure_is_a_fault_and_no_episode(path: str) -> None:
    service = ScriptedService(fail_on=path)
    with pytest.raises(EnvironmentFault, match="it broke"):
        play(service, ["a call", "Done."])
    # What was created is released, so that failures do not fill the service.
    assert ("/release" in [p for p, _ in service.requests]) == (path != "/create")


def test_a_label_of_another_version_of_the_service_is_a_fault_that_names_it() -> None:
    service = ScriptedService(label="wrong_mood")
    with pytest.raises(EnvironmentFault, match="EvaluateReply .* 'wrong_mood'; known labels: inva"):
        play(service, ["first", "second"])
    assert service.requests[-1][0] == "/release"
