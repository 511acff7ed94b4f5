"""What a check found: one line of the table that `launcher.py --check` prints."""

import enum
from collections.abc import Callable
from dataclasses import dataclass

from seal.environment.access_token import TokenError
from seal.environment.client import EnvironmentFault
from seal.launch.folders import RunError


class Level(enum.Enum):
    """How a finding counts."""

    OK = "ok"
    WARNING = "warning"
    """The run can start; it may be slow, or fail for this reason later."""
    ERROR = "error"
    """The run cannot work."""


@dataclass(frozen=True)
class Finding:
    """One line of the table."""

    subject: str
    """What was checked, in a word or two."""
    level: Level
    said: str
    """What was found and what to do about it."""


def ok(subject: str, said: str) -> Finding:
    """What was found is fine."""
    return Finding(subject, Level.OK, said)


def warning(subject: str, said: str) -> Finding:
    """What was found may cost time or end the run later."""
    return Finding(subject, Level.WARNING, said)


def error(subject: str, said: str) -> Finding:
    """What was found keeps the run from working."""
    return Finding(subject, Level.ERROR, said)


def tried(subject: str, check: Callable[[], object], said: str) -> Finding:
    """The finding of a check that raises its complaint.

    Args:
        subject: What is checked.
        check: Raises RunError, TokenError or EnvironmentFault where something is wrong.
        said: What holds where it raises nothing.
    """
    try:
        check()
    except (RunError, TokenError, EnvironmentFault) as complaint:
        return error(subject, str(complaint))
    return ok(subject, said)


def sentences(findings: list[Finding], level: Level) -> list[str]:
    """What the findings of a level say.

    >>> sentences([ok("disk", "80 GB free"), error("GPUs", "none")], Level.ERROR)
    ['GPUs: none']
    """
    return [f"{one.subject}: {one.said}" for one in findings if one.level is level]
