"""The log of a study's launches: a line for each launch that has ended.

In: the study's folder. Out: the sum of the launches of each run. A run has several launches if one
was interrupted or failed.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seal.records.json_lines import BadLine, LineReader, append_json_lines
from seal.study.definition import StudyError

LAUNCHES = "launches.jsonl"
INTERRUPTED_CODE = 130
_SECONDS = 1.0


@dataclass(frozen=True)
class Launches:
    """The launches of one run."""

    total: int = 0
    failed: int = 0
    """Those that neither finished nor were interrupted."""
    finished: bool = False
    """Whether one of them ended well."""
    seconds: float = 0.0
    """From start to end, all launches together."""
    shared: bool = False
    """Whether another run was under way on the same machine or cluster for a part of that time."""


def read_launches(folder: Path) -> dict[str, Launches]:
    """What is known about each run, by its name.

    Raises:
        StudyError: A line is damaged.
    """
    path = folder / LAUNCHES
    try:
        return _launches(list(LineReader(path).new()))
    except (BadLine, KeyError, TypeError) as error:
        raise StudyError(f"{path} has a damaged line: {error}") from error


def _launches(lines: Sequence[Mapping[str, Any]]) -> dict[str, Launches]:
    launches: dict[str, Launches] = {}
    for line in lines:
        before, code = launches.get(line["run"], Launches()), line["code"]
        launches[line["run"]] = Launches(
            total=before.total + 1,
            failed=before.failed + (code not in (0, INTERRUPTED_CODE)),
            finished=before.finished or code == 0,
            seconds=before.seconds + line["ended"] - line["started"],
            shared=before.shared or any(_overlap(line, other) for other in lines),
        )
    return launches


def _overlap(launch: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether launches of two runs at the same place overlap by more than starts and ends do."""
    together = min(launch["ended"], other["ended"]) - max(launch["started"], other["started"])
    elsewhere = launch["run"] == other["run"] or launch["place"] != other["place"]
    return not elsewhere and bool(together > _SECONDS)


def run_minutes(launches: Mapping[str, Launches]) -> float | None:
    """Mean minutes of a finished run, all its launches together; None if none has finished."""
    spent = [run.seconds for run in launches.values() if run.finished]
    return sum(spent) / len(spent) / 60 if spent else None


def note_launch(folder: Path, run: str, code: int, started: float, place: str | None) -> None:
    """Add a line for a launch that has just ended."""
    line = {"run": run, "code": code, "started": started, "ended": time.time(), "place": place}
    append_json_lines(folder / LAUNCHES, line)
