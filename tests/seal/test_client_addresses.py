"""The client of several services: where episodes go, and what it does about dead and full ones."""

import asyncio
import logging
from collections.abc import Awaitable

import httpx
import pytest
from scripted_services import SAID, A, B, Services, create, use

from seal.client.addresses import COOL_DOWN_S
from seal.client.client import FULL_WAIT_S, EnvironmentClient, EnvironmentFault
from seal.wire import CreateReply, InterfaceReply

pytestmark = pytest.mark.usefixtures("pauses")


def put_profile(client: EnvironmentClient) -> Awaitable[InterfaceReply]:
    return client.put_profile("run", {"version": 4}, {}, {"version": 3})


# ---- episodes ------------------------------------------------------------------------------


def test_episodes_are_spread_and_stay_where_they_were_created(services: Services) -> None:
    async def play(client: EnvironmentClient) -> None:
        for number in "1234":
            await create(client, number)
        for number in "3142":
            await client.step(number, 0, SAID)
            await client.evaluate(number, "completed")
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


def test_a_service_that_takes_too_long_for_the_profile_is_not_waited_for(
    services: Services, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seal.client.client.PROFILE_GRACE_S", 0.05)
    cancelled: list[str] = []

    async def answer(request: httpx.Request) -> httpx.Response:
        if request.url.host == "a":
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.append("a")
                raise
        return services(request)

    async def play() -> str:
        transport = httpx.MockTransport(answer)
        async with EnvironmentClient([A, B], "toy", transport=transport) as client:
            made = await put_profile(client)
            assert cancelled == ["a"]
            return made.content_hash

    assert asyncio.run(asyncio.wait_for(play(), 5.0)) == "one"
    assert "http://a did not take the profile" in caplog.text
    assert "no answer while another service gave one" in caplog.text


def test_a_profile_that_no_service_took_is_a_fault_that_names_all(services: Services) -> None:
    services.dead = {"a", "b"}
    with pytest.raises(EnvironmentFault, match="took the profile: .*http://a/.*http://b/"):
        use(services, put_profile)


def test_services_that_disagree_on_the_interface_are_a_fault(services: Services) -> None:
    services.hashes["b"] = "other"
    with pytest.raises(EnvironmentFault, match="different.*one at http://a, other at http://b"):
        use(services, put_profile)
