"""The result of a check, and the table of them that `launcher.py --check` prints."""

import enum
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table
from rich.text import Text

from seal.client.access_token import TokenError
from seal.client.client import EnvironmentFault
from seal.launch.folders import RunError


class Level(enum.Enum):
    """Severity of a finding."""

    OK = "ok"
    WARNING = "warning"
    """The run can start, but it may be slow, or fail later."""
    ERROR = "error"
    """The run cannot start."""


@dataclass(frozen=True)
class Finding:
    """One line of the table."""

    subject: str
    """What was checked, in a word or two."""
    level: Level
    message: str
    """What was found, and what to do about it."""


def ok(subject: str, message: str) -> Finding:
    """A finding of level OK."""
    return Finding(subject, Level.OK, message)


def warning(subject: str, message: str) -> Finding:
    """A finding of level WARNING."""
    return Finding(subject, Level.WARNING, message)


def error(subject: str, message: str) -> Finding:
    """A finding of level ERROR."""
    return Finding(subject, Level.ERROR, message)


def tried(subject: str, check: Callable[[], object], message: str) -> Finding:
    """The finding of a check: its RunError, TokenError or EnvironmentFault, or else the message."""
    try:
        check()
    except (RunError, TokenError, EnvironmentFault) as failure:
        return error(subject, str(failure))
    return ok(subject, message)


def sentences(findings: list[Finding], level: Level) -> list[str]:
    """The findings of a level as text.

    >>> sentences([ok("disk", "80 GB free"), error("GPUs", "none")], Level.ERROR)
    ['GPUs: none']
    """
    return [
        f"{finding.subject}: {finding.message}" for finding in findings if finding.level is level
    ]


_STYLES = {Level.OK: "green", Level.WARNING: "yellow", Level.ERROR: "bold red"}


def print_findings(console: Console, findings: Sequence[Finding]) -> None:
    """Print a line for each finding, and the number of findings of each level."""
    table = Table("check", "", box=None, pad_edge=False)
    # Users copy keys from here: a long key is folded, never cut.
    table.add_column("found", overflow="fold")
    for finding in findings:
        level = Text(finding.level.value, _STYLES[finding.level])
        table.add_row(finding.subject, level, Text(finding.message))
    console.print(table)
    counts = Counter(finding.level for finding in findings)
    shown = ", ".join(f"{counts[level]} {level.value}" for level in Level)
    end = "this run cannot start" if counts[Level.ERROR] else "this run can start"
    console.print(f"\n{end} ({shown})", markup=False, highlight=False)
