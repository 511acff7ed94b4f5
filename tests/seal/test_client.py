"""The client against answers made up here: no socket, and pauses that take no time."""

import asyncio
from collections.abc import Callable

import httpx
import pytest
from scripted_services import HEALTHY, SAID, A, Services, create, refusal, reply, use

from seal.client.client import EnvironmentClient, EnvironmentFault
from seal.wire import PROTOCOL_VERSION

pytestmark = pytest.mark.usefixtures("pauses")

Answer = Callable[[httpx.Request], httpx.Response]


def health_of(answer: Answer, attempts: int = 2) -> None:
    async def check() -> None:
        transport = httpx.MockTransport(answer)
        async with EnvironmentClient(
            "http://service", "toy", attempts=attempts, transport=transport
        ) as client:
            await client.health()

    asyncio.run(check())


def test_a_healthy_service_of_our_protocol_is_accepted() -> None:
    health_of(lambda request: reply(HEALTHY))


def test_another_protocol_version_is_refused_with_both_numbers() -> None:
    with pytest.raises(EnvironmentFault, match=f"version 999.*client {PROTOCOL_VERSION}"):
        health_of(lambda request: reply({**HEALTHY, "protocol_version": 999}))


def test_a_service_that_is_not_there_is_a_fault_that_names_it() -> None:
    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused", request=request)

    with pytest.raises(EnvironmentFault, match="http://service/healthz.*is it running"):
        health_of(refuse)


def test_a_request_without_an_answer_is_sent_again() -> None:
    seen: list[str] = []

    def second_time_lucky(request: httpx.Request) -> httpx.Response:
        seen.append(request.url.path)
        if len(seen) == 1:
            raise httpx.ReadError("connection lost", request=request)
        return reply(HEALTHY)

    health_of(second_time_lucky)
    assert seen[:2] == ["/healthz", "/healthz"]


def test_an_error_answer_is_a_fault_with_its_code_and_is_not_repeated() -> None:
    seen: list[str] = []

    def broken(request: httpx.Request) -> httpx.Response:
        seen.append(request.url.path)
        error = {"code": "environment_error", "message": "the verifier failed"}
        return httpx.Response(500, json={"success": False, "error": error})

    with pytest.raises(EnvironmentFault, match="500.*environment_error.*the verifier failed"):
        health_of(broken)
    assert len(seen) == 1


def test_an_answer_that_is_no_json_is_a_fault() -> None:
    with pytest.raises(EnvironmentFault, match="502"):
        health_of(lambda request: httpx.Response(502, text="<html>bad gateway</html>"))


def test_a_service_without_our_environment_is_refused() -> None:
    with pytest.raises(EnvironmentFault, match=r"does not serve 'toy', it serves \['bfcl'\]"):
        health_of(lambda request: reply({**HEALTHY, "environments": ["bfcl"]}))


@pytest.mark.parametrize("text", ["[]", '"ok"', '{"error": "not found"}'])
def test_json_of_another_kind_of_server_is_a_fault(text: str) -> None:
    with pytest.raises(EnvironmentFault, match="404 .no code."):
        health_of(lambda request: httpx.Response(404, text=text))


# ---- what is sent again --------------------------------------------------------------------


@pytest.mark.parametrize(("status", "code"), [(503, "shutting_down"), (409, "instance_busy")])
def test_an_answer_not_now_is_asked_again_after_a_pause(
    services: Services, pauses: list[float], status: int, code: str
) -> None:
    async def play(client: EnvironmentClient) -> None:
        await create(client)
        services.status["a"] = [(status, code)] * 2
        await client.step("1", 0, SAID)

    use(services, play, A, attempts=3)
    assert services.asked("/step") == ["a"] * 3
    assert len(pauses) == 2


@pytest.mark.parametrize(("status", "code"), [(503, "shutting_down"), (409, "instance_busy")])
def test_an_answer_not_now_is_a_fault_in_the_end(
    services: Services, status: int, code: str
) -> None:
    async def play(client: EnvironmentClient) -> None:
        await create(client)
        services.status["a"] = [(status, code)] * 9
        await client.step("1", 0, SAID)

    with pytest.raises(EnvironmentFault, match=f"{status} .{code}.: no"):
        use(services, play, A, attempts=3)
    assert services.asked("/step") == ["a"] * 3


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (410, "episode_expired"),
        (409, "step_out_of_order"),
        (422, "bad_message"),
        (500, "environment_error"),
        (429, "slow_down"),
    ],
)
def test_every_other_refusal_is_a_fault_at_once(
    services: Services, pauses: list[float], status: int, code: str
) -> None:
    services.status["a"] = [(status, code)]
    with pytest.raises(EnvironmentFault, match=f"http://a/create answered {status} .{code}."):
        use(services, create)
    assert services.requests == [("a", "/create")]
    assert pauses == []


# ---- the token -----------------------------------------------------------------------------


def test_a_token_goes_with_every_request_to_every_service(services: Services) -> None:
    async def play(client: EnvironmentClient) -> None:
        await client.health()
        await create(client)

    use(services, play, token="secret")
    assert len(services.requests) == 5
    assert {headers["Authorization"] for headers in services.headers} == {"Bearer secret"}


def test_without_a_token_there_is_no_header(services: Services) -> None:
    use(services, create)
    assert all("Authorization" not in headers for headers in services.headers)


@pytest.mark.parametrize(("token", "words"), [(None, "an access token"), ("x1y2", "another")])
def test_a_service_that_wants_a_token_is_a_fault_with_both_ways(
    services: Services, token: str | None, words: str
) -> None:
    services.status["a"] = [(401, "unauthorized")]
    with pytest.raises(EnvironmentFault, match=f"401.*{words}.*token_file.*SEAL_ENV_TOKEN") as said:
        use(services, create, token=token)
    assert services.requests == [("a", "/create")]
    assert "x1y2" not in str(said.value)


def test_health_finds_out_that_a_token_is_wanted_although_healthz_is_open() -> None:
    def guarded(request: httpx.Request) -> httpx.Response:
        return reply(HEALTHY) if request.url.path == "/healthz" else refusal(401, "unauthorized")

    with pytest.raises(EnvironmentFault, match="401.*wants an access token"):
        health_of(guarded)
