"""Runs attempts at tasks that somebody else has written: in a process that may be ended.

In: a function of a number. Out: what it returns for each number, in order, or `Stopped`. A model
may propose a call that never returns or that takes all memory (a power of large numbers). So
attempts run in a forked process, one after the other, and a process that takes too long is ended
and replaced. Ctrl-C is handled by the parent alone, and the process ends with its parent.
"""

import ctypes
import multiprocessing
import resource
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import Generic, TypeVar

Result = TypeVar("Result")

SECONDS = 20.0
"""For one attempt; an ordinary one takes 0.02."""
MEMORY = 1 << 30
"""Bytes of address space beyond what the process starts with."""
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Stopped:
    """An attempt was ended."""

    reason: str
    """Why."""


def run_confined(
    attempt: Callable[[int], Result], count: int, seconds: float = SECONDS, memory: int = MEMORY
) -> Iterator[Result | Stopped]:
    """Make the attempts 0 to count - 1.

    Args:
        attempt: Makes one; its result must be picklable.
        count: How many.
        seconds: That one may take.
        memory: Bytes that the process may take beyond what it starts with.
    """
    worker: _Worker[Result] | None = None
    try:
        for number in range(count):
            worker = worker or _Worker(attempt, memory)
            outcome = worker.ask(number, seconds)
            yield outcome
            if isinstance(outcome, Stopped):
                worker.end()
                worker = None
    finally:
        if worker is not None:
            worker.end()


class _Worker(Generic[Result]):
    """A forked process that makes attempts."""

    def __init__(self, attempt: Callable[[int], Result], memory: int) -> None:
        fork = multiprocessing.get_context("fork")
        self._here, there = fork.Pipe()
        self._process: ForkProcess = fork.Process(target=_serve, args=(there, attempt, memory))
        self._process.start()
        there.close()

    def ask(self, number: int, seconds: float) -> Result | Stopped:
        try:
            self._here.send(number)
            if not self._here.poll(seconds):
                return Stopped("it takes too long")
            outcome: Result | Stopped = self._here.recv()
            return outcome
        except (EOFError, OSError):
            return Stopped("it ends the process that runs it")

    def end(self) -> None:
        self._process.kill()
        self._process.join()
        self._here.close()


def _serve(there: Connection, attempt: Callable[[int], object], memory: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[0])
    limit = pages * resource.getpagesize() + memory
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    with suppress(EOFError):
        while True:
            number = there.recv()
            try:
                outcome = attempt(number)
            except MemoryError:
                outcome = Stopped("it takes too much memory")
            there.send(outcome)
