"""The API for clients of AgentEvolver's trainer: what its EnvWorker and AgentFlow send and assert.

Written after github.com/modelscope/AgentEvolver, commit a5a8db8: agentevolver/client/env_client.py,
module/env_manager/env_worker.py, module/agent_flow/agent_flow.py.
"""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from serving import Service, serve

from env_service.environments import ENVIRONMENTS
from env_service.environments.bfcl.tasks import load_tasks, reference_calls
from seal.formats import ToolCall, render_calls


class Client:
    """What that client sends: all five fields each time, unknown ones with them."""

    def __init__(self, service: Service) -> None:
        self.service = service

    def post(self, endpoint: str, **fields: Any) -> Any:
        data = {
            "env_type": "default",
            "task_id": None,
            "instance_id": None,
            "messages": {},
            "params": {},
            **fields,
        }
        status, reply = self.service.request("POST", f"/agentevolver/{endpoint}", data)
        assert status == 200, reply  # raise_for_status
        assert reply["success"] is True
        return reply["data"]


Policy = Callable[[list[dict[str, Any]]], str]


def roll_out(
    client: Client, policy: Policy, task_id: str | int, params: dict[str, Any] | None = None
) -> dict[str, Any]:
    """A rollout with the assertions of EnvWorker.execute and AgentFlow.execute."""
    env = {"env_type": "bfcl", "instance_id": "one"}
    created = client.post("create", **env, task_id=task_id, params=params or {})
    messages = created["state"]
    assert isinstance(messages, list) and len(messages) == 2
    assert messages[0]["role"] == "system" and messages[-1]["role"] == "user"
    tools = client.post("get_info", instance_id="one")
    rewards = []
    for _ in range(60):
        action = {"content": policy(messages), "role": "assistant"}
        output = client.post("step", instance_id="one", messages=action)
        assert len(output["state"]) == 1
        assert output["state"][0]["role"] == "user"
        assert isinstance(output["state"][0]["content"], str)
        messages = [*messages, action, output["state"][0]]
        rewards.append(output["reward"])
        if output["is_terminated"]:
            break
    score = client.post("evaluate", instance_id="one", params={"sparse": True})
    full = client.post("evaluate", instance_id="one", params={"sparse": False})
    client.post("release", instance_id="one")
    assert isinstance(score, float) and full["accuracy"] == score
    return {
        "created": created,
        "messages": messages,
        "rewards": rewards,
        "score": score,
        "full": full,
        "tools": tools,
    }


def reference(task_id: str, calls_a_message: int = 10) -> Policy:
    """A policy that knows the task's reference and reads nothing."""
    said: list[str] = []
    for calls in reference_calls(load_tasks()[task_id]):
        every = [*calls]
        for start in range(0, len(every), calls_a_message):
            said.append(render_calls(every[start : start + calls_a_message], "hermes"))
        said.append("Done.")
    left = iter(said)
    return lambda messages: next(left, "Done.")


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    for service in serve({"bfcl": ENVIRONMENTS["bfcl"]}):
        yield Client(service)


@pytest.mark.parametrize("kind", ["base", "miss_func", "miss_param", "long_context"])
def test_references_pass_and_the_last_step_carries_the_reward(client: Client, kind: str) -> None:
    for number in (0, 17, 120):
        task_id = f"multi_turn_{kind}_{number}"
        seen = roll_out(client, reference(task_id), task_id)
        assert seen["score"] == 1.0, task_id
        assert seen["rewards"] == [0.0] * (len(seen["rewards"]) - 1) + [1.0]
        assert seen["messages"][-1]["content"] == "[CONVERSATION_COMPLETED]"
        assert seen["full"]["completed"] is True
        assert seen["full"]["test_id"] == task_id and seen["full"]["valid"] is True
        assert seen["full"]["bfcl_progress"] == 1.0


def test_several_results_are_one_message(client: Client) -> None:
    seen = roll_out(client, reference("multi_turn_base_0"), "multi_turn_base_0")
    calls = reference_calls(load_tasks()["multi_turn_base_0"])[0]
    assert len(calls) > 1
    results = seen["messages"][3]["content"]
    assert results.count("<tool_response>") == results.count("</tool_response>") == len(calls)
    assert seen["tools"].startswith("Available tools:\n- ") and "- mv" in seen["tools"]
    assert seen["created"]["info"]["tools_count"] == seen["tools"].count("\n- ")


def test_a_failed_episode_is_worth_nothing(client: Client) -> None:
    seen = roll_out(client, lambda messages: "I would rather not.", "multi_turn_base_0")
    assert seen["score"] == 0.0 and set(seen["rewards"]) == {0.0}
    assert seen["full"]["completed"] is True and seen["full"]["correct_count"] == 0


def test_progress_is_told_as_the_grader_of_the_published_seal_reads_it(client: Client) -> None:
    """github.com/yihaohu0118/SEAL, commit a0d22db: BfclDenseEnvGrader.calculate_reward."""
    task_id = "multi_turn_miss_param_11"
    none, calls, skipped = [[*calls] for calls in reference_calls(load_tasks()[task_id])]
    assert calls and skipped and not none
    said = iter(["Which one?", render_calls(calls, "hermes"), "Done.", "Done."])
    full = roll_out(client, lambda messages: next(said), task_id)["full"]
    assert float(full["bfcl_progress"]) == 1 / 2
    assert float(full["bfcl_progress_with_irrelevance"]) == 2 / 3
    assert full["bfcl_progress_info"] == {
        "passed_turns": 1,
        "scorable_turns": 2,
        "passed_irrelevance_turns": 1,
        "irrelevance_turns": 1,
        "failure_tags": ["correct_abstention", "pass", "empty_turn_model_response"],
    }


def test_a_number_names_a_task(client: Client) -> None:
    for number, task_id in ((0, "multi_turn_base_0"), ("205", "multi_turn_miss_func_5")):
        seen = roll_out(client, reference(task_id), number)
        assert seen["created"]["info"]["task_id"] == task_id and seen["score"] == 1.0
    body = {"env_type": "bfcl", "task_id": 800, "params": {}}
    status, reply = client.service.request("POST", "/agentevolver/create", body)
    assert (status, reply["error"]["code"]) == (422, "unknown_task")


def test_an_open_query_ends_with_its_first_turn(client: Client) -> None:
    calls = [ToolCall("pwd", {})]
    said = iter([render_calls(calls, "hermes"), "That is it.", "More."])
    seen = roll_out(
        client, lambda messages: next(said), "multi_turn_base_0", {"is_open_query": True}
    )
    assert len(seen["rewards"]) == 2


def test_what_means_nothing_here_is_taken_and_named(client: Client) -> None:
    params = {"rollout_mode": "train", "model_name": "x", "is_open_query": False, "bfcl": {"a": 1}}
    seen = roll_out(client, reference("multi_turn_base_0"), "multi_turn_base_0", params)
    assert seen["created"]["info"]["ignored"] == ["bfcl", "model_name", "rollout_mode"]
    # In the other API they are refused by name.
    body = {"env_type": "bfcl", "task_id": "multi_turn_base_0", "params": params}
    status, reply = client.service.request("POST", "/create", body)
    assert status == 422 and "rollout_mode" in json.dumps(reply)


def test_task_ids_come_with_a_slash_too_many(client: Client) -> None:
    ids = client.post("/get_env_profile", env_type="bfcl", params={"split": "train"})
    assert len(ids) == 400
    assert ids == client.post("get_env_profile", env_type="bfcl", params={"split": "train"})


def test_an_instance_that_is_not_there_is_an_error(client: Client) -> None:
    for endpoint in ("step", "evaluate", "get_info"):
        body = {"instance_id": "nobody", "messages": {"role": "assistant", "content": "x"}}
        status, reply = client.service.request("POST", f"/agentevolver/{endpoint}", body)
        assert (status, reply["error"]["code"]) == (404, "unknown_instance")
    assert client.post("release", instance_id="nobody") == {"released": False}


@pytest.mark.parametrize("messages", [[], {}, [{}], None])
def test_a_step_without_a_message_is_refused(client: Client, messages: Any) -> None:
    client.post("create", env_type="bfcl", task_id="multi_turn_base_0", instance_id="empty")
    body = {"instance_id": "empty", "messages": messages}
    status, reply = client.service.request("POST", "/agentevolver/step", body)
    assert (status, reply["error"]["code"]) == (422, "bad_message")
    client.post("release", instance_id="empty")
