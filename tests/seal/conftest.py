"""What the tests of the client share: services made up for them, and pauses that take no time."""

import asyncio
import functools

import pytest
from scripted_services import Services

from seal.client.addresses import Addresses


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds of every pause; none is slept."""
    slept: list[float] = []

    async def pause(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", pause)
    return slept


@pytest.fixture
def services(monkeypatch: pytest.MonkeyPatch) -> Services:
    made = Services()
    chosen = functools.partial(Addresses, first=0, clock=lambda: made.now)
    monkeypatch.setattr("seal.client.client.Addresses", chosen)
    return made
