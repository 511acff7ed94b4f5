"""The processes of a run: their start and their end.

Every process that the launcher starts inherits the launch id in an environment variable. Processes
that detach themselves, as Ray's daemons do, are found by it, and the launcher ends them by process
id, however the run ends.
"""

import contextlib
import os
import signal
import subprocess
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

import psutil

_VARIABLE = "SEAL_LAUNCH_ID"
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Ctrl-C, SIGTERM and a closed terminal: each of them ends a run, and only the first counts."""


@dataclass
class Family:
    """All processes of one run.

    Example: `family.start(["sleep", "9"], log, {}, cwd)`, later `family.end()`.
    """

    launch_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    """Value of the environment variable; unique to this launch."""
    children: list[subprocess.Popen[bytes]] = field(default_factory=list)
    """The processes that `start` started."""
    peak_bytes: int = 0
    """Largest private memory of all processes together, in bytes, that `sample_memory` saw."""

    def start(
        self, command: Sequence[str], log: Path | None, environment: Mapping[str, str], cwd: Path
    ) -> subprocess.Popen[bytes]:
        """Start a process in its own session, so that Ctrl-C in the terminal does not reach it.

        Its output is appended to the log; without a log it goes where the launcher's goes. The
        environment variables are added to the launcher's own.
        """
        with contextlib.ExitStack() as closing:
            output = None
            if log is not None:
                log.parent.mkdir(parents=True, exist_ok=True)
                output = closing.enter_context(log.open("ab"))
            child = subprocess.Popen(
                command,
                cwd=cwd,
                env={**os.environ, **environment, _VARIABLE: self.launch_id},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=None if output is None else subprocess.STDOUT,
                start_new_session=True,
            )
        self.children.append(child)
        return child

    def members(self) -> list[psutil.Process]:
        """Live processes with the launch id, and their descendants.

        A process that changes its title may overwrite its environment, as Ray's agents do. Such a
        process is found as a descendant.
        """
        children: dict[int, list[psutil.Process]] = {}
        waiting: list[psutil.Process] = []
        # One pass over the process table. psutil's children() makes a pass for every process,
        # which takes too long on a large machine.
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                children.setdefault(process.ppid(), []).append(process)
                if process.environ().get(_VARIABLE) == self.launch_id:
                    waiting.append(process)
        ours: dict[int, psutil.Process] = {}
        while waiting:
            process = waiting.pop()
            if process.pid not in ours:
                ours[process.pid] = process
                waiting += children.get(process.pid, ())
        return list(ours.values())

    def sample_memory(self) -> None:
        """Update `peak_bytes` with the private memory (resident minus shared) of all processes.

        Proportional memory (PSS) would count shared pages as well, once. But the kernel walks every
        page to compute it, which takes seconds for a run of some gigabytes.
        """
        total = 0
        for process in self.members():
            with contextlib.suppress(psutil.Error, OSError):
                memory = process.memory_info()
                total += memory.rss - memory.shared
        self.peak_bytes = max(self.peak_bytes, total)

    def end(self, patience_s: float = 4.0, limit_s: float = 9.0) -> list[int]:
        """End every process: first SIGTERM, then SIGKILL.

        Args:
            patience_s: Seconds that a process has between the two signals.
            limit_s: Seconds after which this function returns in any case.

        Returns:
            Ids of processes that still run. There are none, unless the kernel keeps a process (a
            hanging file system, a driver).
        """
        started = time.monotonic()
        # A descendant is no longer found once its parent has gone, so all are remembered.
        known = {process.pid: process for process in self.members()}
        for end, until_s in (
            (psutil.Process.terminate, patience_s),
            (psutil.Process.kill, limit_s),
        ):
            signalled: set[psutil.Process] = set()
            while (left := self._left(known)) and time.monotonic() - started < until_s:
                for process in set(left) - signalled:
                    with contextlib.suppress(psutil.Error):
                        end(process)
                signalled.update(left)
                psutil.wait_procs(left, timeout=0.2)
        for child in self.children:
            child.poll()  # reaps it, so that it does not stay a zombie
        return [process.pid for process in left]

    def _left(self, known: dict[int, psutil.Process]) -> list[psutil.Process]:
        """Known and new processes that still run; psutil notices a reused process id."""
        known.update((process.pid, process) for process in self.members())
        return [process for process in known.values() if _runs(process)]


def _runs(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def last_lines(path: Path, most_bytes: int = 200_000) -> list[str]:
    """The last complete lines of a log of any size; none if the file does not exist."""
    if not path.exists():
        return []
    with path.open("rb") as file:
        skipped = max(0, path.stat().st_size - most_bytes)
        file.seek(skipped)
        lines = file.read().decode("utf-8", "replace").splitlines()
    return lines[1:] if skipped else lines


def tail(path: Path, lines: int = 15) -> str:
    """The last lines of a log, for an error message."""
    return "\n".join(last_lines(path)[-lines:]) or "(no log)"


def interrupt_once() -> None:
    """Let the first of these signals raise KeyboardInterrupt, and ignore later ones.

    A second Ctrl-C must not stop the launcher while it ends the processes of the run.
    """

    def interrupt(number: int, frame: FrameType | None) -> None:
        ignore_interrupts()
        raise KeyboardInterrupt

    for number in _SIGNALS:
        # nohup ignores SIGHUP, and that must not change.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, interrupt)


def ignore_interrupts() -> None:
    """Ignore these signals from now on, so that the run's processes can be ended."""
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)
