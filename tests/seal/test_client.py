"""The client against answers made up here: no socket, and pauses that take no time."""

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import httpx
import pytest

from seal.addresses import COOL_DOWN_S, Addresses
from seal.client import FULL_WAIT_S, EnvironmentClient, EnvironmentFault
from seal.wire import PROTOCOL_VERSION, CreateReply, InterfaceReply, Message

HEALTHY = {"protocol_version": PROTOCOL_VERSION, "environments": ["toy"]}
A, B = "http://a", "http://b"
SAID: Message = {"role": "assistant", "content": "Done."}

Answer = Callable[[httpx.Request], httpx.Response]


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds of every pause; none is slept."""
    slept: list[float] = []

    async def pause(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", pause)
    return slept


class Services:
    """Services by host name. Each takes episodes and answers; what it lacks is switched on."""

    def __init__(self) -> None:
        self.now = 0.0
        self.requests: list[tuple[str, str]] = []
        self.headers: list[httpx.Headers] = []
        self.dead: set[str] = set()
        self.full: set[str] = set()
        self.status: dict[str, list[tuple[int, str]]] = {}
        self.hashes: dict[str, str] = {}

    def __call__(self, request: httpx.Request) -> httpx.Response:
        host, path = request.url.host, request.url.path
        self.requests.append((host, path))
        self.headers.append(request.headers)
        if host in self.dead:
            raise httpx.ConnectError("refused", request=request)
        if self.status.get(host):
            return refusal(*self.status[host].pop(0))
        if path == "/create" and host in self.full:
            return refusal(429, "too_many_episodes")
        return reply(self._data(host, path))

    def _data(self, host: str, path: str) -> Any:
        match path:
            case "/create":
                info = {"tools": [], "category": "toy", "interface_version": 3}
                return {"state": [{"role": "user", "content": host}], "info": info}
            case "/step":
                info = {"turn": 0, "step": 0, "truncated": False}
                return {"state": [], "is_terminated": True, "info": info}
            case "/evaluate":
                return {
                    "accuracy": 1.0,
                    "diagnosis": [],
                    "interface_version": 3,
                    "truncated": False,
                    "progress": dict.fromkeys(
                        ("scorable", "scorable_passed", "abstention", "abstention_passed"), 1
                    ),
                }
            case "/runs/run/profile":
                made = self.hashes.get(host, "one")
                return {
                    "version": 4,
                    "content_hash": made,
                    "active": [],
                    "text": "",
                    "interface": {},
                }
            case "/healthz":
                return HEALTHY
            case _:
                return None

    def asked(self, path: str) -> list[str]:
        return [host for host, asked in self.requests if asked == path]


@pytest.fixture
def services(monkeypatch: pytest.MonkeyPatch) -> Services:
    made = Services()
    chosen = functools.partial(Addresses, first=0, clock=lambda: made.now)
    monkeypatch.setattr("seal.client.Addresses", chosen)
    return made


def use(
    services: Services,
    what: Callable[[EnvironmentClient], Awaitable[Any]],
    urls: str | Sequence[str] = (A, B),
    **settings: Any,
) -> Any:
    async def run() -> Any:
        transport = httpx.MockTransport(services)
        settings.setdefault("attempts", 2)
        async with EnvironmentClient(urls, "toy", transport=transport, **settings) as client:
            return await what(client)

    return asyncio.run(run())


def create(client: EnvironmentClient, instance_id: str = "1") -> Awaitable[CreateReply]:
    return client.create(
        instance_id,
        "toy_1",
        mode="train",
        run_id="run",
        interface_version=3,
        tool_format="hermes",
    )


def put_profile(client: EnvironmentClient) -> Awaitable[InterfaceReply]:
    return client.put_profile("run", {"version": 4}, {}, {"version": 3})


def health_of(answer: Answer, attempts: int = 2) -> None:
    async def check() -> None:
        transport = httpx.MockTransport(answer)
        async with EnvironmentClient(
            "http://service", "toy", attempts=attempts, transport=transport
        ) as client:
            await client.health()

    asyncio.run(check())


def reply(data: Any) -> httpx.Response:
    return httpx.Response(200, json={"success": True, "data": data})


def refusal(status: int, code: str) -> httpx.Response:
    error = {"code": code, "message": "no"}
    return httpx.Response(status, json={"success": False, "error": error})


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


# ---- several services ----------------------------------------------------------------------


def test_episodes_are_spread_and_stay_where_they_were_created(services: Services) -> None:
    async def play(client: EnvironmentClient) -> None:
        for number in "1234":
            await create(client, number)
        for number in "3142":
            await client.step(number, 0, SAID)
            await client.evaluate(number)
            await client.release(number)

    use(services, play)
    assert services.asked("/create") == ["a", "b", "a", "b"]
    for path in ("/step", "/evaluate", "/release"):
        assert services.asked(path) == ["a", "a", "b", "b"]


def test_concurrent_creates_are_spread_before_any_is_answered(services: Services) -> None:
    async def play(client: EnvironmentClient) -> None:
        await asyncio.gather(*(create(client, str(number)) for number in range(6)))

    use(services, play)
    assert sorted(services.asked("/create")) == ["a"] * 3 + ["b"] * 3


def test_an_episode_of_another_client_is_a_fault_and_no_request(services: Services) -> None:
    with pytest.raises(EnvironmentFault, match="no live instance 'x'"):
        use(services, lambda client: client.step("x", 0, SAID))
    assert services.requests == []


def test_what_never_began_or_is_over_does_not_count_as_live(services: Services) -> None:
    async def play(client: EnvironmentClient) -> None:
        services.status["a"] = [(500, "environment_error")] * 2
        for number in "12":
            with pytest.raises(EnvironmentFault):
                await create(client, f"broken {number}")
            await create(client, number)
            await client.release(number)
        services.requests.clear()
        await create(client, "3")
        await create(client, "4")

    use(services, play)
    assert services.asked("/create") == ["a", "b"]


def test_a_released_episode_does_not_count_as_live_even_if_the_release_failed(
    services: Services,
) -> None:
    async def play(client: EnvironmentClient) -> None:
        for number in "123":
            await create(client, number)
        services.status["a"] = [(500, "internal_error")]
        with pytest.raises(EnvironmentFault):
            await client.release("1")
        await client.release("3")
        await create(client, "4")

    use(services, play)
    assert services.asked("/create") == ["a", "b", "a", "a"]


def test_a_create_at_a_dead_address_goes_to_the_next_and_the_dead_one_is_left_out(
    services: Services, caplog: pytest.LogCaptureFixture
) -> None:
    services.dead = {"a"}

    async def play(client: EnvironmentClient) -> None:
        for number in "123":
            opened = await create(client, number)
            assert opened.state[0]["content"] == "b"

    use(services, play)
    assert services.asked("/create") == ["a", "a", "b", "b", "b"]
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "http://a/create" in caplog.text
    assert f"to http://a again in {COOL_DOWN_S:.0f} s" in caplog.text


def test_a_dead_address_is_tried_again_and_reported_when_it_is_back(
    services: Services, caplog: pytest.LogCaptureFixture
) -> None:
    services.dead = {"a"}

    async def play(client: EnvironmentClient) -> None:
        await create(client, "1")
        services.now += COOL_DOWN_S
        await create(client, "2")
        services.now += COOL_DOWN_S
        services.dead = set()
        services.requests.clear()
        for number in "345":
            await create(client, number)

    use(services, play)
    assert services.asked("/create") == ["a", "a", "a"]  # the one with the fewest
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 2, said  # once dead, once back, although it was found dead twice
    assert said[1] == "the environment service at http://a answers again"


def test_a_step_at_a_dead_address_is_a_fault_and_the_episode_lands_elsewhere(
    services: Services,
) -> None:
    async def play(client: EnvironmentClient) -> CreateReply:
        await create(client, "1")
        services.dead = {"a"}
        with pytest.raises(EnvironmentFault, match="no answer.*http://a/step"):
            await client.step("1", 0, SAID)
        with pytest.raises(EnvironmentFault, match="http://a/release"):
            await client.release("1")
        return await create(client, "2")

    assert use(services, play).state[0]["content"] == "b"
    assert services.asked("/create") == ["a", "b"]


def test_where_no_address_answers_the_fault_names_all(services: Services) -> None:
    services.dead = {"a", "b"}
    with pytest.raises(EnvironmentFault, match="no environment service.*http://a/.*http://b/"):
        use(services, create)
    assert services.asked("/create") == ["a", "a", "b", "b"]


def test_the_only_address_is_tried_although_it_did_not_answer(services: Services) -> None:
    async def play(client: EnvironmentClient) -> None:
        services.dead = {"a"}
        with pytest.raises(EnvironmentFault, match="^no answer.*http://a/create"):
            await create(client, "1")
        services.dead = set()
        await create(client, "2")

    use(services, play, A)


def test_a_create_that_is_answered_not_now_goes_to_the_next(services: Services) -> None:
    services.status["a"] = [(503, "shutting_down")] * 2
    assert use(services, create).state[0]["content"] == "b"


def test_a_full_service_passes_the_episode_on(services: Services, pauses: list[float]) -> None:
    services.full = {"a"}
    assert use(services, create).state[0]["content"] == "b"
    assert services.asked("/create") == ["a", "b"]
    assert pauses == []


def test_a_full_service_is_not_left_out(services: Services) -> None:
    async def play(client: EnvironmentClient) -> None:
        services.full = {"a"}
        await create(client, "1")
        services.full = set()
        await create(client, "2")

    use(services, play)
    assert services.asked("/create") == ["a", "b", "a"]


def test_where_all_are_full_the_episode_waits_for_room(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    services.full = {"a", "b"}
    waited: list[float] = []

    async def pause(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == 3:
            services.full = set()

    monkeypatch.setattr(asyncio, "sleep", pause)
    use(services, create)
    assert len(waited) == 3
    assert len(services.asked("/create")) == 7


def test_services_that_stay_full_are_a_fault_after_a_minute_of_pauses(
    services: Services, pauses: list[float]
) -> None:
    services.full = {"a", "b"}
    with pytest.raises(EnvironmentFault, match="http://a/.*too_many.*http://b/.*waited 60 s"):
        use(services, create)
    assert FULL_WAIT_S - 5.0 <= sum(pauses) <= FULL_WAIT_S
    assert max(pauses) <= 5.0


def test_a_dead_service_does_not_end_the_wait_for_a_full_one(
    services: Services, pauses: list[float]
) -> None:
    services.dead, services.full = {"a"}, {"b"}
    with pytest.raises(EnvironmentFault, match="too_many_episodes"):
        use(services, create)
    assert sum(pauses) > FULL_WAIT_S - 5.0
    assert services.asked("/create").count("a") == 2


def test_health_asks_all_and_names_the_one_that_is_not(services: Services) -> None:
    use(services, lambda client: client.health())
    assert services.asked("/healthz") == ["a", "b"]
    services.dead = {"b"}
    with pytest.raises(EnvironmentFault, match="http://b/healthz"):
        use(services, lambda client: client.health())


# ---- the profile ---------------------------------------------------------------------------


def test_a_profile_goes_to_every_service(services: Services) -> None:
    assert use(services, put_profile) == InterfaceReply(4, "one", (), "", {})
    assert services.requests == [("a", "/runs/run/profile"), ("b", "/runs/run/profile")]


def test_a_service_that_did_not_take_the_profile_is_reported_and_left_out(
    services: Services, caplog: pytest.LogCaptureFixture
) -> None:
    services.status["a"] = [(500, "internal_error")]

    async def play(client: EnvironmentClient) -> CreateReply:
        assert (await put_profile(client)).content_hash == "one"
        return await create(client)

    assert use(services, play).state[0]["content"] == "b"
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "http://a did not take the profile" in caplog.text
    assert "internal_error" in caplog.text


def test_a_profile_that_no_service_took_is_a_fault_that_names_all(services: Services) -> None:
    services.dead = {"a", "b"}
    with pytest.raises(EnvironmentFault, match="took the profile: .*http://a/.*http://b/"):
        use(services, put_profile)


def test_services_that_disagree_on_the_interface_are_a_fault(services: Services) -> None:
    services.hashes["b"] = "other"
    with pytest.raises(EnvironmentFault, match="different.*one at http://a, other at http://b"):
        use(services, put_profile)


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
