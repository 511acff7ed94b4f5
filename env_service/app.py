"""The HTTP routes of the service.

In: JSON requests of the wire (`seal.wire`, `env_service.requests`). Out: {"success": true, "data"}
or {"success": false, "error": {"code", "message"}} with a fitting status. Called by uvicorn, or by
tests without a socket. An app exists only after every environment's self check has succeeded, so
/healthz has nothing left to find out.

Routes are coroutines that call the environment directly: a BFCL step takes well under a
millisecond, less than handing it to a thread would.
"""

import dataclasses
import json
import logging
import uuid
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from env_service.environments.base import Environment, EpisodeOptions, UnknownSplit, UnknownTask
from env_service.errors import ServiceError
from env_service.live import LiveEpisode, LiveEpisodes, guarded
from env_service.requests import (
    CreateRequest,
    EvaluateRequest,
    InstanceRequest,
    ProfileRequest,
    ProfileUpdate,
    StepRequest,
)
from env_service.runs import Runs, failure_profile, interface_config
from seal.coevolution.interface import INITIAL, Interface
from seal.formats import FORMATS
from seal.wire import PROTOCOL_VERSION, InterfaceReply, Message

logger = logging.getLogger(__name__)


def create_app(environments: Mapping[str, Environment]) -> FastAPI:
    """Check the environments and build the service.

    Raises:
        SelfCheckFailed: An environment is broken; there is no service without it.
    """
    for environment in environments.values():
        environment.self_check()
    app = FastAPI(title="SEAL environment service", redoc_url=None)
    runs = Runs()
    _add_error_replies(app)
    _add_episode_routes(app, environments, LiveEpisodes(), runs)
    _add_run_routes(app, runs)

    @app.get("/healthz")
    async def healthz() -> JSONResponse:
        return _data(
            {
                "status": "ok",
                "protocol_version": PROTOCOL_VERSION,
                "environments": list(environments),
            }
        )

    return app


def _add_episode_routes(
    app: FastAPI, environments: Mapping[str, Environment], live: LiveEpisodes, runs: Runs
) -> None:
    @app.post("/create")
    async def create(body: CreateRequest) -> JSONResponse:
        environment = _environment(environments, body.env_type)
        options = _options(body, runs)
        task_id = _required("task_id", body.task_id)
        instance_id = body.instance_id or uuid.uuid4().hex
        try:
            episode = guarded(
                f"creating {task_id}", lambda: environment.create(task_id, options), UnknownTask
            )
        except UnknownTask as error:
            raise ServiceError(422, "unknown_task", str(error)) from error
        created = live.add(instance_id, task_id, options.mode, episode)
        logger.info(
            "create %r task=%s mode=%s run=%r interface=%d",
            instance_id,
            task_id,
            options.mode,
            body.params.run_id,
            options.interface_version,
        )
        return _data({"state": created.opened.state, "info": _info(created)})

    @app.post("/step")
    async def step(body: StepRequest) -> JSONResponse:
        instance_id = _required("instance_id", body.instance_id)
        number = body.params.step
        taken, reply = live.step(instance_id, _one_message(body.messages), number)
        info = {"turn": reply.turn, "step": taken, "truncated": reply.truncated}
        return _data(
            {
                "state": reply.state,
                "reward": 0.0,
                "is_terminated": reply.terminated,
                "info": info,
            }
        )

    @app.post("/evaluate")
    async def evaluate(body: EvaluateRequest) -> JSONResponse:
        judged, reply = live.evaluate(_required("instance_id", body.instance_id))
        if body.params.sparse:
            return _data(reply.accuracy)
        return _data(
            {
                "accuracy": reply.accuracy,
                "diagnosis": [dataclasses.asdict(turn) for turn in reply.turns],
                "interface_version": reply.interface_version,
                "truncated": reply.truncated,
                "task_id": judged.task_id,
                "category": judged.opened.category,
            }
        )

    @app.post("/get_info")
    async def get_info(body: InstanceRequest) -> JSONResponse:
        return _data(_info(live.get(_required("instance_id", body.instance_id))))

    @app.post("/release")
    async def release(body: InstanceRequest) -> JSONResponse:
        instance_id = _required("instance_id", body.instance_id)
        released = live.release(instance_id)
        logger.info("release %r released=%s", instance_id, released)
        return _data({"released": released})

    @app.post("/get_env_profile")
    async def get_env_profile(body: ProfileRequest) -> JSONResponse:
        try:
            return _data(_environment(environments, body.env_type).task_ids(body.params.split))
        except UnknownSplit as error:
            raise ServiceError(422, "unknown_split", str(error)) from error


def _add_run_routes(app: FastAPI, runs: Runs) -> None:
    @app.put("/runs/{run_id}/profile")
    async def put_profile(run_id: str, body: ProfileUpdate) -> JSONResponse:
        profile, config = failure_profile(body.profile), interface_config(body.config)
        interface = runs.update(run_id, profile, config)
        active = ", ".join(interface.active()) or "nothing"
        logger.info("run %r interface=%d active: %s", run_id, interface.version, active)
        return _data(_interface_data(interface))

    @app.get("/runs/{run_id}/interface")
    async def get_interface(run_id: str) -> JSONResponse:
        return _data(_interface_data(runs.newest(run_id)))


def _add_error_replies(app: FastAPI) -> None:
    @app.exception_handler(ServiceError)
    async def service_error(_: Request, error: ServiceError) -> JSONResponse:
        return _error(error.status, error.code, error.message)

    @app.exception_handler(RequestValidationError)
    async def invalid_request(_: Request, error: RequestValidationError) -> JSONResponse:
        said = [
            f"{'.'.join(str(part) for part in problem['loc'])}: {problem['msg']}"
            for problem in error.errors()
        ]
        return _error(422, "invalid_request", "; ".join(said))

    @app.exception_handler(HTTPException)
    async def no_such_route(request: Request, error: HTTPException) -> JSONResponse:
        message = f"{request.method} {request.url.path}: {error.detail}"
        # Starlette answers 400 for a body that it cannot read at all.
        code = "invalid_request" if error.status_code == 400 else "no_such_route"
        return _error(error.status_code, code, message)

    @app.exception_handler(Exception)
    async def internal_error(_: Request, error: Exception) -> JSONResponse:
        logger.error("the service failed", exc_info=error)
        return _error(500, "internal_error", f"the service failed ({type(error).__name__})")


def _environment(environments: Mapping[str, Environment], env_type: str | None) -> Environment:
    if env_type is None or env_type not in environments:
        known = ", ".join(environments)
        raise ServiceError(
            422, "unknown_env_type", f"unknown env_type {env_type!r}; this service has: {known}"
        )
    return environments[env_type]


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
    return EpisodeOptions("train", runs.newest(params.run_id), params.tool_format, params.tools)


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


def _info(live: LiveEpisode) -> dict[str, Any]:
    return {
        "tools": live.opened.tools,
        "category": live.opened.category,
        "interface_version": live.opened.interface_version,
        "instance_id": live.instance_id,
        "task_id": live.task_id,
        "mode": live.mode,
    }


def _interface_data(interface: Interface) -> dict[str, Any]:
    return dataclasses.asdict(
        InterfaceReply(
            version=interface.version,
            content_hash=interface.content_hash(),
            active=interface.active(),
            text=interface.describe(),
        )
    )


class _Json(JSONResponse):
    """JSON in ASCII: a policy may write half of a surrogate pair, which UTF-8 cannot encode."""

    def render(self, content: Any) -> bytes:
        return json.dumps(content, separators=(",", ":"), allow_nan=False).encode("ascii")


def _data(data: Any) -> JSONResponse:
    return _Json({"success": True, "data": data})


def _error(status: int, code: str, message: str) -> JSONResponse:
    content = {"success": False, "error": {"code": code, "message": message}}
    return _Json(content, status_code=status)
