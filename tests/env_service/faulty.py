"""Environments that go wrong: what worker processes have to stand."""

import os
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from env_service.environments.base import EpisodeOptions, SelfCheckFailed
from env_service.environments.dialogue import StepRecord, ToolResult, Verdict, run_calls
from env_service.environments.toy.environment import DOCS, TASKS, ToyEnvironment, ToyEpisode
from seal.formats import ToolCall
from seal.wire import ToolDoc, TurnProgress

MARK = "FAULTY_MARK"
"""Environment variable: a file that some faults look for."""


class Broken(ToyEnvironment):
    """Does not pass its self check."""

    def self_check(self) -> None:
        raise SelfCheckFailed("toy: a wire is loose")


class BreaksLater(ToyEnvironment):
    """Passes its self check until the file MARK is there."""

    def self_check(self) -> None:
        if Path(os.environ[MARK]).exists():
            raise SelfCheckFailed("toy: a wire came loose")


def misbehave(call: ToolCall) -> ToolResult | None:
    match call.name:
        case "wait":
            time.sleep(call.arguments["seconds"])
        case "hold":  # until the file MARK is there
            while not Path(os.environ[MARK]).exists():
                time.sleep(0.01)
        case "compute":  # deep in C, where no exception of Python's can be raised
            str(3 ** (10**9))
        case "grow":
            bytearray(10**12)
        case "shout":
            return ToolResult("x" * 2_000_000, None)
        case "die":
            os.kill(os.getpid(), signal.SIGKILL)
        case "die_once":
            mark = Path(os.environ[MARK])
            if not mark.exists():
                mark.touch()
                os.kill(os.getpid(), signal.SIGKILL)
        case "tight":  # there is not enough memory, this once
            mark = Path(os.environ[MARK])
            if mark.exists():
                mark.unlink()
                raise MemoryError
        case "set":
            return ToolResult(" ".join({"alpha", "beta", "gamma", "delta", "epsilon"}), None)
        case "raise":
            raise OSError("/secret/path is gone")
        case _:
            return None
    return ToolResult(f"{call.name}: done", None)


class FaultyEpisode(ToyEpisode):
    """The toy world with tools that go wrong."""

    def available_docs(self, turn: int) -> Mapping[str, ToolDoc]:
        return DOCS

    def execute(self, call: ToolCall, turn: int) -> ToolResult:
        return misbehave(call) or super().execute(call, turn)

    def verify(self, turns: Sequence[Sequence[StepRecord]], truncated: bool) -> Verdict:
        """Replays the faults as well, and gives the number of calls that ran."""
        records = [record for steps in turns for record in steps]
        fine = [
            result
            for record in records
            for _, result in run_calls(record, lambda call: self.execute(call, 0))
            if result.error is None
        ]
        return Verdict(float(len(fine)), (), TurnProgress(0, 0, 0, 0))


class Faulty(ToyEnvironment):
    """Opens faulty episodes."""

    def create(self, task_id: str, options: EpisodeOptions) -> ToyEpisode:
        return FaultyEpisode(TASKS[task_id], options)
