"""Tokens, sizes and counts of requests, and limits on the number and age of episodes."""

from collections.abc import Iterator
from typing import Any

import pytest
from serving import Service, serve

from env_service.environments import ENVIRONMENTS
from env_service.workers.pool import Limits

TOY = {"toy": ENVIRONMENTS["toy"]}
TIGHT = Limits(workers=1, max_episodes=3, idle_timeout_s=60.0, max_body_bytes=2000)


@pytest.fixture(scope="module")
def tight_service() -> Iterator[Service]:
    yield from serve(TOY, limits=TIGHT)


@pytest.fixture
def tight(tight_service: Service) -> Iterator[Service]:
    yield tight_service
    tight_service.release_all()


@pytest.fixture(scope="module")
def locked() -> Iterator[Service]:
    yield from serve(TOY, token="open sesame")


def create(service: Service, instance_id: str) -> tuple[int, Any]:
    body = {"env_type": "toy", "task_id": "toy_lamp", "instance_id": instance_id}
    status, reply = service.request("POST", "/create", body)
    if status == 200:
        service.created.add(instance_id)
    return status, reply


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "open sesame",
        "Bearer",
        "Bearer open",
        "Bearer open sesam\xe9",
        "Basic open sesame",
    ],
)
@pytest.mark.parametrize("path", ["/metrics", "/openapi.json", "/docs", "/nowhere"])
def test_without_the_token_nothing_is_shown(locked: Service, header: str, path: str) -> None:
    headers = {} if header is None else {b"authorization": header.encode("latin-1")}
    reply = locked.runner.run(locked.client.get(path, headers=headers))
    assert reply.status_code == 401
    assert reply.json()["error"]["code"] == "unauthorized"
    assert "sesame" not in reply.text


def test_with_the_token_everything_is(locked: Service) -> None:
    headers = {"authorization": "bearer  open sesame"}
    assert locked.runner.run(locked.client.get("/docs", headers=headers)).status_code == 200
    headers = {"authorization": "Bearer open sesame"}
    for path in ("/metrics", "/openapi.json", "/docs"):
        assert locked.runner.run(locked.client.get(path, headers=headers)).status_code == 200
    # A health probe has no token to show.
    assert locked.request("GET", "/healthz")[0] == 200


def test_a_body_that_is_too_large_is_refused(tight: Service) -> None:
    assert create(tight, "a")[0] == 200
    message = {"role": "assistant", "content": "x" * 2000}
    refused = tight.refused("/step", instance_id="a", messages=message)
    assert refused[:2] == (413, "too_large")

    async def in_parts() -> Any:
        async def parts() -> Any:
            for _ in range(300):
                yield b"[1,2,3,4],"

        return await tight.client.post("/step", content=parts())

    assert tight.runner.run(in_parts()).status_code == 413
    assert tight.say("a", "No.")["is_terminated"]


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/create", {"env_type": "x" * 900, "task_id": "toy_lamp"}),
        ("POST", "/create", {"env_type": "toy", "task_id": "x" * 900}),
        ("POST", "/create", {"env_type": "toy", "params": {"tool_format": "x" * 900}}),
        ("POST", "/create", {"env_type": "toy", "params": {"mode": "train", "run_id": "x" * 900}}),
        ("POST", "/get_env_profile", {"env_type": "toy", "params": {"split": "x" * 900}}),
        ("PUT", f"/runs/{'x' * 900}/profile", {"profile": {}}),
        ("GET", f"/runs/{'x' * 900}/interface", None),
    ],
)
def test_an_endless_name_is_refused_and_not_repeated(
    tight: Service, method: str, path: str, body: Any
) -> None:
    status, reply = tight.request(method, path, body)
    assert (status, reply["error"]["code"]) == (422, "invalid_request")
    assert "at most 200 characters" in reply["error"]["message"]
    assert "xxxx" not in reply["error"]["message"]


def test_more_episodes_than_the_service_takes_are_refused(tight: Service) -> None:
    for instance_id in ("a", "b", "c"):
        assert create(tight, instance_id)[0] == 200
    status, reply = create(tight, "d")
    assert (status, reply["error"]["code"]) == (429, "too_many_episodes")
    assert create(tight, "a")[0] == 200  # repeated
    tight.ok("/release", instance_id="a")
    assert create(tight, "d")[0] == 200


def test_an_idle_episode_is_dropped_and_its_client_told(tight: Service) -> None:
    for instance_id in ("idle", "used"):
        create(tight, instance_id)
    tight.clock.now += 40
    tight.ok("/get_info", instance_id="used")
    tight.clock.now += 40
    expired = (410, "instance_expired")
    assert tight.refused("/get_info", instance_id="idle")[:2] == expired
    assert tight.refused("/evaluate", instance_id="idle")[:2] == expired
    assert tight.say("used", "No.")["is_terminated"]
    assert tight.refused("/get_info", instance_id="never")[:2] == (404, "unknown_instance")
    # Its name is free again.
    assert create(tight, "idle")[0] == 200
    assert tight.ok("/get_info", instance_id="idle")["task_id"] == "toy_lamp"


def test_metrics_count(tight: Service) -> None:
    create(tight, "a")
    tight.refused("/step", instance_id="a", messages={"role": "assistant", "content": "x" * 2000})
    reply = tight.runner.run(tight.client.get("/metrics"))
    assert reply.headers["content-type"].startswith("text/plain")
    assert "env_service_episodes_live 1.0" in reply.text
    assert 'env_service_requests_total{route="/create",status="200"}' in reply.text
    assert 'env_service_requests_total{route="/step",status="413"}' in reply.text
    assert 'env_service_request_seconds_count{route="/create"}' in reply.text
