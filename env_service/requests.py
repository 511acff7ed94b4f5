"""The bodies of the service's requests.

In: JSON. Out: checked models; a field nobody knows is an error, so a misspelt mode or parameter can
never silently change what a policy is shown. Every POST has the same five top-level fields, as
AgentEvolver's clients send them all each time; which of them a route reads is in `seal.wire`.
"""

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, StrictInt, model_validator

from seal.wire import Message

Name: TypeAlias = Annotated[str, Field(min_length=1, max_length=200)]
"""Of an instance, a run, a task and so on; of those that are unknown an error says the name."""
_MOST_FIELDS = 32
_MOST_MESSAGES = 16


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _not_endless(cls, values: Any) -> Any:
        # Every unknown field would be a problem of its own: a megabyte of them takes seconds.
        if isinstance(values, dict) and len(values) > _MOST_FIELDS:
            raise ValueError(f"{len(values)} fields, expected at most {_MOST_FIELDS}")
        return values


class CreateParams(_Strict):
    """Params of /create."""

    mode: Literal["train", "eval"] = "eval"
    run_id: Name | None = None
    interface_version: StrictInt | None = Field(default=None, ge=0)
    tool_format: Name = "hermes"
    tools: Literal["prompt", "structured"] = "prompt"
    is_open_query: Any = None  # AgentEvolver's clients send it; it has no meaning here


class StepParams(_Strict):
    """Params of /step."""

    step: StrictInt | None = Field(default=None, ge=0)


class EvaluateParams(_Strict):
    """Params of /evaluate."""

    sparse: bool = False


class ProfileParams(_Strict):
    """Params of /get_env_profile."""

    split: Name = "train"


class NoParams(_Strict):
    """Params of a route that takes none."""


class _Request(_Strict):
    env_type: Name | None = None
    task_id: Name | None = None
    instance_id: Name | None = None
    messages: Message | Annotated[list[Message], Field(max_length=_MOST_MESSAGES)] | None = None


class CreateRequest(_Request):
    """Body of /create."""

    params: CreateParams = CreateParams()


class StepRequest(_Request):
    """Body of /step."""

    params: StepParams = StepParams()


class EvaluateRequest(_Request):
    """Body of /evaluate."""

    params: EvaluateParams = EvaluateParams()


class ProfileRequest(_Request):
    """Body of /get_env_profile."""

    params: ProfileParams = ProfileParams()


class InstanceRequest(_Request):
    """Body of /get_info and /release."""

    params: NoParams = NoParams()


class ProfileUpdate(_Strict):
    """Body of PUT /runs/{run_id}/profile."""

    profile: dict[str, Any]
    """`FailureProfile.to_json`."""
    config: dict[str, Any] = Field(default_factory=dict)
    """Fields of `InterfaceConfig`; those left out have its defaults."""
    interface: dict[str, Any] | None = None
    """`Interface.to_json` of the one that was shown; left out: the newest one known here."""
