"""The services that the tests talk to."""

from collections.abc import Iterator

import pytest
from serving import Service, serve

from env_service.environments import ENVIRONMENTS


@pytest.fixture
def toy() -> Iterator[Service]:
    yield from serve({"toy": ENVIRONMENTS["toy"]()})


@pytest.fixture(scope="session")
def bfcl() -> Iterator[Service]:
    yield from serve({"bfcl": ENVIRONMENTS["bfcl"]()})
