import asyncio
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from seal.client import EnvironmentClient, EnvironmentFault
from seal.wire import PROTOCOL_VERSION

HEALTHY = {"protocol_version": PROTOCOL_VERSION, "environments": ["toy"]}

Answer = Callable[[httpx.Request], httpx.Response]


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
    assert seen == ["/healthz", "/healthz"]


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
