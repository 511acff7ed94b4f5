"""A second wire for clients of AgentEvolver's trainer, under /agentevolver.

In: the requests that its EnvClient and AgentFlow send (github.com/modelscope/AgentEvolver, commit
a5a8db8), which forks of it share. Out: the replies that they read. Episodes, tools and verdicts are
those of the other wire; only how they are told differs:

* /create opens with exactly two messages, system (with the tools) and user;
* a step is followed by exactly one message of the user: all results of its calls, or the next
  request, or the mark that the dialogue is over;
* the step that ends an episode carries its reward;
* parameters that mean nothing here are taken and named in the reply (`info.ignored`): that client
  sends a /create that was refused again for ever;
* after a step that failed in the service /evaluate is refused: that client swallows the failure and
  would take the number for the policy's reward.

A trainer of this project does not use it: it needs the interface, labels and refusals of the other.
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
from env_service.replies import json_bytes
from env_service.requests import Name
from env_service.workers.frames import Spec
from env_service.workers.pool import WorkerPool
from seal.coevolution.interface import INITIAL
from seal.coevolution.labels import Label
from seal.wire import CONVERSATION_COMPLETED, Message

PREFIX = "/agentevolver"
TOOL_FORMAT = "hermes"
"""How that trainer's policies write calls: JSON in <tool_call> tags."""
_KNOWN = frozenset({"is_open_query"})
_TAGS = {
    Label.MISSING_TOOL_CALL: "empty_turn_model_response",
    Label.REFERENCE_ERROR: "gt_error",
}
"""Labels that the published SEAL has another name for; one that it does not know weighs 1 there."""


class Body(BaseModel):
    """Body of every request of this wire; fields that nothing here reads are taken as well."""

    model_config = ConfigDict(extra="ignore")

    env_type: Name | None = None
    task_id: Name | StrictInt | None = None
    instance_id: Name | None = None
    messages: Message | list[Message] | None = None
    params: dict[str, Any] = Field(default_factory=dict, max_length=64)


@dataclass
class _Told:
    """What a client has been told of an episode."""

    task_id: str
    open_query: bool
    """The episode is over for the client when its first turn is."""
    tools: tuple[str, ...]
    """Names of the tools."""
    turn: int = 0
    over: bool = False
    lost: bool = False
    """The last step failed in the service, not by what the policy wrote."""


def router(pool: WorkerPool, live: LiveEpisodes, most_episodes: int) -> APIRouter:
    """The routes of this wire.

    Args:
        pool: The worker processes, asked for task ids.
        live: The service's episodes.
        most_episodes: Live episodes at most.
    """
    told: OrderedDict[str, _Told] = OrderedDict()
    routes = APIRouter(prefix=PREFIX, tags=["AgentEvolver"])

    def known(body: Body) -> tuple[str, _Told]:
        instance_id = body.instance_id
        if instance_id is None or instance_id not in told:
            raise ServiceError(404, "unknown_instance", f"no live instance {instance_id!r}")
        return instance_id, told[instance_id]

    @routes.post("/create")
    async def create(body: Body) -> Response:
        env_type = _env_type(pool, body)
        instance_id = body.instance_id or uuid.uuid4().hex
        task_id = await _task_id(pool, env_type, body.task_id)
        options = EpisodeOptions("eval", INITIAL, TOOL_FORMAT, "prompt")
        created = json.loads(await live.create(Spec(env_type, task_id, instance_id, options)))
        system, *rest = created["state"]
        tools = _tool_names(system["content"])
        told[instance_id] = _Told(task_id, body.params.get("is_open_query") is True, tools)
        if len(told) > 2 * most_episodes:
            told.popitem(last=False)
        state = [system, {"role": "user", "content": _joined(rest)}]
        info = {
            "instance_id": instance_id,
            "task_id": task_id,
            "test_id": task_id,
            "tools_count": len(tools),
            "ignored": sorted(key[:100] for key in body.params if key not in _KNOWN),
        }
        return _data({"state": state, "info": info})

    @routes.post("/step")
    async def step(body: Body) -> Response:
        instance_id, one = known(body)
        given = body.messages if isinstance(body.messages, list) else [body.messages]
        message = given[-1] if given else None
        if not message:
            raise ServiceError(422, "bad_message", "messages of /step is one assistant message")
        try:
            reply = json.loads(await live.step(instance_id, message, None))
        except ServiceError as error:
            one.lost = one.lost or error.status >= 500
            raise
        one.lost = False
        over = reply["is_terminated"]
        moved = reply["info"]["turn"] != one.turn
        one.turn = reply["info"]["turn"]
        # An open query has one turn: its policy says itself when it is done.
        one.over = over or (one.open_query and moved)
        content = CONVERSATION_COMPLETED if over else _joined(reply["state"])
        reward = float(await live.evaluate(instance_id, sparse=True)) if one.over else 0.0
        return _data(
            {
                "state": [{"role": "user", "content": content}],
                "reward": reward,
                "is_terminated": one.over,
                "info": {},
            }
        )

    @routes.post("/evaluate")
    async def evaluate(body: Body) -> Response:
        instance_id, one = known(body)
        if one.lost:
            # Its AgentFlow swallows what /step raises, and would take this for the reward.
            raise ServiceError(
                409, "step_lost", "the last step failed in the service; create a new instance"
            )
        if body.params.get("sparse") is True:
            return _data(float(await live.evaluate(instance_id, sparse=True)))
        judged = json.loads(await live.evaluate(instance_id, sparse=False))
        return _data(
            {
                "valid": True,
                "accuracy": judged["accuracy"],
                "total_count": 1,
                "correct_count": int(judged["accuracy"]),
                "test_category": judged["category"],
                "test_id": one.task_id,
                "turn_count": one.turn,
                "completed": one.over,
                **_progress(judged),
            }
        )

    @routes.post("/get_info")
    async def get_info(body: Body) -> Response:
        _, one = known(body)
        return _data("Available tools:\n" + "\n".join(f"- {name}" for name in one.tools))

    @routes.post("/release")
    async def release(body: Body) -> Response:
        told.pop(body.instance_id or "", None)
        return _data({"released": live.release(body.instance_id or "")})

    # Its client puts a slash between the address and "/get_env_profile".
    @routes.post("//get_env_profile", include_in_schema=False)
    @routes.post("/get_env_profile")
    async def get_env_profile(body: Body) -> Response:
        split = str(body.params.get("split", "train"))[:200]
        return _data(json.loads(await pool.task_ids(_env_type(pool, body), split)))

    return routes


def _env_type(pool: WorkerPool, body: Body) -> str:
    # Some requests of that client name the environment "default".
    if body.env_type in (None, "default") and len(pool.environments) == 1:
        return pool.environments[0]
    return pool.known(body.env_type)


async def _task_id(pool: WorkerPool, env_type: str, asked: str | int | None) -> str:
    """A task's id; a number counts the tasks from 0, in the order of the environment's files."""
    if asked is None:
        raise ServiceError(422, "invalid_request", "task_id is missing in the request")
    if not str(asked).isascii() or not str(asked).isdecimal():
        return str(asked)
    every: Sequence[str] = json.loads(await pool.task_ids(env_type, "all"))
    number = int(str(asked)[:20])
    if number >= len(every):
        raise ServiceError(
            422, "unknown_task", f"task number {number}: there are 0 to {len(every) - 1}"
        )
    return every[number]


def _joined(messages: Sequence[Mapping[str, Any]]) -> str:
    """Several messages as one of the user; results in the tags of Qwen's chat template."""
    parts = [
        f"<tool_response>\n{one['content']}\n</tool_response>"
        if one["role"] == "tool"
        else str(one["content"])
        for one in messages
    ]
    return "\n".join(parts)


def _progress(judged: Mapping[str, Any]) -> dict[str, Any]:
    """What the published SEAL's BfclDenseEnvGrader reads; it calls float() on the first two."""
    counts = judged["progress"]
    passed, scorable = counts["scorable_passed"], counts["scorable"]
    abstained, abstention = counts["abstention_passed"], counts["abstention"]
    return {
        "bfcl_progress": passed / max(scorable, 1),
        "bfcl_progress_with_irrelevance": (passed + abstained) / max(scorable + abstention, 1),
        "bfcl_progress_info": {
            "passed_turns": passed,
            "scorable_turns": scorable,
            "passed_irrelevance_turns": abstained,
            "irrelevance_turns": abstention,
            "failure_tags": [_TAGS.get(one["label"], one["label"]) for one in judged["diagnosis"]],
        },
    }


def _tool_names(prompt: str) -> tuple[str, ...]:
    """Names of the tools in a system prompt of `env_service.environments.prompt`."""
    lines = prompt.partition("<tools>\n")[2].partition("\n</tools>")[0].splitlines()
    return tuple(json.loads(line)["function"]["name"] for line in lines)


def _data(data: Any) -> Response:
    return data_reply(json_bytes(data))
