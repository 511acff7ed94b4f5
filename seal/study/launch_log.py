"""The log of a study's launches: a line for each launch that has ended.

In: the study's folder. Out: the sum of the launches of each run. A run has several launches if one
was interrupted or failed.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from seal.records.json_lines import LineReader, append_json_lines

LAUNCHES = "launches.jsonl"
INTERRUPTED_CODE = 130


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


def read_launches(folder: Path) -> dict[str, Launches]:
    """What is known about each run, by its name."""
    found: dict[str, Launches] = {}
    for line in LineReader(folder / LAUNCHES).new():
        before, code = found.get(line["run"], Launches()), line["code"]
        found[line["run"]] = Launches(
            total=before.total + 1,
            failed=before.failed + (code not in (0, INTERRUPTED_CODE)),
            finished=before.finished or code == 0,
            seconds=before.seconds + line["ended"] - line["started"],
        )
    return found


def run_minutes(launches: Mapping[str, Launches]) -> float | None:
    """Mean minutes of a finished run, all its launches together; None if none has finished."""
    spent = [one.seconds for one in launches.values() if one.finished]
    return sum(spent) / len(spent) / 60 if spent else None


def note_launch(folder: Path, run: str, code: int, started: float, place: str | None) -> None:
    """Add a line for a launch that has just ended."""
    line = {"run": run, "code": code, "started": started, "ended": time.time(), "place": place}
    append_json_lines(folder / LAUNCHES, line)
