"""Requests made up from the OpenAPI schema: none fails the service, answers are as documented."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
)
from serving import running

ROUTES = (
    ("POST", "/create"),
    ("POST", "/step"),
    ("POST", "/evaluate"),
    ("POST", "/get_info"),
    ("POST", "/release"),
    ("POST", "/get_env_profile"),
    ("PUT", "/runs/{run_id}/profile"),
    ("GET", "/runs/{run_id}/interface"),
    ("GET", "/healthz"),
    ("GET", "/metrics"),
    ("POST", "/agentevolver/create"),
    ("POST", "/agentevolver/step"),
    ("POST", "/agentevolver/evaluate"),
    ("POST", "/agentevolver/get_info"),
    ("POST", "/agentevolver/release"),
    ("POST", "/agentevolver/get_env_profile"),
)
KNOWN = {"env_type": "toy", "task_id": "toy_mixed", "instance_id": "a"}
EXAMPLES = 40


@pytest.fixture(scope="module")
def documented() -> Iterator[schemathesis.BaseSchema]:
    with running() as (_, address):
        yield schemathesis.openapi.from_url(f"{address}/openapi.json")


def test_every_route_is_tried(documented: schemathesis.BaseSchema) -> None:
    tried = set()
    for result in documented.get_all_operations():
        assert isinstance(result, Ok), result.err()
        operation = result.ok()
        tried.add((operation.method.upper(), operation.path))
    assert tried == set(ROUTES)


@pytest.mark.parametrize(("method", "path"), ROUTES)
@pytest.mark.parametrize("mode", list(schemathesis.GenerationMode))
def test_made_up_requests(
    documented: schemathesis.BaseSchema,
    method: str,
    path: str,
    mode: schemathesis.GenerationMode,
) -> None:
    """Half of them name what is there, so that they get beyond the first check."""
    wire = documented.get_base_url() + ("/agentevolver" if "agentevolver" in path else "")
    httpx.post(f"{wire}/create", json=KNOWN, trust_env=False)
    operation = documented[path][method]
    if mode is schemathesis.GenerationMode.NEGATIVE and method == "GET":
        pytest.skip("there is nothing to get wrong")

    @given(operation.as_strategy(generation_mode=mode), st.booleans())
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    def try_it(case: schemathesis.Case[Any], known: bool) -> None:
        if known and isinstance(case.body, dict):
            case.body |= KNOWN
        case.call_and_validate(
            checks=[
                schemathesis.checks.not_a_server_error,
                response_schema_conformance,
                content_type_conformance,
                negative_data_rejection,
            ]
        )

    try_it()
