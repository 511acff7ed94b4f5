"""What the measurements show: tables, progress, the machine they ran on, how they ended."""

import argparse
import contextlib
import json
import os
import platform
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table


class BenchmarkFailed(Exception):
    """Something could not be measured, or what was measured gave a wrong result."""


def command_line(module: str, about: str | None) -> argparse.ArgumentParser:
    """The command line of a benchmark; its help begins with the module's docstring."""
    return argparse.ArgumentParser(
        prog=f"python -m {module}",
        description=about,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def exit_code(name: str, run: Callable[[], int]) -> int:
    """Run a benchmark; a failure and Ctrl-C become a message on standard error."""
    try:
        return run()
    except BenchmarkFailed as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"{name}: interrupted", file=sys.stderr)
        return 130


def publish(report: str, figures: Mapping[str, Any], file: Path | None) -> None:
    """Print a report, and write its figures as JSON if a file is named."""
    print(report)
    if file is not None:
        file.write_text(json.dumps(figures, indent=1) + "\n", "utf-8")


def figures_table(
    head: Sequence[str], rows: Sequence[Sequence[object]], title: str | None = None
) -> Table:
    """A table with its first column aligned to the left and the others to the right."""
    table = Table(
        title=title, title_justify="left", box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False
    )
    for place, name in enumerate(head):
        table.add_column(name, justify="right" if place else "left", no_wrap=True)
    for row in rows:
        table.add_row(*map(str, row))
    return table


def text_of(table: Table) -> str:
    """The table as lines of text, for a report that may go into a file."""
    console = Console(width=250, color_system=None)
    with console.capture() as captured:
        console.print(table)
    return captured.get().rstrip("\n")


@contextlib.contextmanager
def shown(what: str) -> Iterator[None]:
    """Show what goes on and since when, on standard error if that is a terminal."""
    console = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    hidden = not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=hidden) as progress:
        progress.add_task(what, total=None)
        yield


def machine() -> dict[str, Any]:
    """Cores of this process, load average of the last minute, version of Python."""
    return {
        "cores": len(os.sched_getaffinity(0)),
        "load_before": os.getloadavg()[0],
        "python": platform.python_version(),
    }


def machine_line(about: dict[str, Any]) -> str:
    """The first line of a report."""
    return f"{about['cores']} cores, load {about['load_before']:.1f} before the benchmark\n"


def markdown(head: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    """The lines of a Markdown table.

    >>> list(markdown(["", "n"], [["a", 1]]))
    ['| | n |', '|---|---|', '| a | 1 |']
    """
    rule = "|---" * len(head) + "|"
    first, *others = (
        "|" + "".join(f" {cell} |" if cell != "" else " |" for cell in cells)
        for cells in (head, *rows)
    )
    yield from (first, rule, *others)


def figure(value: float | None, style: str) -> str:
    """A number in a format, or "-" if there is none."""
    return "-" if value is None else format(value, style)
