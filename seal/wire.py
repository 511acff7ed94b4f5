"""The HTTP contract between the trainer and an environment service.

Both sides import this module and nothing of each other. The routes and the envelope are those
that AgentEvolver's clients speak (`/create`, `/step`, `/evaluate`, `/get_info`, `/release`,
`/get_env_profile`, each a POST of {env_type, task_id, instance_id, messages, params}; replies
{"success": bool, "data": ...}); what this project adds travels inside `params` and `info`, so a
client that sends none of it gets the original benchmark.

Added to that wire:

* /create params: `mode` "eval" (default, the untouched benchmark) or "train" (through the run's
  learning interface); `run_id`, whose interface, and `interface_version`, which of its versions
  (default: the newest); `tool_format`, how raw assistant text writes
  calls (seal.formats, default "hermes"); `tools` "prompt" (default, docs as text in a system
  message) or "structured" (docs in `info.tools`).
* /step params: `step`, the number of this step from 0; the same message with a repeated
  number is answered from the record and never run twice.
* /evaluate params: `sparse`; true makes `data` the accuracy alone.
* PUT /runs/{run_id}/profile {profile, config, interface}: the back edge. A failure profile goes
  in, with the interface that was shown, and the evolved one comes back. GET
  /runs/{run_id}/interface: the run's newest interface.
"""

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

PROTOCOL_VERSION = 3
"""Raised by every change that an older client would misread; /healthz reports it."""

CONVERSATION_COMPLETED = "[CONVERSATION_COMPLETED]"
"""Content of the last observation of an episode."""

Mode: TypeAlias = Literal["train", "eval"]

Message: TypeAlias = dict[str, Any]
"""An OpenAI chat message: role, content; tool_calls of an assistant; name, id of a tool."""

ToolDoc: TypeAlias = dict[str, Any]
"""An OpenAI tool doc: {"type": "function", "function": {"name", "description", "parameters"}}."""


@dataclass(frozen=True)
class TurnDiagnosis:
    """The label of one turn and why, as far as it may leave the service."""

    turn: int
    """Index of the turn in the dialogue, from 0."""
    label: str
    """A value of `seal.coevolution.labels.Label`."""
    reason: str
    """One sentence on the evidence; holds no value of the reference."""
    step: int | None
    """Index, within the turn, of the step that decided the label; None where no one step did."""
    cascade: bool = False
    """The turn failed only because an earlier one had: the label names a consequence."""


@dataclass(frozen=True)
class TurnProgress:
    """How far an episode got, counted over all turns of its task, also those never begun."""

    scorable: int
    """Turns in which the reference calls tools."""
    scorable_passed: int
    """Those that the official checks of a turn accept."""
    abstention: int
    """Turns in which the reference calls none."""
    abstention_passed: int
    """Those that were begun and in which no call was made or attempted."""


@dataclass(frozen=True)
class CreateReply:
    """Data of /create."""

    state: tuple[Message, ...]
    """Messages that open the dialogue."""
    tools: tuple[ToolDoc, ...]
    """Tool docs as this episode's interface shows them; empty where `state` has them as text."""
    category: str
    """Task category, e.g. multi_turn_base."""
    interface_version: int
    """Version of the interface this episode is pinned to; 0 is the original benchmark."""


@dataclass(frozen=True)
class StepReply:
    """Data of /step."""

    state: tuple[Message, ...]
    """Messages that follow the assistant's: tool results, the next user turn, or the end mark."""
    terminated: bool
    """The episode is over; the last message is CONVERSATION_COMPLETED."""
    truncated: bool
    """The episode ended because a turn took too many steps."""
    turn: int
    """Index of the turn the next assistant message belongs to."""


@dataclass(frozen=True)
class EvaluateReply:
    """Data of /evaluate."""

    accuracy: float
    """Terminal reward r: 1.0 if the official checks pass, else 0.0."""
    turns: tuple[TurnDiagnosis, ...]
    """One diagnosis for each turn that was begun, in order."""
    interface_version: int
    """Version of the interface this episode was shown."""
    truncated: bool
    """The episode ended by a step limit."""
    progress: TurnProgress
    """How many turns passed."""


@dataclass(frozen=True)
class InterfaceReply:
    """Data of PUT /runs/{run_id}/profile and GET /runs/{run_id}/interface."""

    version: int
    """Version new episodes of the run are pinned to."""
    content_hash: str
    """Hash of what the policy is shown; equal hashes mean equal interfaces."""
    active: tuple[str, ...]
    """Active components and guidelines, e.g. schema_cues, guideline:missing_tool_call."""
    text: str
    """The interface in words, one line an active part; made for a diff of two versions."""
    interface: dict[str, Any]
    """`Interface.to_json`: what a trainer keeps, and sends with the next profile."""
