"""Routes, envelope and protocol, over HTTP on the toy world."""

from typing import get_args

import pytest
from serving import Service, serve

from env_service.environments.base import SelfCheckFailed
from seal.formats import FORMATS, ToolCall, render_calls
from seal.wire import CONVERSATION_COMPLETED, PROTOCOL_VERSION, TokenLimit

LAMP_ON = render_calls([ToolCall("switch_lamp", {"on": True})], "hermes")
ADD_3 = render_calls([ToolCall("add", {"amount": 3})], "hermes")
ADD_1 = render_calls([ToolCall("add", {"amount": 1})], "hermes")


def play_mixed(toy: Service, instance_id: str, **params: object) -> None:
    toy.ok("/create", env_type="toy", task_id="toy_mixed", instance_id=instance_id, params=params)
    for text in (ADD_3, "Done.", "Fine, thank you.", LAMP_ON + "\n" + ADD_1):
        assert not toy.say(instance_id, text)["is_terminated"]


def test_health_names_protocol_and_environments(toy: Service) -> None:
    assert toy.request("GET", "/healthz") == (
        200,
        {
            "success": True,
            "data": {
                "status": "ok",
                "protocol_version": PROTOCOL_VERSION,
                "environments": ["toy"],
                "tasks_sha256": {},
            },
        },
    )


@pytest.mark.parametrize(
    ("place", "words"),
    [("faulty:Broken", "a wire is loose"), ("no_such_module:X", "toy does not import")],
)
def test_a_broken_environment_is_never_served(place: str, words: str) -> None:
    with pytest.raises(SelfCheckFailed, match=words):
        next(serve({"toy": place}))


def test_an_episode_from_create_to_release(toy: Service) -> None:
    created = toy.ok("/create", env_type="toy", task_id="toy_mixed", instance_id="a")
    assert [message["role"] for message in created["state"]] == ["system", "user"]
    assert '"name": "switch_lamp"' in created["state"][0]["content"]
    info = {
        "tools": [],
        "category": "toy",
        "interface_version": 0,
        "instance_id": "a",
        "task_id": "toy_mixed",
        "mode": "eval",
    }
    assert created["info"] == info
    assert toy.ok("/get_info", instance_id="a") == info

    assert toy.say("a", ADD_3) == {
        "state": [{"role": "tool", "name": "add", "content": '{"total": 3}'}],
        "reward": 0.0,
        "is_terminated": False,
        "info": {"turn": 0, "step": 0, "truncated": False},
    }
    assert toy.say("a", "Done.")["state"] == [{"role": "user", "content": "How are you?"}]
    assert toy.say("a", "Fine.")["info"] == {"turn": 2, "step": 2, "truncated": False}
    results = toy.say("a", LAMP_ON + "\n" + ADD_1)["state"]
    assert [message["content"] for message in results] == ['{"lamp": "on"}', '{"total": 4}']
    ended = toy.say("a", "Done.")
    assert ended["is_terminated"]
    assert ended["state"] == [{"role": "user", "content": CONVERSATION_COMPLETED}]

    verdict = toy.ok("/evaluate", instance_id="a")
    labels = [turn["label"] for turn in verdict.pop("diagnosis")]
    assert labels == ["pass", "correct_abstention", "pass"]
    assert verdict == {
        "accuracy": 1.0,
        "interface_version": 0,
        "truncated": False,
        "task_id": "toy_mixed",
        "category": "toy",
        "progress": {
            "scorable": 2,
            "scorable_passed": 2,
            "abstention": 1,
            "abstention_passed": 1,
        },
    }
    assert toy.ok("/evaluate", instance_id="a", params={"sparse": True}) == 1.0
    assert toy.ok("/release", instance_id="a") == {"released": True}
    assert toy.ok("/release", instance_id="a") == {"released": False}
    assert toy.refused("/get_info", instance_id="a")[:2] == (404, "unknown_instance")


@pytest.mark.parametrize("limit", get_args(TokenLimit))
def test_a_client_says_why_it_ended_a_dialogue(toy: Service, limit: str) -> None:
    toy.ok("/create", env_type="toy", task_id="toy_lamp", instance_id="a")
    toy.say("a", LAMP_ON)
    older = toy.ok("/evaluate", instance_id="a")
    assert (older["diagnosis"][0]["label"], older["truncated"]) == ("pass", False)
    told = toy.ok("/evaluate", instance_id="a", params={"exit_status": limit})
    assert (told["diagnosis"][0]["label"], told["truncated"]) == ("response_mismatch", True)
    assert told["accuracy"] == older["accuracy"] == 1.0
    sparse = {"sparse": True, "exit_status": limit}
    assert toy.ok("/evaluate", instance_id="a", params=sparse) == 1.0
    for status, code in (("completed", "bad_exit_status"), ("out_of_mood", "invalid_request")):
        refused = toy.refused("/evaluate", instance_id="a", params={"exit_status": status})
        assert refused[:2] == (422, code)
    # What the client got wrong does no harm to the episode.
    assert toy.say("a", "Done.")["is_terminated"]
    done = toy.ok("/evaluate", instance_id="a", params={"exit_status": "completed"})
    assert (done["diagnosis"][0]["label"], done["truncated"]) == ("pass", False)


def test_structured_tools_and_structured_calls_with_ids(toy: Service) -> None:
    params = {"tools": "structured"}
    created = toy.ok("/create", env_type="toy", task_id="toy_lamp", instance_id="a", params=params)
    assert [message["role"] for message in created["state"]] == ["user"]
    assert [doc["function"]["name"] for doc in created["info"]["tools"]] == ["switch_lamp", "add"]
    calls = [
        {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"amount": 1}'}},
        {"id": "c2", "type": "function", "function": {"name": "add", "arguments": {"amount": 1}}},
    ]
    message = {"role": "assistant", "content": None, "tool_calls": calls}
    state = toy.ok("/step", instance_id="a", messages=[message])["state"]
    assert [(reply["tool_call_id"], reply["content"]) for reply in state] == [
        ("c1", '{"total": 1}'),
        ("c2", '{"total": 2}'),
    ]


def test_a_body_as_agentevolvers_clients_send_it(toy: Service) -> None:
    created = toy.ok(
        "/create",
        env_type="toy",
        task_id="toy_lamp",
        instance_id=None,
        messages={},
        params={"is_open_query": False},
    )
    instance_id = created["info"]["instance_id"]
    common = {"env_type": "toy", "task_id": None, "instance_id": instance_id}
    message = {"role": "assistant", "content": LAMP_ON}
    toy.ok("/step", **common, messages=message, params={})
    assert toy.ok("/evaluate", **common, messages={}, params={"sparse": True}) == 1.0
    toy.ok("/release", **common, messages={}, params={})
    common["instance_id"] = None
    params = {"split": "train"}
    assert toy.ok("/get_env_profile", **common, messages={}, params=params) == ["toy_lamp"]


def test_a_repeated_step_is_answered_from_the_record(toy: Service) -> None:
    toy.ok("/create", env_type="toy", task_id="toy_mixed", instance_id="a")
    first = toy.say("a", ADD_3, step=0)
    assert toy.say("a", ADD_3, step=0) == first
    message = {"role": "assistant", "content": ADD_3}
    status, code, text = toy.refused("/step", instance_id="a", messages=message, params={"step": 2})
    assert (status, code) == (409, "step_out_of_order")
    assert "got step 2" in text and "expected 1" in text
    other = {"role": "assistant", "content": ADD_1}
    status, code, text = toy.refused("/step", instance_id="a", messages=other, params={"step": 0})
    assert (status, code) == (409, "step_taken")
    assert "step 0 of instance 'a' was taken with another message; the next step is 1" in text
    assert toy.say("a", ADD_1, step=1)["state"][0]["content"] == '{"total": 4}'


def test_no_step_after_the_end(toy: Service) -> None:
    toy.ok("/create", env_type="toy", task_id="toy_lamp", instance_id="a")
    last = toy.say("a", "No.", step=0)
    message = {"role": "assistant", "content": LAMP_ON}
    assert toy.refused("/step", instance_id="a", messages=message)[:2] == (409, "episode_over")
    assert toy.say("a", "No.", step=0) == last
    assert toy.ok("/evaluate", instance_id="a")["accuracy"] == 0.0


def test_evaluating_in_mid_episode_changes_nothing(toy: Service) -> None:
    play_mixed(toy, "a")
    unfinished = toy.ok("/evaluate", instance_id="a")
    assert toy.ok("/evaluate", instance_id="a") == unfinished
    assert toy.say("a", ADD_1)["state"][0]["content"] == '{"total": 5}'


@pytest.mark.parametrize(
    ("task_id", "text", "accuracy"), [("toy_mixed", ADD_3, 0.0), ("toy_lamp", LAMP_ON, 1.0)]
)
def test_too_many_steps_truncate_and_fail_unless_the_last_turn_is_right(
    toy: Service, task_id: str, text: str, accuracy: float
) -> None:
    toy.ok("/create", env_type="toy", task_id=task_id, instance_id="a")
    for _ in range(4):
        assert not toy.say("a", text)["is_terminated"]
    last = toy.say("a", text)
    assert last["is_terminated"] and last["info"]["truncated"]
    assert [message["role"] for message in last["state"]] == ["tool", "user"]
    verdict = toy.ok("/evaluate", instance_id="a")
    assert (verdict["accuracy"], verdict["truncated"]) == (accuracy, True)


@pytest.mark.parametrize(
    ("path", "body", "code", "words"),
    [
        ("/create", {"env_type": "tow"}, "unknown_env_type", "toy"),
        ("/create", {}, "unknown_env_type", "toy"),
        ("/create", {"env_type": "toy", "task_id": "x"}, "unknown_task", "toy_lamp, toy_mixed"),
        ("/create", {"env_type": "toy"}, "invalid_request", "task_id"),
        ("/create", {"params": {"mode": "evla"}}, "invalid_request", "'train' or 'eval'"),
        ("/create", {"params": {"mod": "eval"}}, "invalid_request", "params.mod"),
        ("/create", {"params": {"tools": "x"}}, "invalid_request", "'prompt' or 'structured'"),
        ("/create", {"moed": "eval"}, "invalid_request", "moed"),
        (
            "/create",
            {"env_type": "toy", "task_id": "toy_lamp", "params": {"tool_format": "xml"}},
            "unknown_tool_format",
            ", ".join(FORMATS),
        ),
        (
            "/create",
            {"env_type": "toy", "task_id": "toy_lamp", "params": {"mode": "train"}},
            "missing_run_id",
            "run_id",
        ),
        ("/step", {"params": {"step": -1}}, "invalid_request", "params.step"),
        ("/get_env_profile", {"env_type": "toy", "params": {"split": "x"}}, "unknown_split", "val"),
    ],
)
def test_what_is_unknown_is_an_error_that_names_the_known(
    toy: Service, path: str, body: dict[str, object], code: str, words: str
) -> None:
    status, got, message = toy.refused(path, **body)
    assert (status, got) == (422, code)
    assert words in message


@pytest.mark.parametrize(
    "messages",
    [
        None,
        [],
        [{"role": "assistant", "content": "a"}, {"role": "assistant", "content": "b"}],
        {"role": "user", "content": "a"},
        {"role": "assistant"},
        {"role": "assistant", "content": 3},
        {"role": "assistant", "content": "", "tool_calls": "x"},
    ],
)
def test_a_step_takes_one_assistant_message(toy: Service, messages: object) -> None:
    toy.ok("/create", env_type="toy", task_id="toy_mixed", instance_id="a")
    status, code, _ = toy.refused("/step", instance_id="a", messages=messages)
    assert (status, code) == (422, "bad_message")
    assert toy.say("a", ADD_3)["info"]["step"] == 0


@pytest.mark.parametrize(
    "body",
    [
        {"instance_id": "a", "messages": [1] * 300_000},
        {f"field{number}": 1 for number in range(50_000)},
        {"instance_id": "a", "params": {f"field{number}": 1 for number in range(50_000)}},
        {f"field{number}" * 1000: 1 for number in range(10)},
    ],
)
def test_a_refusal_is_short_however_much_is_wrong(toy: Service, body: dict[str, object]) -> None:
    status, code, message = toy.refused("/step", **body)
    assert (status, code) == (422, "invalid_request")
    assert len(message) < 2500


def test_a_live_instance_is_never_replaced(toy: Service) -> None:
    toy.ok("/create", env_type="toy", task_id="toy_mixed", instance_id="a")
    toy.say("a", ADD_3)
    body = {"env_type": "toy", "task_id": "toy_mixed", "instance_id": "a"}
    # A create that was repeated because its answer got lost has taken no step.
    assert toy.refused("/create", **body)[:2] == (409, "instance_exists")
    assert toy.say("a", ADD_1)["state"][0]["content"] == '{"total": 4}'


def test_a_create_that_failed_for_an_unknown_reason_leaves_no_episode(
    toy: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = {"env_type": "toy", "task_id": "toy_mixed", "instance_id": "a"}

    async def broken(_: object) -> None:
        raise RuntimeError("unforeseen")

    with monkeypatch.context() as patch:
        patch.setattr(toy.pool, "open", broken)
        assert toy.request("POST", "/create", body)[0] == 500
    toy.ok("/create", **body)


def test_a_repeated_create_is_answered_from_the_record(toy: Service) -> None:
    body = {"env_type": "toy", "task_id": "toy_mixed", "instance_id": "a"}
    first = toy.ok("/create", **body)
    assert toy.ok("/create", **body) == first
    other = {**body, "params": {"tools": "structured"}}
    assert toy.refused("/create", **other)[:2] == (409, "instance_exists")
    one, same = toy.both("/create", {**body, "instance_id": "b"}, {**body, "instance_id": "b"})
    assert one == same and one[0] == 200
    toy.created.add("b")
    assert toy.say("a", ADD_3)["state"][0]["content"] == '{"total": 3}'


@pytest.mark.parametrize("number", [True, "0", 0.0])
def test_a_step_number_is_an_integer(toy: Service, number: object) -> None:
    toy.ok("/create", env_type="toy", task_id="toy_mixed", instance_id="a")
    message = {"role": "assistant", "content": ADD_3}
    status, code, text = toy.refused(
        "/step", instance_id="a", messages=message, params={"step": number}
    )
    assert (status, code) == (422, "invalid_request")
    assert "params.step" in text


def test_half_a_surrogate_pair_is_no_fault_of_the_service(toy: Service) -> None:
    toy.ok("/create", env_type="toy", task_id="toy_mixed", instance_id="a")
    call = {"id": "\ud800", "function": {"name": "add", "arguments": {"amount": 1}}}
    message = {"role": "assistant", "content": "\ud800", "tool_calls": [call]}
    state = toy.ok("/step", instance_id="a", messages=message)["state"]
    assert state[0]["tool_call_id"] == "\ud800"


def test_unknown_routes_are_answered_in_the_envelope(toy: Service) -> None:
    for method, path, status in (("GET", "/nope", 404), ("GET", "/create", 405)):
        got, reply = toy.request(method, path)
        assert got == status
        assert reply["error"]["code"] == "no_such_route"


def test_two_requests_never_work_on_one_episode(toy: Service) -> None:
    toy.ok("/create", env_type="toy", task_id="toy_mixed", instance_id="a")
    body = {"instance_id": "a", "messages": {"role": "assistant", "content": ADD_3}}
    answers = toy.both("/step", body, body)
    assert sorted(status for status, _ in answers) == [200, 409]
    (refused,) = (reply for status, reply in answers if status == 409)
    assert refused["error"]["code"] == "instance_busy"
    assert toy.say("a", ADD_1)["state"][0]["content"] == '{"total": 4}'


def test_the_routes_are_documented(toy: Service) -> None:
    status, schema = toy.request("GET", "/openapi.json")
    assert status == 200
    assert {"/create", "/step", "/evaluate", "/runs/{run_id}/profile"} <= set(schema["paths"])
