"""The HTTP contract between the trainer and an environment service: every body, declared once.

The client and the service encode and decode the dataclasses of this module, and the service's /docs
page is made from them. Neither side imports the other.

The routes and the envelope are those of AgentEvolver's clients. `/create`, `/step`, `/evaluate`,
`/get_info`, `/release` and `/get_env_profile` are POST requests of {env_type, task_id, instance_id,
messages, params}. A reply is {"success": true, "data": ...} or {"success": false, "error": ...}.
This project adds fields to `params` and `info` only, so a client that sends none of them gets the
original benchmark. It also adds two routes: PUT /runs/{run_id}/profile, the back edge of the loop,
and GET /runs/{run_id}/interface.
"""

import functools
import json
from collections.abc import Callable, Mapping
from dataclasses import InitVar, dataclass, field, fields, is_dataclass
from enum import Enum
from typing import (
    Annotated,
    Any,
    Generic,
    Literal,
    TypeAlias,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
)

from seal.labels import Label

PROTOCOL_VERSION = 4
"""Raised by every change that an older client would misread; /healthz reports it."""

CONVERSATION_COMPLETED = "[CONVERSATION_COMPLETED]"
"""Content of the last observation of an episode."""

SYNTHETIC_PREFIX = "synthetic_"
"""How the id of every synthetic task begins, and of no task of BFCL's own."""

Mode: TypeAlias = Literal["train", "eval"]
"""How an episode is shown: "train" through the run's learning interface, "eval" untouched."""
UnreadableMessage: TypeAlias = Literal["ends_turn", "retry"]
"""What a message does whose calls cannot be read: it ends the turn, as in bfcl-eval's own loop, or
the policy is told so and the turn goes on."""
TokenLimit: TypeAlias = Literal["response_length", "max_model_len"]
"""A limit of the policy's tokens, by verl's name: after the prompt, or of the whole context."""
ExitStatus: TypeAlias = Literal["completed", "step_limit", TokenLimit]
"""Why a dialogue ended: the policy answered the last turn, or the limit that cut it. A dialogue
that a fault of the environment ended has none, because nothing is made of it."""
Message: TypeAlias = dict[str, Any]
"""An OpenAI chat message: role, content; tool_calls of an assistant; name, id of a tool."""
ToolDoc: TypeAlias = dict[str, Any]
"""An OpenAI tool doc: {"type": "function", "function": {"name", "description", "parameters"}}."""


class Limited:
    """Limits of an annotated value; the service checks them in requests.

    This module does not import pydantic, but pydantic asks annotations for their schema.

    Args:
        limits: Keys of the schema of pydantic-core, e.g. max_length.
    """

    def __init__(self, **limits: float) -> None:
        self._limits = limits

    def __get_pydantic_core_schema__(
        self, source: Any, schema_of: Callable[[Any], dict[str, Any]]
    ) -> dict[str, Any]:
        """The value's schema with the limits."""
        return {**schema_of(source), **self._limits}


Name: TypeAlias = Annotated[str, Limited(min_length=1, max_length=200)]
"""Name of an instance, a run, a task and so on. Errors quote it, so its length is limited."""
Number: TypeAlias = Annotated[int, Limited(ge=0, strict=True)]
"""A whole number from 0; neither true nor "3" nor 3.0."""


class Body:
    """Base of every body.

    The service refuses a request with an unknown field, so a misspelt mode or parameter never
    silently changes what a policy is shown. /docs shows the text under each field.
    """

    __pydantic_config__ = {"extra": "forbid", "use_attribute_docstrings": True}


@dataclass(frozen=True, kw_only=True)
class Params(Body):
    """Params of a route that takes none; base of those of the others."""


@dataclass(frozen=True, kw_only=True)
class CreateParams(Params):
    """Params of /create."""

    mode: Mode = "eval"
    """How the policy is shown the episode."""
    run_id: Name | None = None
    """The run whose learning interface mode "train" shows."""
    interface_version: Number | None = None
    """Version of that interface; null for the newest."""
    show_interface: bool = True
    """False: mode "train" shows no interface, e.g. to a share of the rollouts. The rules stay."""
    tool_format: Name = "hermes"
    """How raw assistant text writes tool calls (seal.formats)."""
    tools: Literal["prompt", "structured"] = "prompt"
    """Tool docs as text in a system message, or as data in `info.tools`."""
    unreadable_message: UnreadableMessage = "ends_turn"
    """What a message does whose calls cannot be read. Mode "eval" has "ends_turn" only."""
    is_open_query: InitVar[Any] = None
    """Accepted because AgentEvolver's clients send it; it has no effect."""


@dataclass(frozen=True, kw_only=True)
class StepParams(Params):
    """Params of /step."""

    step: Number | None = None
    """Number of this step. A repeated number with the same message is answered from the record."""


@dataclass(frozen=True, kw_only=True)
class EvaluateParams(Params):
    """Params of /evaluate."""

    sparse: bool = False
    """Reply with the accuracy alone."""
    exit_status: ExitStatus | None = None
    """Why the client ended the dialogue. A token limit marks the turn that it cut, for the labels;
    the accuracy does not depend on it. null: the client does not say, or the dialogue goes on."""


@dataclass(frozen=True, kw_only=True)
class ProfileParams(Params):
    """Params of /get_env_profile."""

    split: Name = "train"
    """Name of a split of the environment's tasks; "all" is all of them."""


@dataclass(frozen=True, kw_only=True)
class Request(Body):
    """Body of /get_info and /release, and base of the others. AgentEvolver sends all fields."""

    env_type: Name | None = None
    """Environment, e.g. bfcl."""
    task_id: Name | None = None
    """Task, e.g. multi_turn_base_17."""
    instance_id: Name | None = None
    """The client's name for the episode."""
    messages: Message | Annotated[list[Message], Limited(max_length=16)] | None = None
    """One assistant message, alone or as a list of one."""
    params: Params = Params()


@dataclass(frozen=True, kw_only=True)
class CreateRequest(Request):
    """Body of /create."""

    params: CreateParams = CreateParams()


@dataclass(frozen=True, kw_only=True)
class StepRequest(Request):
    """Body of /step."""

    params: StepParams = StepParams()


@dataclass(frozen=True, kw_only=True)
class EvaluateRequest(Request):
    """Body of /evaluate."""

    params: EvaluateParams = EvaluateParams()


@dataclass(frozen=True, kw_only=True)
class ProfileRequest(Request):
    """Body of /get_env_profile."""

    params: ProfileParams = ProfileParams()


@dataclass(frozen=True, kw_only=True)
class ProfileUpdate(Body):
    """Body of PUT /runs/{run_id}/profile."""

    profile: dict[str, Any]
    """`FailureProfile.to_json`."""
    config: dict[str, Any] = field(default_factory=dict)
    """Fields of `InterfaceConfig`; a missing one has its default."""
    interface: dict[str, Any] | None = None
    """`Interface.to_json` of the one that was shown; null for the newest one the service knows."""


@dataclass(frozen=True)
class TurnDiagnosis(Body):
    """The label of one turn and the reason for it, as far as the service may tell."""

    turn: int
    """Index of the turn in the dialogue, from 0."""
    label: Label
    """The outcome of the turn."""
    reason: str
    """One sentence on the evidence; it holds no value of the reference."""
    step: int | None
    """Index, within the turn, of the step that decided the label; null if no single step did."""
    cascade: bool = False
    """The turn failed only because an earlier one had failed: the label names a consequence."""


@dataclass(frozen=True)
class TurnProgress(Body):
    """How far an episode got, counted over all turns of its task, also those that never began."""

    scorable: int
    """Turns in which the reference calls tools."""
    scorable_passed: int
    """Scorable turns that the official checks of a turn accept."""
    abstention: int
    """Turns in which the reference calls no tool."""
    abstention_passed: int
    """Abstention turns that began and in which no call was made or attempted."""


@dataclass(frozen=True, kw_only=True)
class EpisodeInfo(Body):
    """What an episode is; data of /get_info."""

    tools: tuple[ToolDoc, ...]
    """Tool docs as this episode's interface shows them; empty if `state` has them as text."""
    category: str
    """Category of the task, e.g. multi_turn_base."""
    interface_version: int
    """Version of the interface that the episode shows; 0 is the original benchmark."""
    instance_id: str
    """The client's name for the episode."""
    task_id: str
    """Its task."""
    mode: Mode
    """How the policy is shown it."""


@dataclass(frozen=True, kw_only=True)
class CreateReply(Body):
    """Data of /create."""

    state: tuple[Message, ...]
    """Messages that open the dialogue."""
    info: EpisodeInfo
    """What was created."""


@dataclass(frozen=True, kw_only=True)
class StepInfo(Body):
    """Where a step has led."""

    turn: int
    """Index of the turn that the next assistant message belongs to."""
    step: int
    """Number of this step, from 0."""
    truncated: bool
    """The episode ended because a turn took too many steps."""


@dataclass(frozen=True, kw_only=True)
class StepReply(Body):
    """Data of /step."""

    state: tuple[Message, ...]
    """Messages that follow the assistant's: tool results, the next user turn, or the end mark."""
    reward: float = 0.0
    """Always 0.0: the terminal reward is the accuracy of /evaluate."""
    is_terminated: bool
    """The episode is over; the last message is CONVERSATION_COMPLETED."""
    info: StepInfo
    """Where the step has led."""


@dataclass(frozen=True, kw_only=True)
class EvaluateReply(Body):
    """Data of /evaluate; with params.sparse only the accuracy."""

    accuracy: float
    """Terminal reward r: 1.0 if the official checks pass, else 0.0."""
    diagnosis: tuple[TurnDiagnosis, ...]
    """One label for each turn in which the assistant has spoken, in order."""
    interface_version: int
    """Version of the interface that the episode showed."""
    truncated: bool
    """A limit ended the episode: the service's step limit, or the one that the client named."""
    task_id: str
    """Its task."""
    category: str
    """Category of the task."""
    progress: TurnProgress
    """How many of the task's turns passed."""


@dataclass(frozen=True)
class ReleaseReply(Body):
    """Data of /release."""

    released: bool
    """False if there was no such instance: a repeated release does no harm."""


@dataclass(frozen=True)
class InterfaceReply(Body):
    """Data of PUT /runs/{run_id}/profile and GET /runs/{run_id}/interface."""

    version: int
    """Version that new episodes of the run show."""
    content_hash: str
    """Hash of what the policy is shown; equal hashes mean equal interfaces."""
    active: tuple[str, ...]
    """Active components and guidelines, e.g. schema_cues, guideline:missing_tool_call."""
    text: str
    """The interface in words, one line for each active part, for a diff of two versions."""
    interface: dict[str, Any]
    """`Interface.to_json`: what a trainer keeps, and sends with the next profile."""


@dataclass(frozen=True)
class HealthReply(Body):
    """Data of /healthz."""

    status: str
    """ "ok"; an unhealthy service replies with an error and status 503."""
    protocol_version: int
    """`PROTOCOL_VERSION` of the service."""
    environments: tuple[str, ...]
    """Values of env_type that the service serves."""
    tasks_sha256: dict[str, str] = field(default_factory=dict)
    """Pools of tasks that it plays beside those of its environments: name -> hash of the file."""


Data = TypeVar("Data")


@dataclass(frozen=True)
class Envelope(Body, Generic[Data]):
    """Body of every successful reply."""

    success: bool
    """True."""
    data: Data
    """What was asked for."""


@dataclass(frozen=True)
class ErrorDetail(Body):
    """What went wrong."""

    code: str
    """Stable name of the kind of error."""
    message: str
    """What was received, what was expected, what to do."""


@dataclass(frozen=True)
class ErrorReply(Body):
    """Body of every other reply."""

    success: bool
    """False."""
    error: ErrorDetail
    """What went wrong."""


def json_bytes(data: Any) -> bytes:
    """Encode a body in ASCII: a policy may write half of a surrogate pair, which UTF-8 cannot."""
    return json.dumps(data, separators=(",", ":"), allow_nan=False, default=vars).encode("ascii")


def request_json(body: Any) -> dict[str, Any]:
    """JSON of a request. Fields of the body that have their default are left out; params are whole.

    >>> request_json(StepRequest(instance_id="a", params=StepParams(step=0)))
    {'instance_id': 'a', 'params': {'step': 0}}
    """
    defaults = {member.name: member.default for member in fields(body)}
    given = {name: value for name, value in vars(body).items() if value != defaults[name]}
    return {name: vars(value) if is_dataclass(value) else value for name, value in given.items()}


def from_json(kind: type[Data], values: Mapping[str, Any]) -> Data:
    """Build a dataclass from its JSON object; also what one process of ours leaves for another.

    Unknown fields are ignored. Values are not checked, except those of an enumeration.

    >>> from_json(ReleaseReply, {"released": True, "from_a_newer_service": 1})
    ReleaseReply(released=True)

    Raises:
        TypeError: A field without a default is missing.
        ValueError: A value is none of its enumeration, e.g. no `Label`.
    """
    declared: type = kind
    readers = _readers(declared).items()
    return kind(**{name: read(values[name]) for name, read in readers if name in values})


@functools.cache
def _readers(kind: type) -> dict[str, Callable[[Any], Any]]:
    return {name: _reader(hint) for name, hint in get_type_hints(kind).items()}


def _reader(hint: Any) -> Callable[[Any], Any]:
    """The function that turns JSON into a value of the declared type."""
    arguments = get_args(hint)
    if Ellipsis in arguments:  # tuple[item, ...]
        read = _reader(arguments[0])
        return lambda values: tuple(map(read, values))
    if get_origin(hint) is tuple:  # tuple[int, int]
        return tuple
    if type(None) in arguments:  # kind | None
        read = _reader(arguments[0])
        return lambda value: None if value is None else read(value)
    if isinstance(hint, type) and is_dataclass(hint):
        return functools.partial(from_json, hint)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return hint
    return lambda value: value
