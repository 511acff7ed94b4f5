"""The HTTP routes of the service.

In: requests of the HTTP contract (`seal.wire`). Out: its envelopes, with a fitting status. The JSON
that a worker process returns is passed on unread.
"""

import logging
import uuid
from collections.abc import Mapping
from typing import Annotated, Any, TypeAlias, TypeVar

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BeforeValidator
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, Response

from env_service import agentevolver
from env_service.access import Access, data_reply, error_reply
from env_service.docs_page import page
from env_service.environments.base import EpisodeOptions
from env_service.errors import ServiceError
from env_service.live import LiveEpisodes
from env_service.metrics import Metrics
from env_service.runs import Runs, read_update
from env_service.workers.frames import Spec
from env_service.workers.pool import Limits, WorkerPool
from seal import wire
from seal.coevolution.interface import INITIAL
from seal.formats import FORMATS
from seal.wire import Envelope, Message, Name

logger = logging.getLogger(__name__)

_MOST_FIELDS = 32
"""Fields that a body, or its params, may have."""
_MOST_PROBLEMS = 5
"""Problems of a request that its refusal names."""
_PROBLEMS = {
    "unexpected_keyword_argument": "there is no such field",
    "dataclass_type": "Input should be a JSON object",
}
"""Plainer texts than pydantic's for some types of problems."""


def _few_fields(body: Any) -> Any:
    """Refuse a body with too many fields: each unknown one is a problem, and they take seconds."""
    params = body.get("params") if isinstance(body, Mapping) else None
    for place, values in (("", body), ("params: ", params)):
        if isinstance(values, Mapping) and len(values) > _MOST_FIELDS:
            raise ValueError(f"{place}{len(values)} fields, expected at most {_MOST_FIELDS}")
    return body


Sent = TypeVar("Sent")
Bounded: TypeAlias = Annotated[Sent, BeforeValidator(_few_fields)]
"""A request's body, refused before it is checked if it has too many fields."""


def create_app(
    pool: WorkerPool,
    live: LiveEpisodes,
    limits: Limits,
    metrics: Metrics,
    token: str | None = None,
    hosts: frozenset[str] | None = None,
) -> FastAPI:
    """Build the service on worker processes that have been started.

    Without a token every client is admitted; without `hosts` a request may use any host name.
    """
    app = FastAPI(
        title="SEAL environment service",
        version=str(wire.PROTOCOL_VERSION),
        docs_url=None,
        redoc_url=None,
        responses={"default": {"model": wire.ErrorReply, "description": "What went wrong"}},
    )
    app.add_middleware(
        Access,
        token=token,
        max_body_bytes=limits.max_body_bytes,
        metrics=metrics,
        hosts=hosts,
    )
    runs = Runs(live.runs)
    _add_error_replies(app, metrics)
    _add_episode_routes(app, pool, live, runs)
    _add_run_routes(app, runs)
    app.include_router(agentevolver.router(pool, live, limits.max_episodes))

    @app.get("/healthz", response_model=Envelope[wire.HealthReply])
    async def healthz() -> Response:
        """Whether there is a worker that has called every tool class and verified once."""
        if not pool.healthy:
            raise ServiceError(
                503, "no_worker", "no worker process is ready; see the service's log"
            )
        tasks = {file.pool: file.sha256 for file in pool.tasks}
        health = wire.HealthReply("ok", wire.PROTOCOL_VERSION, pool.environments, tasks)
        return data_reply(health)

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return HTMLResponse(page(app.openapi()))

    @app.get("/metrics", response_class=Response)
    async def text_of_metrics() -> Response:
        """Counters in Prometheus form."""
        return Response(metrics.text(), media_type="text/plain; version=0.0.4")

    return app


def _add_episode_routes(app: FastAPI, pool: WorkerPool, live: LiveEpisodes, runs: Runs) -> None:
    @app.post("/create", response_model=Envelope[wire.CreateReply])
    async def create(body: Bounded[wire.CreateRequest]) -> Response:
        """Open an episode of a task."""
        spec = Spec(
            env_type=pool.known(body.env_type),
            task_id=_required("task_id", body.task_id),
            instance_id=body.instance_id or uuid.uuid4().hex,
            options=_options(body, runs),
            run_id=body.params.run_id,
        )
        created = await live.create(spec)
        logger.info(
            "create",
            extra={
                "instance": spec.instance_id,
                "task": spec.task_id,
                "mode": spec.options.mode,
                "run": spec.run_id,
                "interface": spec.options.interface_version,
            },
        )
        return data_reply(created)

    @app.post("/step", response_model=Envelope[wire.StepReply])
    async def step(body: Bounded[wire.StepRequest]) -> Response:
        """Take one assistant message and return what follows it."""
        instance_id = _required("instance_id", body.instance_id)
        message = _one_message(body.messages)
        return data_reply(await live.step(instance_id, message, body.params.step))

    @app.post("/evaluate", response_model=Envelope[wire.EvaluateReply | float])
    async def evaluate(body: Bounded[wire.EvaluateRequest]) -> Response:
        """Judge an episode as it stands, without changing it."""
        instance_id = _required("instance_id", body.instance_id)
        params = body.params
        return data_reply(await live.evaluate(instance_id, params.sparse, params.exit_status))

    @app.post("/get_info", response_model=Envelope[wire.EpisodeInfo])
    async def get_info(body: Bounded[wire.Request]) -> Response:
        """The `info` that /create returned."""
        return data_reply(live.info(_required("instance_id", body.instance_id)))

    @app.post("/release", response_model=Envelope[wire.ReleaseReply])
    async def release(body: Bounded[wire.Request]) -> Response:
        """Forget an episode."""
        instance_id = _required("instance_id", body.instance_id)
        released = live.release(instance_id)
        logger.info("release", extra={"instance": instance_id, "released": released})
        return data_reply(wire.ReleaseReply(released))

    @app.post("/get_env_profile", response_model=Envelope[list[str]])
    async def get_env_profile(body: Bounded[wire.ProfileRequest]) -> Response:
        """Task ids of a split."""
        return data_reply(await pool.task_ids(pool.known(body.env_type), body.params.split))


def _add_run_routes(app: FastAPI, runs: Runs) -> None:
    @app.put("/runs/{run_id}/profile", response_model=Envelope[wire.InterfaceReply])
    async def put_profile(run_id: Name, body: Bounded[wire.ProfileUpdate]) -> Response:
        """Evolve a run's learning interface from a failure profile."""
        interface = runs.update(run_id, *read_update(body))
        logger.info(
            "profile",
            extra={"run": run_id, "interface": interface.version, "active": interface.active()},
        )
        return data_reply(interface.to_reply())

    @app.get("/runs/{run_id}/interface", response_model=Envelope[wire.InterfaceReply])
    async def get_interface(run_id: Name) -> Response:
        """The interface that new episodes of a run show."""
        return data_reply(runs.newest(run_id).to_reply())


def _add_error_replies(app: FastAPI, metrics: Metrics) -> None:
    @app.exception_handler(ServiceError)
    async def service_error(_: Request, error: ServiceError) -> Response:
        if error.status == 500:
            metrics.environment_errors.inc()
        return error_reply(error)

    @app.exception_handler(RequestValidationError)
    async def invalid_request(_: Request, error: RequestValidationError) -> Response:
        problems = [
            f"{'.'.join(str(part)[:100] for part in problem['loc'])}: "
            f"{_PROBLEMS.get(problem['type'], problem['msg'])[:300]}"
            for problem in error.errors()[:_MOST_PROBLEMS]
        ]
        return error_reply(ServiceError(422, "invalid_request", "; ".join(problems)))

    @app.exception_handler(HTTPException)
    async def no_such_route(request: Request, error: HTTPException) -> Response:
        message = f"{request.method} {request.url.path}: {error.detail}"
        # Starlette's status is 400 for a body that is not JSON at all.
        code = "invalid_request" if error.status_code == 400 else "no_such_route"
        reply = error_reply(ServiceError(error.status_code, code, message))
        reply.headers.update(error.headers or {})  # Allow, with 405
        return reply

    @app.exception_handler(Exception)
    async def internal_error(_: Request, error: Exception) -> Response:
        logger.error("the service failed", exc_info=error)
        message = f"the service failed ({type(error).__name__})"
        return error_reply(ServiceError(500, "internal_error", message))


def _options(body: wire.CreateRequest, runs: Runs) -> EpisodeOptions:
    params = body.params
    if params.tool_format not in FORMATS:
        raise ServiceError(
            422,
            "unknown_tool_format",
            f"unknown params.tool_format {params.tool_format!r}; known: {', '.join(FORMATS)}",
        )
    if params.mode == "eval" and params.unreadable_message != "ends_turn":
        raise ServiceError(
            422,
            "not_the_benchmark",
            f"params.unreadable_message {params.unreadable_message!r} is for mode train; mode eval "
            "plays the benchmark, where an unreadable message ends the turn",
        )
    interface = INITIAL
    if params.mode == "train" and params.show_interface:
        if params.run_id is None:
            raise ServiceError(
                422, "missing_run_id", "params.mode train needs params.run_id: whose interface?"
            )
        interface = runs.pinned(params.run_id, params.interface_version)
    return EpisodeOptions(
        params.mode, interface, params.tool_format, params.tools, params.unreadable_message
    )


def _required(name: str, value: str | None) -> str:
    if value is None:
        raise ServiceError(422, "invalid_request", f"{name} is missing in the request")
    return value


def _one_message(messages: Message | list[Message] | None) -> Message:
    if isinstance(messages, list) and len(messages) == 1:
        return messages[0]
    if isinstance(messages, dict):
        return messages
    got = f"a list of {len(messages)}" if isinstance(messages, list) else "none"
    raise ServiceError(422, "bad_message", f"messages of /step is one assistant message, got {got}")
