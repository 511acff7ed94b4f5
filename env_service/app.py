"""The HTTP routes of the service.

In: JSON requests of the wire (`seal.wire`, `env_service.requests`). Out: {"success": true, "data"}
or {"success": false, "error": {"code", "message"}} with a fitting status. Called by uvicorn, or by
tests without a socket. What a worker process answers is passed on as it is.
"""

import dataclasses
import logging
import uuid
from typing import Any, Generic, TypeVar

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, Response

from env_service import agentevolver
from env_service.access import Access, data_reply, error_reply
from env_service.docs_page import page
from env_service.environments.base import EpisodeOptions
from env_service.errors import ServiceError
from env_service.live import LiveEpisodes
from env_service.metrics import Metrics
from env_service.replies import (
    CreateData,
    EpisodeInfo,
    ErrorReply,
    EvaluateData,
    HealthData,
    ReleaseData,
    StepData,
    json_bytes,
)
from env_service.requests import (
    CreateRequest,
    EvaluateRequest,
    InstanceRequest,
    Name,
    ProfileRequest,
    ProfileUpdate,
    StepRequest,
)
from env_service.runs import Runs, failure_profile, interface_config, shown_interface
from env_service.workers.frames import Spec
from env_service.workers.pool import Limits, WorkerPool
from seal.coevolution.interface import INITIAL
from seal.formats import FORMATS
from seal.wire import PROTOCOL_VERSION, InterfaceReply, Message

logger = logging.getLogger(__name__)

Data = TypeVar("Data")
_MOST_PROBLEMS = 5
"""Problems of a request that its refusal names."""


@dataclasses.dataclass
class Envelope(Generic[Data]):
    """Body of every answer that is a success; for /docs."""

    success: bool
    """True."""
    data: Data
    """What was asked for."""


def create_app(
    pool: WorkerPool,
    live: LiveEpisodes,
    limits: Limits,
    metrics: Metrics,
    token: str | None = None,
    hosts: frozenset[str] | None = None,
) -> FastAPI:
    """Build the service on worker processes that have been started.

    Args:
        pool: The worker processes.
        live: The episodes in them.
        limits: What a request may take.
        metrics: What /metrics shows.
        token: What a client has to show, None where everybody is let in.
        hosts: Names that a request may call the service by, None for any.
    """
    app = FastAPI(
        title="SEAL environment service",
        version=str(PROTOCOL_VERSION),
        docs_url=None,
        redoc_url=None,
        responses={"default": {"model": ErrorReply, "description": "What went wrong"}},
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

    @app.get("/healthz", response_model=Envelope[HealthData])
    async def healthz() -> Response:
        """Whether a worker is there that has called every tool class and verified once."""
        if not pool.healthy:
            raise ServiceError(
                503, "no_worker", "no worker process is ready; see the service's log"
            )
        return _data(HealthData("ok", PROTOCOL_VERSION, pool.environments))

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return HTMLResponse(page(app.openapi()))

    @app.get("/metrics", response_class=Response)
    async def text_of_metrics() -> Response:
        """Counters in Prometheus form."""
        return Response(metrics.text(), media_type="text/plain; version=0.0.4")

    return app


def _add_episode_routes(app: FastAPI, pool: WorkerPool, live: LiveEpisodes, runs: Runs) -> None:
    @app.post("/create", response_model=Envelope[CreateData])
    async def create(body: CreateRequest) -> Response:
        """Open an episode of a task."""
        spec = Spec(
            env_type=pool.known(body.env_type),
            task_id=_required("task_id", body.task_id),
            instance_id=body.instance_id or uuid.uuid4().hex,
            options=_options(body, runs),
        )
        created = await live.create(spec, body.params.run_id)
        logger.info(
            "create",
            extra={
                "instance": spec.instance_id,
                "task": spec.task_id,
                "mode": spec.options.mode,
                "run": body.params.run_id,
                "interface": spec.options.interface_version,
            },
        )
        return data_reply(created)

    @app.post("/step", response_model=Envelope[StepData])
    async def step(body: StepRequest) -> Response:
        """Send one assistant message and get what follows it."""
        instance_id = _required("instance_id", body.instance_id)
        message = _one_message(body.messages)
        return data_reply(await live.step(instance_id, message, body.params.step))

    @app.post("/evaluate", response_model=Envelope[EvaluateData | float])
    async def evaluate(body: EvaluateRequest) -> Response:
        """Judge an episode as it stands, without touching it."""
        instance_id = _required("instance_id", body.instance_id)
        return data_reply(await live.evaluate(instance_id, body.params.sparse))

    @app.post("/get_info", response_model=Envelope[EpisodeInfo])
    async def get_info(body: InstanceRequest) -> Response:
        """What /create said of an episode."""
        return _data(live.info(_required("instance_id", body.instance_id)))

    @app.post("/release", response_model=Envelope[ReleaseData])
    async def release(body: InstanceRequest) -> Response:
        """Forget an episode."""
        instance_id = _required("instance_id", body.instance_id)
        released = live.release(instance_id)
        logger.info("release", extra={"instance": instance_id, "released": released})
        return _data(ReleaseData(released))

    @app.post("/get_env_profile", response_model=Envelope[list[str]])
    async def get_env_profile(body: ProfileRequest) -> Response:
        """Task ids of a split."""
        return data_reply(await pool.task_ids(pool.known(body.env_type), body.params.split))


def _add_run_routes(app: FastAPI, runs: Runs) -> None:
    @app.put("/runs/{run_id}/profile", response_model=Envelope[InterfaceReply])
    async def put_profile(run_id: Name, body: ProfileUpdate) -> Response:
        """Evolve a run's learning interface from a failure profile."""
        profile, config = failure_profile(body.profile), interface_config(body.config)
        interface = runs.update(run_id, profile, config, shown_interface(body.interface))
        logger.info(
            "profile",
            extra={"run": run_id, "interface": interface.version, "active": interface.active()},
        )
        return _data(interface.to_reply())

    @app.get("/runs/{run_id}/interface", response_model=Envelope[InterfaceReply])
    async def get_interface(run_id: Name) -> Response:
        """The interface that new episodes of a run get."""
        return _data(runs.newest(run_id).to_reply())


def _add_error_replies(app: FastAPI, metrics: Metrics) -> None:
    @app.exception_handler(ServiceError)
    async def service_error(_: Request, error: ServiceError) -> Response:
        if error.status == 500:
            metrics.environment_errors.inc()
        return error_reply(error)

    @app.exception_handler(RequestValidationError)
    async def invalid_request(_: Request, error: RequestValidationError) -> Response:
        said = [
            f"{'.'.join(str(part)[:100] for part in problem['loc'])}: {problem['msg'][:300]}"
            for problem in error.errors()[:_MOST_PROBLEMS]
        ]
        return error_reply(ServiceError(422, "invalid_request", "; ".join(said)))

    @app.exception_handler(HTTPException)
    async def no_such_route(request: Request, error: HTTPException) -> Response:
        message = f"{request.method} {request.url.path}: {error.detail}"
        # Starlette answers 400 for a body that it cannot read at all.
        code = "invalid_request" if error.status_code == 400 else "no_such_route"
        reply = error_reply(ServiceError(error.status_code, code, message))
        reply.headers.update(error.headers or {})  # Allow, with 405
        return reply

    @app.exception_handler(Exception)
    async def internal_error(_: Request, error: Exception) -> Response:
        logger.error("the service failed", exc_info=error)
        said = f"the service failed ({type(error).__name__})"
        return error_reply(ServiceError(500, "internal_error", said))


def _options(body: CreateRequest, runs: Runs) -> EpisodeOptions:
    params = body.params
    if params.tool_format not in FORMATS:
        raise ServiceError(
            422,
            "unknown_tool_format",
            f"unknown params.tool_format {params.tool_format!r}; known: {', '.join(FORMATS)}",
        )
    if params.mode == "eval":
        return EpisodeOptions("eval", INITIAL, params.tool_format, params.tools)
    if params.run_id is None:
        raise ServiceError(
            422, "missing_run_id", "params.mode train needs params.run_id: whose interface?"
        )
    interface = runs.pinned(params.run_id, params.interface_version)
    return EpisodeOptions("train", interface, params.tool_format, params.tools)


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


def _data(data: Any) -> Response:
    return data_reply(json_bytes(data))
