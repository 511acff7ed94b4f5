"""The live episodes of the service, by instance id.

In: an opened environment's episode, then steps. Out: the episode's replies, or a `ServiceError`.
Called by the routes. It knows nothing of HTTP bodies and nothing of tools.

A step that carries a number is answered from the record when it is repeated, so a client may send a
request again without running it twice. Two requests never work on one episode at the same time. An
episode whose environment raised is broken for good: that is neither an observation nor a reward.
"""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from env_service.environments.base import BadMessage, Episode, EpisodeOver
from env_service.errors import ServiceError
from seal.wire import CreateReply, EvaluateReply, Message, Mode, StepReply

logger = logging.getLogger(__name__)

Reply = TypeVar("Reply")


@dataclass
class LiveEpisode:
    """One episode and what was answered so far."""

    instance_id: str
    """The client's name for it."""
    task_id: str
    """Its task."""
    mode: Mode
    """How the policy is shown it."""
    episode: Episode
    """The environment's object."""
    opened: CreateReply
    """What /create answered."""
    replies: list[StepReply] = field(default_factory=list)
    """What each step was answered, by step number."""
    broken: bool = False
    """The environment raised; nothing more may be asked of it."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    """Held while the episode works."""


class LiveEpisodes:
    """All live episodes."""

    def __init__(self) -> None:
        self._episodes: dict[str, LiveEpisode] = {}

    def add(self, instance_id: str, task_id: str, mode: Mode, episode: Episode) -> LiveEpisode:
        """Open an episode and keep it."""
        if instance_id in self._episodes:
            raise ServiceError(
                409,
                "instance_exists",
                f"instance {instance_id!r} is live; release it or choose another instance_id",
            )
        opened = guarded(f"opening {task_id}", episode.open)
        live = LiveEpisode(instance_id, task_id, mode, episode, opened)
        self._episodes[instance_id] = live
        return live

    def get(self, instance_id: str) -> LiveEpisode:
        """The live episode of that id."""
        live = self._episodes.get(instance_id)
        if live is None:
            raise ServiceError(
                404,
                "unknown_instance",
                f"no live instance {instance_id!r}; it was never created or is released",
            )
        return live

    def step(self, instance_id: str, message: Message, number: int | None) -> tuple[int, StepReply]:
        """Take a step, or answer a repeated one from the record; the step's number with it."""
        with self._working_on(instance_id) as live:
            if number is not None and number < len(live.replies):
                return number, live.replies[number]
            if number is not None and number > len(live.replies):
                raise ServiceError(
                    409,
                    "step_out_of_order",
                    f"got step {number} of instance {instance_id!r}, expected "
                    f"{len(live.replies)} or the number of an earlier step",
                )
            try:
                reply = self._ask(live, lambda: live.episode.step(message), BadMessage, EpisodeOver)
            except BadMessage as error:
                raise ServiceError(422, "bad_message", str(error)) from error
            except EpisodeOver as error:
                raise ServiceError(409, "episode_over", str(error)) from error
            live.replies.append(reply)
            return len(live.replies) - 1, reply

    def evaluate(self, instance_id: str) -> tuple[LiveEpisode, EvaluateReply]:
        """Judge an episode as it stands."""
        with self._working_on(instance_id) as live:
            return live, self._ask(live, live.episode.evaluate)

    def release(self, instance_id: str) -> bool:
        """Forget an episode; False if there was none, so that a repeated release does no harm."""
        return self._episodes.pop(instance_id, None) is not None

    @contextmanager
    def _working_on(self, instance_id: str) -> Iterator[LiveEpisode]:
        live = self.get(instance_id)
        if not live.lock.acquire(blocking=False):
            raise ServiceError(
                409,
                "instance_busy",
                f"instance {instance_id!r} is working on another request; wait for its answer",
            )
        try:
            if live.broken:
                raise ServiceError(
                    409,
                    "episode_broken",
                    f"the environment failed in instance {instance_id!r}; create a new one",
                )
            yield live
        finally:
            live.lock.release()

    def _ask(
        self, live: LiveEpisode, question: Callable[[], Reply], *expected: type[Exception]
    ) -> Reply:
        try:
            return guarded(f"instance {live.instance_id} of {live.task_id}", question, *expected)
        except ServiceError:
            live.broken = True
            raise


def guarded(what: str, question: Callable[[], Reply], *expected: type[Exception]) -> Reply:
    """Ask an environment; the named border where its exceptions become a status 500.

    Args:
        what: For the log.
        question: The call into the environment.
        expected: Exceptions that are the client's mistakes; they pass through.
    """
    try:
        return question()
    except expected:
        raise
    except Exception as error:
        logger.exception("environment failed: %s", what)
        raise ServiceError(
            500,
            "environment_error",
            f"the environment failed ({type(error).__name__}); the service's log has the cause. "
            "This says nothing about the policy: drop the episode, or create it anew",
        ) from error
