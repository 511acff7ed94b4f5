"""The processes a run is made of, and their end.

Every process the launcher starts inherits a mark in its environment, so that those which
detach themselves (Ray's daemons do) are found and ended by id, whatever way the run ends.
"""

import contextlib
import os
import subprocess
import time
import uuid
from collections.abc import Mapping, Sequence
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
        self, command: Sequence[str], log: Path, environment: Mapping[str, str], cwd: Path
    ) -> subprocess.Popen[bytes]:
        """Start a process in a session of its own, its output going to `log`."""
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as output:
            child = subprocess.Popen(
                command,
                cwd=cwd,
                env={**os.environ, **environment, _MARK: self.launch_id},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.children.append(child)
        return child

    def members(self) -> list[psutil.Process]:
        """Live processes that carry the mark, and their descendants.

        Descendants count because a process that changes its title may overwrite its environment,
        mark included, as Ray's agents do.
        """
        found: dict[int, psutil.Process] = {}
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                if process.environ().get(_MARK) == self.launch_id:
                    for member in (process, *process.children(recursive=True)):
                        found[member.pid] = member
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

    def end(self, patience_s: float = 5.0) -> None:
        """End every member: ask first, then kill. Returns when none is left."""
        # Kept from the start: a descendant is no longer found once its parent has gone.
        known = {process.pid: process for process in self.members()}
        for process in known.values():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.terminate()
        deadline = time.monotonic() + patience_s
        while (left := self._left(known)) and time.monotonic() < deadline:
            psutil.wait_procs(left, timeout=0.2)
        while left := self._left(known):
            for process in left:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            psutil.wait_procs(left, timeout=1.0)
        for child in self.children:
            child.wait()

    def _left(self, known: dict[int, psutil.Process]) -> list[psutil.Process]:
        """Members old and new that still run; psutil tells a reused process id apart."""
        known.update((process.pid, process) for process in self.members())
        return [process for process in known.values() if _runs(process)]


def _runs(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def tail(path: Path, lines: int = 15) -> str:
    """The last lines of a text file, for an error message."""
    if not path.exists():
        return "(no log)"
    return "\n".join(path.read_text("utf-8", "replace").splitlines()[-lines:])
