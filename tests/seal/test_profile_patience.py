"""A service that is away when a round's profile is due: how long it is waited for."""

import asyncio
import logging
from collections.abc import Callable

import httpx
import pytest
from scripted_services import EVOLVED, refusal, reply

from seal.client.client import EnvironmentClient, EnvironmentFault
from seal.wire import InterfaceReply

pytestmark = pytest.mark.usefixtures("pauses")

ATTEMPTS = 29
"""Two minutes of pauses: the patience of the published recipe."""

Away = Callable[[httpx.Request], httpx.Response]


def refuses_connections(request: httpx.Request) -> httpx.Response:
    raise httpx.ConnectError("refused", request=request)


def breaks_off(request: httpx.Request) -> httpx.Response:
    raise httpx.ReadError("reset", request=request)


def is_starting(request: httpx.Request) -> httpx.Response:
    return refusal(503, "not_ready")


class Service:
    """Takes a profile after it was away for a number of requests; hosts of `always_up` never are.

    Args:
        away: What it answers while it is away.
        requests_missed: For how many requests of each host.
        always_up: Hosts that are there from the start.
    """

    def __init__(self, away: Away, requests_missed: int, always_up: tuple[str, ...] = ()) -> None:
        self._away = away
        self._requests_missed = requests_missed
        self._always_up = always_up
        self.asked: list[str] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        host = request.url.host
        self.asked.append(host)
        if host not in self._always_up and self.asked.count(host) <= self._requests_missed:
            return self._away(request)
        return reply(EVOLVED)


def put(service: Service, *urls: str) -> InterfaceReply:
    async def run() -> InterfaceReply:
        transport = httpx.MockTransport(service)
        async with EnvironmentClient(
            urls or ("http://a",), "toy", attempts=ATTEMPTS, transport=transport
        ) as client:
            return await client.put_profile("run", {"version": 4}, {}, {"version": 3})

    return asyncio.run(run())


@pytest.mark.parametrize("away", [refuses_connections, breaks_off, is_starting])
@pytest.mark.parametrize("missed", [1, ATTEMPTS - 1])
def test_a_service_that_comes_back_in_time_gets_the_profile(
    pauses: list[float], away: Away, missed: int
) -> None:
    service = Service(away, missed)
    assert put(service).version == 4
    assert len(service.asked) == missed + 1
    assert len(pauses) == missed


@pytest.mark.parametrize(
    ("away", "words"),
    [
        (refuses_connections, "a/runs/run/profile .ConnectError, 29 attempts.; is it running"),
        (breaks_off, "a/runs/run/profile .ReadError, 29 attempts.; is it running"),
        (is_starting, "a/runs/run/profile answered 503 .not_ready.: no"),
    ],
)
def test_a_service_that_stays_away_is_a_fault_after_the_attempts(
    pauses: list[float], away: Away, words: str
) -> None:
    service = Service(away, ATTEMPTS)
    with pytest.raises(EnvironmentFault, match=words):
        put(service)
    assert len(service.asked) == ATTEMPTS
    # Pauses grow to 5 s and no further, so that a service that is back is not kept waiting.
    assert max(pauses[:3]) < 2.0 and pauses[5:] == [5.0] * (ATTEMPTS - 6)
    assert 120.0 <= sum(pauses) <= 127.0


def test_a_refusal_is_no_absence_and_a_fault_at_once(pauses: list[float]) -> None:
    def refuses(_: httpx.Request) -> httpx.Response:
        return refusal(422, "bad_profile")

    service = Service(refuses, 1)
    with pytest.raises(EnvironmentFault, match="bad_profile"):
        put(service)
    assert (service.asked, pauses) == (["a"], [])


def test_a_service_of_two_that_stays_away_is_reported_and_the_other_s_interface_counts(
    caplog: pytest.LogCaptureFixture,
) -> None:
    service = Service(refuses_connections, ATTEMPTS, always_up=("b",))
    assert put(service, "http://a", "http://b").content_hash == "one"
    assert sorted(service.asked) == ["a"] * ATTEMPTS + ["b"]
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "http://a did not take the profile" in caplog.text
