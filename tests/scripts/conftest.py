"""The environment service that tests of the scripts talk to."""

from collections.abc import Iterator

import pytest

from benchmarks import SERVICE_PYTHON
from benchmarks.service.process import ServiceProcess


@pytest.fixture(scope="session")
def url() -> Iterator[str]:
    """Address of a BFCL service with one worker."""
    assert SERVICE_PYTHON.exists(), "no service: bash install.sh"
    with ServiceProcess(["--workers=1"]) as service:
        yield service.url
