"""The services that the tests talk to."""

import logging
from collections.abc import Iterator

import pytest
from serving import Service, serve

from env_service.environments import ENVIRONMENTS
from env_service.workers.pool import Limits


@pytest.fixture(scope="session")
def toy_service() -> Iterator[Service]:
    yield from serve({"toy": ENVIRONMENTS["toy"]})


@pytest.fixture
def toy(toy_service: Service) -> Iterator[Service]:
    yield toy_service
    toy_service.release_all()


@pytest.fixture(scope="session")
def bfcl() -> Iterator[Service]:
    yield from serve({"bfcl": ENVIRONMENTS["bfcl"]}, limits=Limits(workers=2))


@pytest.fixture
def root_logger_as_it_was() -> Iterator[None]:
    """Puts the handlers and the level back that a service sets in its own process."""
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    yield
    root.handlers[:] = before
    root.setLevel(level)
