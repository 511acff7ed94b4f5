"""What the service and a worker process say to each other over their socket, and the time it takes.

A frame is two lengths, a JSON header and a body. Requests have no body; the body of an answer is
the JSON text of the wire's `data`, which the service passes on without reading it. Nothing is
pickled: a worker that has gone wrong can send garbage, but not code.
"""

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from env_service.environments.base import EpisodeOptions, Stop

LENGTHS = struct.Struct(">II")
"""Of the header and of the body, in bytes."""
PROGRESS = struct.Struct("q")
"""Shared word: index of the call that runs for the first time, IDLE while none does."""
IDLE = -1


def message_limit_s(call_time_s: float) -> float:
    """Seconds that all calls of one message may take together."""
    return 2 * call_time_s


def replay_limit_s(call_time_s: float, taken_s: float) -> float:
    """Seconds that a replay may take: rebuilding or verifying, which runs some calls several times.

    Args:
        call_time_s: Limit of one call.
        taken_s: What the steps took when they were taken first.
    """
    return 12 * call_time_s + 8 * taken_s


@dataclass(frozen=True)
class Setup:
    """First frame to a worker: what it is to serve, and under which limits."""

    environments: Mapping[str, str]
    """Environment name -> "module:class"."""
    call_time_s: float
    """Seconds one call may take."""
    memory_bytes: int
    """Address space the worker may take beyond what it has when it starts."""
    resident_episodes: int
    """Episodes it holds; of more, the one unused for longest goes, to be rebuilt when needed."""
    log_level: str
    """Level of the service's log."""


@dataclass
class Entry:
    """One step of an episode's journal."""

    message: str
    """The assistant message as JSON: nobody on the way has to read it."""
    stop: Stop | None = None
    """Where a limit stopped its calls."""
    seconds: float = 0.0
    """How long it took when it was taken first."""


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


@dataclass(frozen=True)
class Answer:
    """A worker's answer to one request, or to the setup."""

    header: dict[str, Any]
    """`status`, and what belongs to it. To the setup: "ready", "broken" (message: which self check
    failed). To a request: "ok" (seconds), "missing" (send the journal along), "stopped" (stop: a
    limit), "refused" (http, code, message: the client's mistake), "failed" (error: the kind of the
    environment's)."""
    body: bytes
    """JSON of the wire's data; empty unless the status is "ok"."""


def pack(header: Mapping[str, Any], body: bytes = b"") -> bytes:
    """One frame."""
    # ASCII: a policy may write half of a surrogate pair, which UTF-8 cannot encode.
    text = json.dumps(header, separators=(",", ":"), default=vars).encode("ascii")
    return LENGTHS.pack(len(text), len(body)) + text + body


def unpack(data: bytes | bytearray) -> tuple[Answer, int] | None:
    """The frame at the start of the data and its length, or None if it is not all there."""
    if len(data) < LENGTHS.size:
        return None
    header_length, body_length = LENGTHS.unpack_from(data)
    body_start = LENGTHS.size + header_length
    end = body_start + body_length
    if len(data) < end:
        return None
    header = json.loads(bytes(data[LENGTHS.size : body_start]))
    return Answer(header, bytes(data[body_start:end])), end


def spec_from(values: Mapping[str, Any]) -> Spec:
    """Read what `pack` wrote of a spec."""
    return Spec(**{**values, "options": EpisodeOptions.from_json(values["options"])})


def entry_from(values: Mapping[str, Any]) -> Entry:
    """Read what `pack` wrote of a journal's entry."""
    stop = values["stop"]
    return Entry(values["message"], None if stop is None else Stop(**stop), values["seconds"])
