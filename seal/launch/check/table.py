"""The table that `launcher.py --check` prints."""

from collections import Counter
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from seal.launch.check.finding import Finding, Level

_STYLES = {Level.OK: "green", Level.WARNING: "yellow", Level.ERROR: "bold red"}


def print_findings(console: Console, findings: Sequence[Finding]) -> None:
    """Print a line for each finding, and the number of findings of each level."""
    table = Table("check", "", box=None, pad_edge=False)
    # Users copy keys from here: a long key is folded, never cut.
    table.add_column("found", overflow="fold")
    for one in findings:
        level = Text(one.level.value, _STYLES[one.level])
        table.add_row(one.subject, level, Text(one.message))
    console.print(table)
    counts = Counter(one.level for one in findings)
    shown = ", ".join(f"{counts[level]} {level.value}" for level in Level)
    end = "this run cannot start" if counts[Level.ERROR] else "this run can start"
    console.print(f"\n{end} ({shown})", markup=False, highlight=False)
