"""The worker processes of a service, and the choice among them.

In: a request about an episode. Out: the JSON text of a reply's data, or a `ServiceError`. The
request goes to the worker that holds the episode. If that one has died or is stuck in a slow call,
the request goes to another worker, which first rebuilds the episode from its journal. So a death
costs a replay and nothing else, and a slow call delays other episodes by at most STUCK_S.

Slow calls of one run do not stop another run. There are at most MOST_FACTOR times as many processes
as wanted, and one run may hold all but the wanted number of them with slow calls. A request that
finds no process waits; the run that holds the fewest processes is next. So beside slow calls of
another run, a request waits for STUCK_S and the start of a process. Beside slow calls of its own
run, it waits until one of them reaches its time limit.
"""

import asyncio
import contextlib
import itertools
import json
import logging
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from env_service.environments.base import SelfCheckFailed, Stop, TaskFile
from env_service.errors import ServiceError
from env_service.metrics import Metrics
from env_service.workers.frames import Answer, Entry, Setup, Spec
from env_service.workers.worker_handle import Job, Journal, WorkerDied, WorkerHandle
from seal.wire import ExitStatus, Message

logger = logging.getLogger(__name__)

STUCK_S = 0.5
"""Seconds after which jobs that wait behind a request go to other workers."""
ATTEMPTS = 6
"""Workers that may get a request before it has failed."""
MOST_FACTOR = 4
"""Most processes, as a multiple of the wanted number: a stuck one is replaced before it ends."""
_DEATHS = 2
"""Deaths during one call that may have an outside cause."""
_CLOSE_S = 2.0
_TICK_S = 0.1
_RESTART_S = 1.0


@dataclass(frozen=True)
class Limits:
    """How much a client, a policy or a tool may use."""

    workers: int = 2
    """Worker processes."""
    call_time_s: float = 5.0
    """Seconds that one call may take."""
    memory_mb: int = 1024
    """MiB of address space that a worker may take beyond what it starts with."""
    max_episodes: int = 4096
    """Live episodes."""
    resident_episodes: int = 4096
    """Episodes that a worker holds in memory; others are rebuilt from their journals."""
    idle_timeout_s: float = 1800.0
    """Seconds without a request after which an episode is dropped."""
    max_body_bytes: int = 1_000_000
    """Bytes of a request's body."""


class WorkerPool:
    """Worker processes, replaced as they die.

    Args:
        environments: Environment name -> "module:class".
        limits: Number of processes, and how much they may use.
        metrics: Counts deaths, stops and rebuilds.
        tasks: Pools of tasks beside the environments' own.
    """

    def __init__(
        self,
        environments: Mapping[str, str],
        limits: Limits,
        metrics: Metrics,
        tasks: Sequence[TaskFile] = (),
    ) -> None:
        self._setup = Setup(
            environments=dict(environments),
            call_time_s=limits.call_time_s,
            memory_bytes=limits.memory_mb * 1024**2,
            resident_episodes=limits.resident_episodes,
            log_level=logging.getLevelName(logging.getLogger().getEffectiveLevel()),
            tasks=tuple(tasks),
        )
        self.tasks = tuple(tasks)
        self.environments = tuple(environments)
        self._limits = limits
        self._metrics = metrics
        self._workers: list[WorkerHandle] = []
        self._waiting: list[Job] = []
        self._changed = asyncio.Event()
        self._keys = itertools.count()
        self._start_fault: str | None = None
        self._no_start_before = 0.0
        self._closed = False
        self._watch: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start the processes and wait until one of them is ready.

        Raises:
            SelfCheckFailed: An environment is broken; no process is left running.
        """
        for _ in range(self._limits.workers):
            await self._add()
        while not self.healthy and self._workers:
            await self._change()
        if not self.healthy:
            raise SelfCheckFailed(self._start_fault or "no worker process could be started")
        self._watch = asyncio.create_task(self._keep_watch())

    async def close(self) -> None:
        """End every process."""
        self._closed = True
        if self._watch is not None:
            self._watch.cancel()
        for worker in self._workers:
            worker.kill()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_S):
                while self._workers:
                    await self._change()

    @property
    def healthy(self) -> bool:
        """Whether there is a worker that has passed every self check."""
        return any(worker.ready for worker in self._workers)

    def known(self, env_type: str | None) -> str:
        """The name of an environment that this service has.

        Raises:
            ServiceError: 422, it has no such environment.
        """
        if env_type is None or env_type not in self.environments:
            known = ", ".join(self.environments)
            raise ServiceError(
                422, "unknown_env_type", f"unknown env_type {env_type!r}; this service has: {known}"
            )
        return env_type

    @property
    def pids(self) -> tuple[int, ...]:
        """Process ids of the workers."""
        return tuple(worker.pid for worker in self._workers)

    async def task_ids(self, env_type: str, split: str) -> bytes:
        """Task ids of a split, as JSON."""
        return (await self._ask({"do": "task_ids", "env_type": env_type, "split": split})).body

    async def open(self, spec: Spec) -> tuple[Journal, bytes]:
        """A new episode, and the data of /create."""
        journal = Journal(next(self._keys), spec)
        return journal, (await self._ask({"do": "open"}, journal)).body

    async def step(self, journal: Journal, message: Message) -> bytes:
        """Take a step; returns the data of /step.

        Raises:
            ServiceError: 422, the message is nested too deeply; or see `_ask`.
        """
        try:
            entry = Entry(json.dumps(message))
        except RecursionError:
            raise ServiceError(422, "bad_message", "messages is nested too deeply") from None
        answer = await self._ask({"do": "step", "entry": entry}, journal)
        entry.seconds = answer.header["seconds"]
        journal.entries.append(entry)
        return answer.body

    async def evaluate(
        self, journal: Journal, sparse: bool, exit_status: ExitStatus | None
    ) -> bytes:
        """Judge an episode as it stands; returns the data of /evaluate."""
        request = {"do": "evaluate", "sparse": sparse, "exit_status": exit_status}
        return (await self._ask(request, journal)).body

    def forget(self, journal: Journal) -> None:
        """Drop an episode."""
        if journal.home is not None:
            journal.home.forget(journal.key)

    # ---- one request ------------------------------------------------------------------------

    async def _ask(self, request: dict[str, Any], journal: Journal | None = None) -> Answer:
        """Give a request to workers until one has answered it.

        Raises:
            ServiceError: The client's mistake, a fault of the environment, or no worker survives.
        """
        deaths: Counter[int] = Counter()
        for _ in range(ATTEMPTS):
            job = Job(request, asyncio.get_running_loop().create_future(), journal)
            self._submit(job)
            try:
                answer = await job.answer
            except WorkerDied as death:
                if death.call is None and death.out_of_time:
                    raise _environment_error("a replay took too long") from death
                if death.call is not None:
                    deaths[death.call] += 1
                    if death.out_of_time:
                        reason = f"as it took longer than {self._limits.call_time_s:g} s"
                        self._stop(request["entry"], Stop(death.call, reason))
                    # One death may have an outside cause, several during the same call have not.
                    elif deaths[death.call] > _DEATHS:
                        reason = "as it ended the process that ran it"
                        self._stop(request["entry"], Stop(death.call, reason))
                continue
            match answer.header["status"]:
                case "ok":
                    return answer
                case "stopped" if "entry" in request:
                    self._stop(request["entry"], Stop(**answer.header["stop"]))
                case "refused":
                    raise ServiceError(
                        answer.header["http"], answer.header["code"], answer.header["message"]
                    )
                case status:
                    raise _environment_error(answer.header.get("error", status))
        raise _environment_error("the worker processes ended")

    def _stop(self, entry: Entry, stop: Stop) -> None:
        """Record that a call was stopped; the step is then taken again without it."""
        entry.stop = stop
        self._metrics.calls_stopped.inc()

    def _submit(self, job: Job) -> None:
        if job.answer.done():
            return  # nobody waits for the answer any more
        if self._closed:
            job.answer.set_exception(_no_worker("the service is stopping"))
            return
        worker = self._worker_for(job)
        if worker is not None:
            worker.submit(job)
        elif self._start_fault is None or any(handle.ready for handle in self._workers):
            self._waiting.append(job)
        else:
            job.answer.set_exception(_no_worker("its worker processes do not start"))

    def _worker_for(self, job: Job) -> WorkerHandle | None:
        """The worker that holds the episode, else the one with the fewest jobs; None: wait."""
        home = None if job.journal is None else job.journal.home
        if home is not None and home.ready and not home.stuck(STUCK_S):
            return home
        free = [worker for worker in self._workers if worker.ready and not worker.stuck(STUCK_S)]
        if not free or self._held_by(job) >= self._limits.workers * (MOST_FACTOR - 1):
            return None
        if home is not None:
            self._metrics.episodes_rebuilt.inc()
        return min(free, key=lambda worker: (worker.load, worker.jobs_done))

    def _held_by(self, job: Job) -> int:
        """Processes that are stuck in calls of the job's run."""
        return sum(worker.run_id == job.run_id for worker in self._workers if worker.stuck(STUCK_S))

    def _give_out(self) -> None:
        """Submit the waiting jobs; the run that holds the fewest processes comes first."""
        waiting, self._waiting = self._waiting, []
        # Sorting is stable: among equals, the job that came first goes first.
        for job in sorted(waiting, key=self._held_by):
            self._submit(job)

    # ---- the processes ------------------------------------------------------------------------

    async def _add(self) -> None:
        rebuilt = self._metrics.episodes_rebuilt.inc
        worker = WorkerHandle(self._setup, self._on_ready, self._on_death, rebuilt)
        self._workers.append(worker)
        try:
            await worker.start()
        except OSError as error:  # no memory, no process, no file descriptor left
            logger.error("no worker process could be started", extra={"reason": str(error)})
            self._workers.remove(worker)
            self._start_fault = f"a process could not be started ({error.strerror})"
            self._no_start_before = time.monotonic() + _RESTART_S
            self._give_out()

    def _on_ready(self, worker: WorkerHandle) -> None:
        self._start_fault = None
        logger.info("worker ready", extra={"worker": worker.pid})
        self._give_out()
        self._changed.set()

    def _on_death(self, worker: WorkerHandle, waiting: list[Job]) -> None:
        self._workers.remove(worker)
        # A signal from outside does not predict that the next start fails.
        if not worker.was_ready and not worker.killed and not self._closed:
            self._start_fault = worker.fault or "it ended before it was ready"
            self._no_start_before = time.monotonic() + _RESTART_S
        if worker.fault is not None and not self._closed:
            self._metrics.workers_ended.inc()
            logger.warning("worker ended", extra={"worker": worker.pid, "reason": worker.fault})
        self._waiting = [*waiting, *self._waiting]
        self._give_out()
        self._changed.set()

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    async def _keep_watch(self) -> None:
        """Keep the wanted number of workers, and move the jobs that wait behind stuck ones."""
        while True:
            await asyncio.sleep(_TICK_S)
            for worker in self._workers:
                if worker.overdue or (worker.stuck(STUCK_S) and worker.stopped):
                    worker.fault = "it was stopped, or did not answer within its time limit"
                    worker.kill()
            stuck = [worker for worker in self._workers if worker.stuck(STUCK_S)]
            free = [worker for worker in self._workers if worker not in stuck]
            self._waiting += [job for worker in stuck for job in worker.give_back()]
            self._give_out()
            missing = self._limits.workers - len(free)
            room = self._limits.workers * MOST_FACTOR - len(self._workers)
            if time.monotonic() > self._no_start_before:
                for _ in range(min(missing, room)):
                    await self._add()
            for worker in free[self._limits.workers :]:
                if worker.ready and not worker.load:
                    worker.retire()


def _environment_error(what: str) -> ServiceError:
    return ServiceError(
        500,
        "environment_error",
        f"the environment failed ({what}); the service's log has the cause. "
        "This says nothing about the policy: drop the episode, or create it again",
    )


def _no_worker(why: str) -> ServiceError:
    return ServiceError(503, "no_worker", f"{why}; try again later, the service's log says more")
