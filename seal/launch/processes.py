"""The processes a run is made of, and their end.

Every process the launcher starts inherits a mark in its environment, so that those which
detach themselves (Ray's daemons do) are found and ended by id, whatever way the run ends.
"""

import contextlib
import os
import subprocess
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

_MARK = "SEAL_LAUNCH_ID"


@dataclass
class Family:
    """All processes of one run.

    Example: `family.start(["sleep", "9"], log, {}, cwd)`, later `family.end()`.
    """

    launch_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    """Value of the mark; unique to this run."""
    children: list[subprocess.Popen[bytes]] = field(default_factory=list)
    """What `start` has started."""
    peak_bytes: int = 0
    """Largest private memory of the whole family that `sample_memory` has seen."""

    def start(
        self, command: Sequence[str], log: Path | None, environment: Mapping[str, str], cwd: Path
    ) -> subprocess.Popen[bytes]:
        """Start a process in a session of its own, which Ctrl-C in a terminal does not reach.

        Args:
            command: Program and arguments.
            log: File its output is added to; None leaves it on the launcher's own.
            environment: Variables on top of the launcher's.
            cwd: Folder to run in.
        """
        with contextlib.ExitStack() as closing:
            output = None
            if log is not None:
                log.parent.mkdir(parents=True, exist_ok=True)
                output = closing.enter_context(log.open("ab"))
            child = subprocess.Popen(
                command,
                cwd=cwd,
                env={**os.environ, **environment, _MARK: self.launch_id},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=None if output is None else subprocess.STDOUT,
                start_new_session=True,
            )
        self.children.append(child)
        return child

    def members(self) -> list[psutil.Process]:
        """Live processes that carry the mark, and their descendants.

        Descendants count because a process that changes its title may overwrite its environment,
        mark included, as Ray's agents do.
        """
        processes: dict[int, psutil.Process] = {}
        children: dict[int, list[int]] = {}
        marked: list[int] = []
        # One pass over all processes: on a large machine asking each for its children takes
        # longer than the whole end may.
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                children.setdefault(process.ppid(), []).append(process.pid)
                processes[process.pid] = process
                if process.environ().get(_MARK) == self.launch_id:
                    marked.append(process.pid)
        found: dict[int, psutil.Process] = {}
        while marked:
            pid = marked.pop()
            if pid not in found and pid in processes:
                found[pid] = processes[pid]
                marked += children.get(pid, ())
        return list(found.values())

    def sample_memory(self) -> None:
        """Note the family's private memory (resident less shared) if it is the largest so far.

        Proportional memory (PSS) would count what is shared once, too, but to read it the kernel
        walks every page: seconds of a core for a run of some gigabytes.
        """
        total = 0
        for process in self.members():
            with contextlib.suppress(psutil.Error, OSError):
                memory = process.memory_info()
                total += memory.rss - memory.shared
        self.peak_bytes = max(self.peak_bytes, total)

    def end(self, patience_s: float = 4.0, limit_s: float = 9.0) -> list[int]:
        """End every member: ask first, then kill.

        Args:
            patience_s: Seconds a member has to end by itself.
            limit_s: Seconds after which nothing more is waited for.

        Returns:
            Process ids that are still there: none, unless the kernel itself keeps a process (a
            hanging file system, a driver).
        """
        started = time.monotonic()
        # Kept from the start: a descendant is no longer found once its parent has gone.
        known = {process.pid: process for process in self.members()}
        asked: set[psutil.Process] = set()
        while (left := self._left(known)) and time.monotonic() - started < patience_s:
            _each(psutil.Process.terminate, [process for process in left if process not in asked])
            asked.update(left)
            psutil.wait_procs(left, timeout=0.2)
        while (left := self._left(known)) and time.monotonic() - started < limit_s:
            _each(psutil.Process.kill, left)
            psutil.wait_procs(left, timeout=0.5)
        for child in self.children:
            child.poll()  # collects it, so that it does not stay a zombie
        return [process.pid for process in left]

    def _left(self, known: dict[int, psutil.Process]) -> list[psutil.Process]:
        """Members old and new that still run; psutil tells a reused process id apart."""
        known.update((process.pid, process) for process in self.members())
        return [process for process in known.values() if _runs(process)]


def _each(action: Callable[[psutil.Process], None], processes: Iterable[psutil.Process]) -> None:
    for process in processes:
        with contextlib.suppress(psutil.Error):
            action(process)


def _runs(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def last_lines(path: Path, most_bytes: int = 200_000) -> list[str]:
    """The last lines of a log of any size, whole; none where there is no log."""
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
