"""A second API for clients of AgentEvolver's trainer, under /agentevolver.

In: the requests of its EnvClient and AgentFlow (github.com/modelscope/AgentEvolver, commit
a5a8db8), which its forks share. Out: the replies that they read. Episodes, tools and verdicts are
those of the other API, and only the form of the replies differs:

* /create opens with exactly two messages, system (with the tools) and user;
* exactly one user message follows a step: all results of its calls, the next request, or the end
  mark of the dialogue;
* the step that ends an episode carries its reward;
* unknown parameters are accepted and listed in the reply (`info.ignored`): this client repeats a
  refused /create for ever;
* /evaluate is refused after a step that failed in the service: this client ignores the failure and
  would take the number for the policy's reward.

This project's trainer needs the interface, the labels and the refusals of the other API.
"""

import json
import uuid
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field, StrictInt
from starlette.responses import Response

from env_service.access import data_reply
from env_service.environments.base import EpisodeOptions
from env_service.errors import ServiceError
from env_service.live import LiveEpisodes
from env_service.workers.frames import Spec
from env_service.workers.pool import WorkerPool
from seal.coevolution.interface import INITIAL
from seal.labels import Label
from seal.wire import (
    CONVERSATION_COMPLETED,
    EvaluateReply,
    Message,
    Name,
    StepReply,
    from_json,
)

PREFIX = "/agentevolver"
TOOL_FORMAT = "hermes"
"""How the policies of that trainer write calls: JSON in <tool_call> tags."""
_KNOWN = frozenset({"is_open_query"})
_TAGS: Mapping[str, str] = {
    Label.MISSING_TOOL_CALL: "empty_turn_model_response",
    Label.REFERENCE_ERROR: "gt_error",
}
"""Labels that have another name in the published SEAL; an unknown one has weight 1 there."""


class Body(BaseModel):
    """Body of every request of this API; unknown fields are accepted and ignored."""

    model_config = ConfigDict(extra="ignore")

    env_type: Name | None = None
    task_id: Name | StrictInt | None = None
    instance_id: Name | None = None
    messages: Message | list[Message] | None = None
    params: dict[str, Any] = Field(default_factory=dict, max_length=64)


@dataclass
class _View:
    """What a client has been told about an episode."""

    task_id: str
    open_query: bool
    """For the client, the episode ends with its first turn."""
    tools: tuple[str, ...]
    """Names of the tools."""
    turn: int = 0
    over: bool = False
    lost: bool = False
    """The last step failed in the service, not because of what the policy wrote."""


def router(pool: WorkerPool, live: LiveEpisodes, most_episodes: int) -> APIRouter:
    """The routes of this API; at most `most_episodes` episodes are live."""
    routes = APIRouter(prefix=PREFIX, tags=["AgentEvolver"])
    wire = _Wire(pool, live, most_episodes)
    for route in (wire.create, wire.step, wire.evaluate, wire.get_info, wire.release):
        routes.post(f"/{route.__name__}")(route)
    routes.post("/get_env_profile")(wire.get_env_profile)
    # This client puts a slash between the address and "/get_env_profile".
    routes.post("//get_env_profile", include_in_schema=False)(wire.get_env_profile)
    return routes


class _Wire:
    """The routes as methods, and what their clients have been told."""

    def __init__(self, pool: WorkerPool, live: LiveEpisodes, most_episodes: int) -> None:
        self._pool = pool
        self._live = live
        self._most_views = 2 * most_episodes
        self._views: OrderedDict[str, _View] = OrderedDict()

    async def create(self, body: Body) -> Response:
        env_type = self._env_type(body)
        instance_id = body.instance_id or uuid.uuid4().hex
        task_id = await self._task_id(env_type, body.task_id)
        options = EpisodeOptions("eval", INITIAL, TOOL_FORMAT, "prompt")
        created = json.loads(await self._live.create(Spec(env_type, task_id, instance_id, options)))
        system, *rest = created["state"]
        tools = _tool_names(system["content"])
        self._views[instance_id] = _View(task_id, body.params.get("is_open_query") is True, tools)
        if len(self._views) > self._most_views:
            self._views.popitem(last=False)
        info = {
            "instance_id": instance_id,
            "task_id": task_id,
            "test_id": task_id,
            "tools_count": len(tools),
            "ignored": sorted(key[:100] for key in body.params if key not in _KNOWN),
        }
        user = {"role": "user", "content": _joined(rest)}
        return data_reply({"state": [system, user], "info": info})

    async def step(self, body: Body) -> Response:
        instance_id, view = self._known(body)
        given = body.messages if isinstance(body.messages, list) else [body.messages]
        message = given[-1] if given else None
        if not message:
            raise ServiceError(422, "bad_message", "messages of /step is one assistant message")
        try:
            data = await self._live.step(instance_id, message, None)
        except ServiceError as error:
            view.lost = view.lost or error.status >= 500
            raise
        view.lost = False
        reply = from_json(StepReply, json.loads(data))
        over = reply.is_terminated
        moved = reply.info.turn != view.turn
        view.turn = reply.info.turn
        # An open query has one turn: its policy decides itself when it is done.
        view.over = over or (view.open_query and moved)
        content = CONVERSATION_COMPLETED if over else _joined(reply.state)
        return data_reply(
            {
                "state": [{"role": "user", "content": content}],
                "reward": await self._accuracy(instance_id) if view.over else 0.0,
                "is_terminated": view.over,
                "info": {},
            }
        )

    async def evaluate(self, body: Body) -> Response:
        instance_id, view = self._known(body)
        if view.lost:
            # AgentFlow ignores an error of /step and would take this number for the reward.
            raise ServiceError(
                409, "step_lost", "the last step failed in the service; create a new instance"
            )
        if body.params.get("sparse") is True:
            return data_reply(await self._accuracy(instance_id))
        data = await self._live.evaluate(instance_id, sparse=False)
        judged = from_json(EvaluateReply, json.loads(data))
        return data_reply(
            {
                "valid": True,
                "accuracy": judged.accuracy,
                "total_count": 1,
                "correct_count": int(judged.accuracy),
                "test_category": judged.category,
                "test_id": view.task_id,
                "turn_count": view.turn,
                "completed": view.over,
                **_progress(judged),
            }
        )

    async def get_info(self, body: Body) -> Response:
        _, view = self._known(body)
        return data_reply("Available tools:\n" + "\n".join(f"- {name}" for name in view.tools))

    async def release(self, body: Body) -> Response:
        self._views.pop(body.instance_id or "", None)
        return data_reply({"released": self._live.release(body.instance_id or "")})

    async def get_env_profile(self, body: Body) -> Response:
        split = str(body.params.get("split", "train"))[:200]
        return data_reply(await self._pool.task_ids(self._env_type(body), split))

    def _known(self, body: Body) -> tuple[str, _View]:
        instance_id = body.instance_id
        if instance_id is None or instance_id not in self._views:
            raise ServiceError(404, "unknown_instance", f"no live instance {instance_id!r}")
        return instance_id, self._views[instance_id]

    async def _accuracy(self, instance_id: str) -> float:
        return float(await self._live.evaluate(instance_id, sparse=True))

    def _env_type(self, body: Body) -> str:
        # In some requests this client names the environment "default".
        if body.env_type in (None, "default") and len(self._pool.environments) == 1:
            return self._pool.environments[0]
        return self._pool.known(body.env_type)

    async def _task_id(self, env_type: str, asked: str | int | None) -> str:
        """A task's id; a number is a task's index, in the order of the environment's files."""
        if asked is None:
            raise ServiceError(422, "invalid_request", "task_id is missing in the request")
        if not str(asked).isascii() or not str(asked).isdecimal():
            return str(asked)
        every: Sequence[str] = json.loads(await self._pool.task_ids(env_type, "all"))
        number = int(str(asked)[:20])
        if number >= len(every):
            raise ServiceError(
                422, "unknown_task", f"task number {number}: there are 0 to {len(every) - 1}"
            )
        return every[number]


def _joined(messages: Sequence[Mapping[str, Any]]) -> str:
    """Several messages as one user message; results are in the tags of Qwen's chat template."""
    parts = [
        f"<tool_response>\n{message['content']}\n</tool_response>"
        if message["role"] == "tool"
        else str(message["content"])
        for message in messages
    ]
    return "\n".join(parts)


def _progress(judged: EvaluateReply) -> dict[str, Any]:
    """What BfclDenseEnvGrader of the published SEAL reads; it calls float() on the first two."""
    passed, scorable = judged.progress.scorable_passed, judged.progress.scorable
    abstained, abstention = judged.progress.abstention_passed, judged.progress.abstention
    return {
        "bfcl_progress": passed / max(scorable, 1),
        "bfcl_progress_with_irrelevance": (passed + abstained) / max(scorable + abstention, 1),
        "bfcl_progress_info": {
            "passed_turns": passed,
            "scorable_turns": scorable,
            "passed_irrelevance_turns": abstained,
            "irrelevance_turns": abstention,
            "failure_tags": [_TAGS.get(turn.label, turn.label) for turn in judged.diagnosis],
        },
    }


def _tool_names(prompt: str) -> tuple[str, ...]:
    """Names of the tools in a system prompt of `env_service.environments.prompt`."""
    lines = prompt.partition("<tools>\n")[2].partition("\n</tools>")[0].splitlines()
    return tuple(json.loads(line)["function"]["name"] for line in lines)
