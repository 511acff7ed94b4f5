"""What an environment is to the service: tasks by id, episodes that step, a verdict.

A new environment implements these two protocols and adds one line to
`env_service.environments.ENVIRONMENTS`. Episodes are plain synchronous objects that know nothing of
HTTP. They live in worker processes and are rebuilt in another one by taking their steps again: the
same steps must always give the same replies.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from seal.coevolution.interface import INITIAL, Interface
from seal.coevolution.labels import Label
from seal.wire import CreateReply, EvaluateReply, Message, Mode, StepReply


@dataclass(frozen=True)
class EpisodeOptions:
    """How one episode is shown to the policy; fixed for its whole life."""

    mode: Mode = "eval"
    """Mode "eval" never consults the interface."""
    interface: Interface = INITIAL
    """Snapshot the episode is pinned to."""
    tool_format: str = "hermes"
    """How raw assistant text writes calls (seal.formats.FORMATS)."""
    tools: Literal["prompt", "structured"] = "prompt"
    """Tool docs as text in a system message, or as structured data beside the messages."""

    @property
    def interface_version(self) -> int:
        """Version the policy is shown: 0, the original benchmark, in mode eval."""
        return self.interface.version if self.mode == "train" else 0

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "EpisodeOptions":
        """Read what JSON has made of an instance's fields."""
        interface = dict(values["interface"])
        interface["guidelines"] = tuple(Label(label) for label in interface["guidelines"])
        return cls(**{**values, "interface": Interface(**interface)})


@dataclass(frozen=True)
class Stop:
    """A limit stopped one call of a step: it and the calls after it have no effect."""

    call: int
    """Index of the call among the step's readable calls."""
    reason: str
    """Which limit, as a phrase: what is told to the policy."""


class CallStopped(Exception):
    """A call has gone over a limit; the episode that raised this is spoilt and must be rebuilt."""

    def __init__(self, stop: Stop, of_memory: bool = False) -> None:
        super().__init__(stop.reason)
        self.stop = stop
        self.of_memory = of_memory


def unwatched(index: int) -> None:
    """The `before_call` of steps that are taken without limits."""


class UnknownTask(ValueError):
    """No task of that id; the message says what ids look like."""


class UnknownSplit(ValueError):
    """No split of that name; the message lists those there are."""


class BadMessage(ValueError):
    """Not an assistant message: the client's mistake, not the model's."""


class EpisodeOver(RuntimeError):
    """A step was sent to an episode that has ended."""


class SelfCheckFailed(RuntimeError):
    """The environment is installed wrongly and must not serve; the message says what to do."""


class Episode(Protocol):
    """One dialogue with one task."""

    def open(self) -> CreateReply:
        """The messages that open the dialogue, and the tool docs."""

    def step(
        self,
        message: Message,
        stop: Stop | None = None,
        before_call: Callable[[int], None] = unwatched,
    ) -> StepReply:
        """Take one assistant message and return what follows it.

        Args:
            message: The assistant message.
            stop: Calls that are not to be run, as a limit stopped them when they were.
            before_call: Told the index of each call before it runs.

        Raises:
            BadMessage: It is no assistant message; the episode is as it was.
            EpisodeOver: The episode has ended.
            CallStopped: A call took too much memory, or its result was too long.
        """

    def evaluate(self) -> EvaluateReply:
        """Judge the episode as it stands, without touching it."""


class Environment(Protocol):
    """A set of tasks and how an episode of one is opened."""

    def task_ids(self, split: str) -> Sequence[str]:
        """Task ids of a split.

        Raises:
            UnknownSplit: There is no such split.
        """

    def create(self, task_id: str, options: EpisodeOptions) -> Episode:
        """A new episode, not yet opened.

        Raises:
            UnknownTask: There is no such task.
        """

    def self_check(self) -> None:
        """Exercise every tool class and the verifier once.

        Raises:
            SelfCheckFailed: Something is broken.
        """
