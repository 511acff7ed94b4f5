"""What the service and a worker process say to each other over their socket, and its time limits.

A frame is two lengths, a JSON header and a body. Requests have no body. The body of an answer is
the JSON text of a reply's `data`, which the service passes on without reading it. Nothing is
pickled: a worker that has gone wrong can send garbage, but no code.
"""

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from env_service.environments.base import EpisodeOptions, Stop, TaskFile

LENGTHS = struct.Struct(">II")
"""Lengths of the header and of the body, in bytes."""
PROGRESS = struct.Struct("q")
"""Shared word: index of the call that runs for the first time, or IDLE."""
IDLE = -1


def message_limit_s(call_time_s: float) -> float:
    """Seconds that all calls of one message may take together."""
    return 2 * call_time_s


def replay_limit_s(call_time_s: float, taken_s: float) -> float:
    """Seconds that a replay may take. Rebuilding and verifying run some calls several times.

    Args:
        call_time_s: Limit of one call.
        taken_s: Seconds that the steps took when they were taken first.
    """
    return 12 * call_time_s + 8 * taken_s


@dataclass(frozen=True)
class Setup:
    """First frame to a worker: what it serves, and under which limits."""

    environments: dict[str, str]
    """Environment name -> "module:class"."""
    call_time_s: float
    """Seconds that one call may take."""
    memory_bytes: int
    """Address space that the worker may take beyond what it has when it starts."""
    resident_episodes: int
    """Episodes that it holds; beyond that it drops the least recently used, to be rebuilt later."""
    log_level: str
    """Level of the service's log."""
    tasks: tuple[TaskFile, ...] = ()
    """Pools of tasks beside the environments' own."""


@dataclass
class Entry:
    """One step of an episode's journal."""

    message: str
    """The assistant message as JSON text inside the frame's JSON, on purpose.

    The service sends a journal without encoding its messages again, and the worker decodes a
    message under its time limit and where it catches errors.
    """
    stop: Stop | None = None
    """The call that a limit stopped, if any."""
    seconds: float = 0.0
    """Seconds that the step took when it was taken first."""


@dataclass(frozen=True)
class Spec:
    """What an episode was created with."""

    env_type: str
    """Name of the environment."""
    task_id: str
    """Its task."""
    instance_id: str
    """The client's name for it."""
    options: EpisodeOptions
    """How the policy is shown it."""
    run_id: str | None = field(default=None, compare=False)
    """The run that it belongs to, if any."""


@dataclass(frozen=True)
class Answer:
    """A worker's answer to one request, or to the setup."""

    header: dict[str, Any]
    """`status` and its fields.

    To the setup: "ready", or "broken" (message: the self check that failed). To a request: "ok"
    (seconds), "missing" (the journal must be sent along), "stopped" (stop: a limit), "refused"
    (http, code, message: the client's mistake) or "failed" (error: class of the environment's
    exception).
    """
    body: bytes = b""
    """JSON of a reply's data; empty unless the status is "ok"."""


def pack(header: Mapping[str, Any], body: bytes = b"") -> bytes:
    """One frame."""
    # ASCII: a policy may write half of a surrogate pair, which UTF-8 cannot encode.
    text = json.dumps(header, separators=(",", ":"), default=vars).encode("ascii")
    return LENGTHS.pack(len(text), len(body)) + text + body


def unpack(data: bytes | bytearray) -> tuple[Answer, int] | None:
    """The frame at the start of the data and its length, or None if a part is missing."""
    if len(data) < LENGTHS.size:
        return None
    header_length, body_length = LENGTHS.unpack_from(data)
    body_start = LENGTHS.size + header_length
    end = body_start + body_length
    if len(data) < end:
        return None
    header = json.loads(bytes(data[LENGTHS.size : body_start]))
    return Answer(header, bytes(data[body_start:end])), end
