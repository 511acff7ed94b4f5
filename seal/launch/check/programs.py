"""Short programs that answer one question, each in a process of its own, side by side.

In: commands. Out: what each printed, or why it did not. Called for whatever has to import torch,
verl or Ray, which takes seconds and may crash the process that does it.
"""

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Program:
    """A command and what it needs."""

    command: Sequence[str]
    cwd: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables on top of this process's own."""


@dataclass(frozen=True)
class Answer:
    """What became of a program."""

    printed: str
    """Its standard output; empty where it failed."""
    failure: str
    """The last line it said where it failed; empty where it did not."""


def ask(programs: Mapping[str, Program], patience_s: float) -> dict[str, Answer]:
    """Run programs side by side.

    Args:
        programs: By a name of the caller's.
        patience_s: Seconds after which those that still run are ended.

    Returns:
        The answer of each, by the same name.
    """
    deadline = time.monotonic() + patience_s
    with contextlib.ExitStack() as ending:
        started = {
            name: ending.enter_context(_running(program)) for name, program in programs.items()
        }
        return {name: _answer(process, deadline) for name, process in started.items()}


@contextlib.contextmanager
def _running(program: Program) -> Iterator["subprocess.Popen[str]"]:
    process = subprocess.Popen(
        program.command,
        cwd=program.cwd,
        env={**os.environ, **program.environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def _answer(process: "subprocess.Popen[str]", deadline: float) -> Answer:
    began = time.monotonic()
    try:
        printed, said = process.communicate(timeout=max(0.0, deadline - began))
    except subprocess.TimeoutExpired:
        return Answer("", f"no answer after {time.monotonic() - began:.0f} s")
    if process.returncode == 0:
        return Answer(printed, "")
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return Answer("", lines[-1] if lines else f"it ended with exit code {process.returncode}")
