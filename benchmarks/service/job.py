"""What a process of the service's benchmark is told, and what it measures: plain data."""

import dataclasses
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal


@dataclass(frozen=True)
class Script:
    """What the client says in an episode, and the verdict it must get."""

    task_id: str
    messages: tuple[str, ...]
    """Text of each assistant message."""
    expected: float
    """Accuracy."""


@dataclass(frozen=True)
class Job:
    """What one process does."""

    do: Literal["replay", "hold", "baseline"]
    """Play episodes to their verdict; play their first message only; or bfcl-eval's execution."""
    scripts: tuple[Script, ...]
    seconds: float
    """How long it plays at least; it ends with a whole pass over the scripts."""
    url: str = ""
    """Where the service listens."""
    name: str = ""
    """Start of the episodes' ids."""
    clients: int = 0
    """Concurrent episodes."""

    @classmethod
    def read(cls, path: Path) -> "Job":
        """The job in a file."""
        values = json.loads(path.read_text("utf-8"))
        scripts = tuple(Script(**script) for script in values.pop("scripts"))
        return cls(scripts=scripts, **values)


@dataclass
class Figures:
    """What a process has measured."""

    wall_s: float = 0.0
    cpu_s: float = 0.0
    """Processor time of the process."""
    passes: int = 0
    """How often the list of scripts was played."""
    episodes: int = 0
    ms: dict[str, list[float]] = dataclasses.field(default_factory=dict)
    """Milliseconds of each request, by its kind: create, step, evaluate. Empty: no requests."""
    wrong: list[str] = dataclasses.field(default_factory=list)
    """A sentence for each wrong verdict."""

    def measured_passes(self, job: Job) -> Iterator[int]:
        """Numbers of passes until the job's time is over, at least one; notes what they took."""
        cpu_started, started = time.process_time(), time.perf_counter()
        while not self.passes or self.wall_s < job.seconds:
            yield self.passes
            self.passes += 1
            self.episodes += len(job.scripts)
            self.wall_s = time.perf_counter() - started
        self.cpu_s = time.process_time() - cpu_started
