"""The live episodes of the service, by instance id.

In: what to create, then steps. Out: the JSON text of a reply's data, or a `ServiceError`. The
worker processes (`env_service.workers`) do the work.

A repeated create or step is answered from the record, so a client may send a request again without
running it twice. Two requests never work on one episode at the same time. An episode whose
environment failed stays broken: the failure is neither an observation nor a reward.
"""

import asyncio
import itertools
import json
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from env_service.errors import ServiceError
from env_service.metrics import Metrics
from env_service.workers.frames import Spec
from env_service.workers.pool import Limits, WorkerPool
from env_service.workers.worker_handle import Journal
from seal.wire import ExitStatus, Message

logger = logging.getLogger(__name__)

_MOST_EXPIRED_KNOWN = 100_000


@dataclass(eq=False)
class LiveEpisode:
    """One episode and its replies so far."""

    spec: Spec
    """What it was created with."""
    opened: "asyncio.Future[tuple[Journal, bytes]]"
    """Its journal, and the data of /create."""
    used: float
    """Time of the last request for it, in seconds of the clock."""
    replies: list[bytes] = field(default_factory=list)
    """Data of /step, by step number."""
    broken: bool = False
    """The environment failed; every further request is refused."""
    busy: bool = False
    """A request is working on it."""


class LiveEpisodes:
    """All live episodes.

    Args:
        pool: The worker processes.
        limits: Greatest number of episodes, and how long they may be idle.
        metrics: Counts episodes.
        clock: Returns seconds.
    """

    def __init__(
        self,
        pool: WorkerPool,
        limits: Limits,
        metrics: Metrics,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._pool = pool
        self._limits = limits
        self._metrics = metrics
        self._clock = clock
        self._episodes: OrderedDict[str, LiveEpisode] = OrderedDict()  # least recently used first
        self._expired: OrderedDict[str, None] = OrderedDict()
        metrics.episodes_live.set_function(lambda: len(self._episodes))

    def runs(self) -> frozenset[str]:
        """Runs that have live episodes."""
        runs = (live.spec.run_id for live in self._episodes.values())
        return frozenset(run_id for run_id in runs if run_id is not None)

    async def create(self, spec: Spec) -> bytes:
        """Open an episode; a repeated create before the first step is answered from the record."""
        live = self._episodes.get(spec.instance_id)
        if live is None:
            return await self._create(spec)
        if live.spec != spec or live.replies or live.busy or live.broken:
            raise ServiceError(
                409,
                "instance_exists",
                f"instance {spec.instance_id!r} is live; release it or choose another instance_id",
            )
        self._use(spec.instance_id, live)
        _, opened = await asyncio.shield(live.opened)
        return opened

    async def step(self, instance_id: str, message: Message, number: int | None) -> bytes:
        """Take a step; a repeated step is answered from the record."""
        with self._working_on(instance_id) as live:
            if number is not None and number < len(live.replies):
                return self._repeated(live, message, number)
            if number is not None and number > len(live.replies):
                raise ServiceError(
                    409,
                    "step_out_of_order",
                    f"got step {number} of instance {instance_id!r}, expected "
                    f"{len(live.replies)} or the number of an earlier step",
                )
            journal, _ = live.opened.result()
            reply = await self._pool.step(journal, message)
            live.replies.append(reply)
            return reply

    @staticmethod
    def _repeated(live: LiveEpisode, message: Message, number: int) -> bytes:
        journal, _ = live.opened.result()
        if json.loads(journal.entries[number].message) != message:
            raise ServiceError(
                409,
                "step_taken",
                f"step {number} of instance {live.spec.instance_id!r} was taken with another "
                f"message; the next step is {len(live.replies)}",
            )
        return live.replies[number]

    async def evaluate(
        self, instance_id: str, sparse: bool, exit_status: ExitStatus | None = None
    ) -> bytes:
        """Judge an episode as it stands; see `Episode.evaluate`."""
        with self._working_on(instance_id) as live:
            journal, _ = live.opened.result()
            return await self._pool.evaluate(journal, sparse, exit_status)

    def info(self, instance_id: str) -> Any:
        """The `info` that /create returned."""
        live = self._get(instance_id)
        if not live.opened.done():
            raise _busy(instance_id)
        return json.loads(live.opened.result()[1])["info"]

    def release(self, instance_id: str) -> bool:
        """Forget an episode; False if there was none."""
        live = self._episodes.pop(instance_id, None)
        if live is None:
            return False
        self._drop(live)
        return True

    def expire(self) -> None:
        """Drop the episodes that have been idle for too long."""
        oldest = self._clock() - self._limits.idle_timeout_s
        idle = itertools.takewhile(lambda item: item[1].used <= oldest, self._episodes.items())
        for instance_id, live in [(key, live) for key, live in idle if not live.busy]:
            del self._episodes[instance_id]
            self._drop(live)
            self._expired[instance_id] = None
            if len(self._expired) > _MOST_EXPIRED_KNOWN:
                self._expired.popitem(last=False)
            self._metrics.episodes_expired.inc()
            logger.info("episode expired", extra={"instance": instance_id})

    async def _create(self, spec: Spec) -> bytes:
        self.expire()
        if len(self._episodes) >= self._limits.max_episodes:
            self._metrics.episodes_refused.inc()
            raise ServiceError(
                429,
                "too_many_episodes",
                f"{len(self._episodes)} episodes are live, as many as this service takes "
                "(--max-episodes); release some, or try again later",
            )
        opened = asyncio.ensure_future(self._pool.open(spec))
        self._episodes[spec.instance_id] = live = LiveEpisode(spec, opened, self._clock())
        self._expired.pop(spec.instance_id, None)
        try:
            _, data = await asyncio.shield(opened)
        except Exception:
            # Not CancelledError: a client that has hung up may send the request again.
            if self._episodes.get(spec.instance_id) is live:
                del self._episodes[spec.instance_id]
            raise
        self._metrics.episodes_created.inc()
        return data

    def _get(self, instance_id: str) -> LiveEpisode:
        self.expire()
        live = self._episodes.get(instance_id)
        if live is not None:
            self._use(instance_id, live)
            return live
        if instance_id in self._expired:
            raise ServiceError(
                410,
                "instance_expired",
                f"instance {instance_id!r} was dropped after {self._limits.idle_timeout_s:g} s "
                "without a request (--idle-timeout); create a new one",
            )
        raise ServiceError(
            404,
            "unknown_instance",
            f"no live instance {instance_id!r}; it was never created or has been released",
        )

    @contextmanager
    def _working_on(self, instance_id: str) -> Iterator[LiveEpisode]:
        live = self._get(instance_id)
        if live.busy or not live.opened.done():
            raise _busy(instance_id)
        if live.broken:
            raise ServiceError(
                409,
                "episode_broken",
                f"the environment failed in instance {instance_id!r}; create a new one",
            )
        live.busy = True
        try:
            yield live
        except ServiceError as error:
            live.broken = error.status == 500
            raise
        finally:
            live.busy = False
            self._use(instance_id, live)

    def _use(self, instance_id: str, live: LiveEpisode) -> None:
        live.used = self._clock()
        if self._episodes.get(instance_id) is live:
            self._episodes.move_to_end(instance_id)

    def _drop(self, live: LiveEpisode) -> None:
        def forget(opened: "asyncio.Future[tuple[Journal, bytes]]") -> None:
            if not opened.cancelled() and opened.exception() is None:
                self._pool.forget(opened.result()[0])

        live.opened.add_done_callback(forget)


def _busy(instance_id: str) -> ServiceError:
    return ServiceError(
        409,
        "instance_busy",
        f"instance {instance_id!r} is working on another request; wait for its answer",
    )
