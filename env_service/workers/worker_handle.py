"""The service's end of one worker process.

In: jobs. Out: each job's answer, or its return to the pool if the process has died. The process has
one job at a time. The others wait here, so that the pool can give them to another worker if this
one is stuck.
"""

import asyncio
import math
import mmap
import os
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

from env_service.workers.frames import (
    IDLE,
    PROGRESS,
    Answer,
    Entry,
    Setup,
    Spec,
    message_limit_s,
    pack,
    replay_limit_s,
    unpack,
)

MARGIN_S = 3.0
"""Seconds beyond its own time limit after which a process counts as stopped."""
START_S = 120.0
"""Seconds that a process may take until it is ready."""


@dataclass(eq=False)
class Journal:
    """The truth about an episode: any worker can rebuild the episode from it."""

    key: int
    """The service's name for it; unlike an instance id, a key is never used again."""
    spec: Spec
    """What it was created with."""
    entries: list[Entry] = field(default_factory=list)
    """The steps that it has taken."""
    home: "WorkerHandle | None" = None
    """The worker that holds it in memory."""


@dataclass(eq=False)
class Job:
    """One request to a worker."""

    request: dict[str, Any]
    """What to do: `do` and its arguments."""
    answer: "asyncio.Future[Answer]"
    """The answer to come."""
    journal: Journal | None = None
    """Its episode, if it has one."""

    @property
    def run_id(self) -> str | None:
        """The run of its episode."""
        return None if self.journal is None else self.journal.spec.run_id

    def frame(self, forget: list[int], with_journal: bool) -> bytes:
        """The request as a frame; a worker that does not hold the episode gets its journal."""
        request = {**self.request, "forget": forget}
        if self.journal is not None:
            request["key"] = self.journal.key
            request["taken"] = len(self.journal.entries)
            if with_journal:
                request["spec"] = self.journal.spec
                request["journal"] = self.journal.entries
        return pack(request)

    def limit_s(self, call_time_s: float, with_journal: bool) -> float:
        """Seconds that a worker may take under its own limits."""
        limit = message_limit_s(call_time_s)
        if with_journal or self.request["do"] == "evaluate":
            entries = self.journal.entries if self.journal is not None else []
            limit += replay_limit_s(call_time_s, sum(entry.seconds for entry in entries))
        return limit


class WorkerDied(Exception):
    """The process ended while it worked on a job.

    Args:
        call: Index of the call that it ran for the first time; None if it did something else.
        out_of_time: The time limit ended it.
    """

    def __init__(self, call: int | None, out_of_time: bool) -> None:
        super().__init__("a worker process ended")
        self.call = call
        self.out_of_time = out_of_time


class WorkerHandle(asyncio.Protocol):
    """One process and the jobs that wait for it.

    Args:
        setup: What it serves.
        on_ready: Called when it can take jobs.
        on_death: Called once when it has ended, with the jobs that still wait.
        on_rebuild: Called when it no longer holds an episode and must rebuild it.
    """

    def __init__(
        self,
        setup: Setup,
        on_ready: Callable[["WorkerHandle"], None],
        on_death: Callable[["WorkerHandle", list[Job]], None],
        on_rebuild: Callable[[], object],
    ) -> None:
        self._setup = setup
        self._on_ready = on_ready
        self._on_death = on_death
        self._on_rebuild = on_rebuild
        self._buffer = bytearray()
        self._waiting: deque[Job] = deque()
        self._current: Job | None = None
        self._since = 0.0
        self._due = math.inf
        self._forget: list[int] = []
        self._transport: asyncio.WriteTransport | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._progress: mmap.mmap | None = None
        self.ready = False
        """It takes jobs."""
        self.was_ready = False
        """It has passed every self check."""
        self.killed = False
        """A signal has ended it."""
        self.jobs_done = 0
        """Requests that it has answered."""
        self.fault: str | None = None
        """Why it never became ready or why it ended; None while it lives or after a normal end."""

    async def start(self) -> None:
        """Start the process; `on_ready` or `on_death` will be called."""
        self._due = time.monotonic() + START_S
        shared = os.memfd_create("progress")
        try:
            ours, theirs = socket.socketpair()
        except OSError:
            os.close(shared)
            raise
        try:
            os.ftruncate(shared, PROGRESS.size)
            self._progress = mmap.mmap(shared, PROGRESS.size)
            PROGRESS.pack_into(self._progress, 0, IDLE)
            command = [sys.executable, "-m", "env_service.workers.worker_process"]
            self._process = subprocess.Popen(
                [*command, str(theirs.fileno()), str(shared)],
                pass_fds=(theirs.fileno(), shared),
                stdin=subprocess.DEVNULL,
                stdout=2,  # what a tool prints goes where the log goes
                # It must find modules where this process finds them.
                env={
                    **os.environ,
                    "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
                    # Tools list sets; without this, each worker lists them in another order.
                    "PYTHONHASHSEED": "0",
                },
            )
            ours.setblocking(False)
            await asyncio.get_running_loop().create_connection(lambda: self, sock=ours)
        except BaseException:
            ours.close()
            self.kill()
            raise
        finally:
            theirs.close()
            os.close(shared)

    @property
    def load(self) -> int:
        """Jobs that the process has or that wait for it."""
        return len(self._waiting) + (self._current is not None)

    @property
    def pid(self) -> int:
        """Process id."""
        assert self._process is not None
        return self._process.pid

    @property
    def run_id(self) -> str | None:
        """The run of the current job."""
        return None if self._current is None else self._current.run_id

    def stuck(self, after_s: float) -> bool:
        """Whether the current job has run for so many seconds."""
        return self._current is not None and time.monotonic() - self._since > after_s

    @property
    def overdue(self) -> bool:
        """Whether it should have answered, started or ended by now."""
        return time.monotonic() > self._due

    @property
    def stopped(self) -> bool:
        """Whether the system reports that a signal has stopped the process."""
        try:
            with open(f"/proc/{self.pid}/stat", encoding="utf-8", errors="replace") as stat:
                return stat.read().rpartition(")")[2].split()[0] == "T"
        except (OSError, IndexError):
            return False

    def submit(self, job: Job) -> None:
        """Take a job."""
        self._waiting.append(job)
        self._next()

    def forget(self, key: int) -> None:
        """Drop an episode; the process learns it with the next job."""
        self._forget.append(key)

    def give_back(self) -> list[Job]:
        """Give up the waiting jobs, so that other workers can take them."""
        jobs, self._waiting = list(self._waiting), deque()
        return jobs

    def retire(self) -> None:
        """Let the process end after its current job."""
        self.ready = False
        self._due = time.monotonic() + MARGIN_S
        if self._transport is not None:
            self._transport.write_eof()

    def kill(self) -> None:
        """End the process now."""
        self.ready = False
        if self._process is not None:
            self._process.kill()

    # ---- asyncio.Protocol ---------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is open: send the setup."""
        self._transport = cast(asyncio.WriteTransport, transport)
        self._transport.write(pack(vars(self._setup)))

    def data_received(self, data: bytes) -> None:
        """A part of an answer."""
        self._buffer += data
        while (unpacked := unpack(self._buffer)) is not None:
            answer, end = unpacked
            del self._buffer[:end]
            self._answered(answer)

    def connection_lost(self, exc: Exception | None) -> None:
        """The process has closed its end of the socket."""
        assert self._process is not None and self._progress is not None
        self.ready = False
        try:
            # A process closes its socket as it ends.
            code = self._process.wait(timeout=1.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        self.killed = code < 0
        if code != 0 and self.fault is None:
            self.fault = f"it ended with exit code {code}"
        (call,) = PROGRESS.unpack_from(self._progress)
        self._progress.close()
        job, self._current = self._current, None
        if job is not None and not job.answer.done():
            death = WorkerDied(None if call == IDLE else call, code == -signal.SIGALRM)
            job.answer.set_exception(death)
        self._on_death(self, self.give_back())

    # ---- one job after the other -----------------------------------------------------------

    def _answered(self, answer: Answer) -> None:
        status = answer.header["status"]
        if status == "ready":
            self.ready = self.was_ready = True
            self._due = math.inf
            self._on_ready(self)
            return
        if status == "broken":
            self.fault = answer.header["message"]
            return
        job = self._current
        assert job is not None, "an answer without a request"
        if status == "missing":
            self._on_rebuild()
            self._send(job, with_journal=True)
            return
        self._current = None
        self._due = math.inf
        self.jobs_done += 1
        if job.journal is not None and job.journal.home is not self:
            if job.journal.home is not None:
                job.journal.home.forget(job.journal.key)
            job.journal.home = self
        if not job.answer.done():
            job.answer.set_result(answer)
        self._next()

    def _next(self) -> None:
        if self._current is None and self._waiting:
            self._current = self._waiting.popleft()
            journal = self._current.journal
            self._send(self._current, journal is not None and journal.home is not self)

    def _send(self, job: Job, with_journal: bool) -> None:
        assert self._transport is not None
        self._since = time.monotonic()
        self._due = self._since + job.limit_s(self._setup.call_time_s, with_journal) + MARGIN_S
        forget, self._forget = self._forget, []
        self._transport.write(job.frame(forget, with_journal))
