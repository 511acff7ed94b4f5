"""What an environment is to the service: tasks by id, episodes that take steps, a verdict.

A new environment implements the two protocols of this module and adds one line to
`env_service.environments.ENVIRONMENTS`. Episodes are plain synchronous objects that know nothing of
HTTP. They live in worker processes, and another worker may rebuild one by taking its steps again.
So the same steps must always give the same replies.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from seal.coevolution.interface import INITIAL, Interface
from seal.wire import (
    CreateReply,
    EvaluateReply,
    ExitStatus,
    Message,
    Mode,
    StepReply,
    UnreadableMessage,
)


@dataclass(frozen=True)
class EpisodeOptions:
    """How one episode is shown to the policy; fixed for its whole life."""

    mode: Mode = "eval"
    """Mode "eval" never consults the interface."""
    interface: Interface = INITIAL
    """Snapshot that mode "train" shows."""
    tool_format: str = "hermes"
    """How raw assistant text writes calls (seal.formats.FORMATS)."""
    tools: Literal["prompt", "structured"] = "prompt"
    """Tool docs as text in a system message, or as structured data beside the messages."""
    unreadable_message: UnreadableMessage = "ends_turn"
    """What a message does whose calls cannot be read."""

    def __post_init__(self) -> None:
        """Refuse another game than the benchmark's in mode eval.

        Raises:
            ValueError: Mode "eval" with unreadable_message "retry".
        """
        if self.mode == "eval" and self.unreadable_message != "ends_turn":
            raise ValueError("mode eval plays the benchmark: unreadable_message must be ends_turn")

    @property
    def interface_version(self) -> int:
        """Version that the policy is shown: 0, the original benchmark, in mode eval."""
        return self.interface.version if self.mode == "train" else 0


@dataclass(frozen=True)
class Stop:
    """A limit stopped one call of a step: this call and the ones after it have no effect."""

    call: int
    """Index of the call among the step's readable calls."""
    reason: str
    """Which limit, as a phrase that the policy is told."""


@dataclass(frozen=True)
class TaskFile:
    """A pool of tasks that an environment plays beside its own."""

    environment: str
    """Name of the environment."""
    pool: str
    """Name of the pool, which the ids of its tasks have."""
    path: str
    """The file."""
    sha256: str
    """Hash that it had when the service started; with another one it must not be played."""


class CallStopped(Exception):
    """A call exceeded a limit; the episode that raised this is spoilt and must be rebuilt."""

    def __init__(self, stop: Stop, of_memory: bool = False) -> None:
        super().__init__(stop.reason)
        self.stop = stop
        self.of_memory = of_memory


def unwatched(index: int) -> None:
    """The `before_call` of steps that are taken without limits."""


class Refused(Exception):
    """The client's mistake, not the model's; the message says what is wrong."""

    status = 422
    """HTTP status of the reply."""
    code = "refused"
    """Code of the reply."""


class UnknownTask(Refused):
    """No task has that id; the message says what ids look like."""

    code = "unknown_task"


class UnknownSplit(Refused):
    """No split has that name; the message lists the known ones."""

    code = "unknown_split"


class BadMessage(Refused):
    """A step was sent something else than an assistant message."""

    code = "bad_message"


class BadExitStatus(Refused):
    """A client says that the episode ended otherwise than it did."""

    code = "bad_exit_status"


class EpisodeOver(Refused):
    """A step was sent to an episode that has ended."""

    status, code = 409, "episode_over"


class SelfCheckFailed(RuntimeError):
    """The environment is installed wrongly and must not serve; the message says what to do."""


class Episode(Protocol):
    """One dialogue about one task."""

    def open(self, instance_id: str = "") -> CreateReply:
        """The messages that open the dialogue, and the tool docs.

        The reply repeats `instance_id`, the client's name for the episode.
        """

    def step(
        self,
        message: Message,
        stop: Stop | None = None,
        before_call: Callable[[int], None] = unwatched,
    ) -> StepReply:
        """Take one assistant message and return what follows it.

        Args:
            message: The assistant message.
            stop: The call that a limit stopped when the message was taken first; it is not run.
            before_call: Receives the index of each call before it runs.

        Raises:
            BadMessage: It is not an assistant message; the episode is unchanged.
            EpisodeOver: The episode has ended.
            CallStopped: A call took too much memory, or its result was too long.
        """

    def evaluate(self, exit_status: ExitStatus | None = None) -> EvaluateReply:
        """Judge the episode as it stands, without changing it.

        Args:
            exit_status: Why the client ended it. A token limit marks the evidence of the turn that
                it cut, and changes no verdict. None: the client does not say.

        Raises:
            BadExitStatus: The episode has not ended like that.
        """


class Environment(Protocol):
    """A set of tasks, and how an episode of one is opened."""

    def task_ids(self, split: str) -> Sequence[str]:
        """Task ids of a split.

        Raises:
            UnknownSplit: There is no such split.
        """

    def create(self, task_id: str, options: EpisodeOptions) -> Episode:
        """Make a new episode that is not yet open.

        Raises:
            UnknownTask: There is no such task.
        """

    def self_check(self) -> None:
        """Call every tool class and the verifier once.

        Raises:
            SelfCheckFailed: Something is broken.
        """
