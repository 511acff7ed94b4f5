"""Short programs that answer one question each, all at the same time.

In: commands. Out: the output of each, or why it failed. Importing torch, verl or Ray takes seconds
and may crash the process, so the launcher has it done by such programs.
"""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Program:
    """A command with its folder and environment."""

    command: Sequence[str]
    cwd: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables to add to this process's own."""


@dataclass(frozen=True)
class Answer:
    """The result of a program."""

    printed: str
    """Its standard output; empty if it failed."""
    failure: str
    """The last line of its standard error if it failed; empty if it did not."""


def ask(programs: Mapping[str, Program], patience_s: float) -> dict[str, Answer]:
    """Run programs at the same time; returns the answer of each, by the same name.

    Programs that still run after `patience_s` seconds are killed.
    """
    deadline = time.monotonic() + patience_s
    started: dict[str, subprocess.Popen[str]] = {}
    with contextlib.ExitStack() as ending:
        for name, program in programs.items():
            process = subprocess.Popen(
                program.command,
                cwd=program.cwd,
                env={**os.environ, **program.environment},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                process_group=0,
            )
            started[name] = ending.enter_context(process)
            ending.callback(_kill, process)
        return {name: _answer(process, deadline) for name, process in started.items()}


def _kill(process: subprocess.Popen[str]) -> None:
    """End a program that still runs, and the processes that it has started."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)


def _answer(process: subprocess.Popen[str], deadline: float) -> Answer:
    began = time.monotonic()
    try:
        printed, errors = process.communicate(timeout=max(0.0, deadline - began))
    except subprocess.TimeoutExpired:
        return Answer("", f"no answer after {time.monotonic() - began:.0f} s")
    if process.returncode == 0:
        return Answer(printed, "")
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    return Answer("", lines[-1] if lines else f"it ended with exit code {process.returncode}")
