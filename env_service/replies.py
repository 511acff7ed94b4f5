"""The `data` of the service's replies, as it goes over the wire.

In: an episode's reply. Out: a dataclass that is written as JSON with `json_bytes`. Made in the
worker processes, documented at /docs; `seal.wire` says what the fields mean to a client.
"""

import json
from dataclasses import dataclass
from typing import Any

from seal.wire import (
    CreateReply,
    EvaluateReply,
    Message,
    Mode,
    StepReply,
    ToolDoc,
    TurnDiagnosis,
    TurnProgress,
)


@dataclass(frozen=True)
class EpisodeInfo:
    """What an episode is; data of /get_info."""

    tools: tuple[ToolDoc, ...]
    """Tool docs, where params.tools is "structured"."""
    category: str
    """Category of the task."""
    interface_version: int
    """Version of the interface the episode is pinned to; 0 is the original benchmark."""
    instance_id: str
    """The client's name for it."""
    task_id: str
    """Its task."""
    mode: Mode
    """How the policy is shown it."""


@dataclass(frozen=True)
class CreateData:
    """Data of /create."""

    state: tuple[Message, ...]
    """Messages that open the dialogue."""
    info: EpisodeInfo
    """What was created."""


@dataclass(frozen=True)
class StepInfo:
    """Where a step has led."""

    turn: int
    """Index of the turn the next assistant message belongs to."""
    step: int
    """Number of this step."""
    truncated: bool
    """The episode ended because a turn took too many steps."""


@dataclass(frozen=True)
class StepData:
    """Data of /step."""

    state: tuple[Message, ...]
    """Messages that follow the assistant's."""
    reward: float
    """Always 0.0: the terminal reward is the accuracy of /evaluate."""
    is_terminated: bool
    """The episode is over."""
    info: StepInfo
    """Where the step has led."""


@dataclass(frozen=True)
class EvaluateData:
    """Data of /evaluate; with params.sparse only the accuracy."""

    accuracy: float
    """Terminal reward: 1.0 or 0.0."""
    diagnosis: tuple[TurnDiagnosis, ...]
    """One label for each turn in which the assistant has spoken."""
    interface_version: int
    """Version of the interface the episode was shown."""
    truncated: bool
    """The episode ended by a step limit."""
    task_id: str
    """Its task."""
    category: str
    """Category of the task."""
    progress: TurnProgress
    """How many of the task's turns passed."""


@dataclass(frozen=True)
class HealthData:
    """Data of /healthz."""

    status: str
    """ "ok"; anything else comes with status 503."""
    protocol_version: int
    """`seal.wire.PROTOCOL_VERSION`."""
    environments: tuple[str, ...]
    """Values of env_type this service serves."""


@dataclass(frozen=True)
class ReleaseData:
    """Data of /release."""

    released: bool
    """False where there was no such instance, so that a repeated release does no harm."""


@dataclass(frozen=True)
class ErrorDetail:
    """What went wrong."""

    code: str
    """Stable name of the kind of error."""
    message: str
    """What was got, what was expected, what to do."""


@dataclass(frozen=True)
class ErrorReply:
    """Body of every answer that is no success."""

    success: bool
    """False."""
    error: ErrorDetail
    """What went wrong."""


def create_data(reply: CreateReply, instance_id: str, task_id: str, mode: Mode) -> CreateData:
    """Data of /create."""
    info = EpisodeInfo(
        tools=reply.tools,
        category=reply.category,
        interface_version=reply.interface_version,
        instance_id=instance_id,
        task_id=task_id,
        mode=mode,
    )
    return CreateData(reply.state, info)


def step_data(reply: StepReply, step: int) -> StepData:
    """Data of /step."""
    return StepData(
        state=reply.state,
        reward=0.0,
        is_terminated=reply.terminated,
        info=StepInfo(reply.turn, step, reply.truncated),
    )


def evaluate_data(reply: EvaluateReply, task_id: str, category: str) -> EvaluateData:
    """Data of /evaluate."""
    return EvaluateData(
        accuracy=reply.accuracy,
        diagnosis=reply.turns,
        interface_version=reply.interface_version,
        truncated=reply.truncated,
        task_id=task_id,
        category=category,
        progress=reply.progress,
    )


def json_bytes(data: Any) -> bytes:
    """JSON in ASCII: a policy may write half of a surrogate pair, which UTF-8 cannot encode."""
    return json.dumps(data, separators=(",", ":"), allow_nan=False, default=vars).encode("ascii")
