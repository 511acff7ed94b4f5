"""A summary of validations on the terminal, as JSON and as CSV.

In: a `Summary`. Out: tables with notes, or a file.
"""

import csv
import dataclasses
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from seal import ROOT
from seal.validation import files
from seal.validation.files import Summary
from seal.validation.statistics import AVERAGE
from seal.validation.summary import SummaryRow

_WIDTH_WITHOUT_TERMINAL = 120
"""Of the tables in a file or a pipe."""


def tables(rows: Sequence[SummaryRow], compare: bool, spaces: int = 1) -> Iterator[Table]:
    """A table for each suite, and another one without defective tasks."""
    for suite, kind in dict.fromkeys((row.suite, row.defective_tasks) for row in rows):
        part = [row for row in rows if (row.suite, row.defective_tasks) == (suite, kind)]
        # Columns that say nothing new are left out, so that the others fit 80 characters.
        tasks = any(row.rollouts != row.tasks for row in part)
        pairs = any(row.pairs not in (None, row.tasks) for row in part)
        lengths = any(_has_lengths(row) for row in part)
        without = ", without defective tasks" if kind == "excluded" else ""
        table = Table(
            title=f"Pass rate, suite {suite!r}{without}",
            title_justify="left",
            box=box.SIMPLE_HEAD,
            show_edge=False,
            padding=(0, spaces, 0, 0),
        )
        table.add_column("step", justify="right")
        table.add_column("category", overflow="fold")
        compared = ("points", "better", "worse", "p", *["pairs"] * pairs) if compare else ()
        measured = ("tokens", "cut %") if lengths else ()
        for name in ("n", *["tasks"] * tasks, "%", "95 %\ninterval", *compared, *measured):
            table.add_column(name, justify="right", no_wrap=True)
        step = None
        for row in part:
            table.add_row(
                "" if row.step == step else str(row.step),
                row.category,
                str(row.rollouts),
                *[str(row.tasks)] * tasks,
                f"{100 * row.pass_rate:.2f}",
                f"{100 * row.low:.2f}-{100 * row.high:.2f}",
                *_comparison(row)[: len(compared)],
                *_lengths(row)[: len(measured)],
                end_section=row.category == AVERAGE,
                style="bold" if row.category == AVERAGE else None,
            )
            step = row.step
        yield table


def _comparison(row: SummaryRow) -> tuple[str, ...]:
    if row.difference_points is None or row.p_value is None:
        return ("-",) * 5
    p = "<0.001" if row.p_value < 0.001 else f"{row.p_value:.3f}"
    return f"{row.difference_points:+.2f}", str(row.better), str(row.worse), p, str(row.pairs)


def _has_lengths(row: SummaryRow) -> bool:
    return (row.mean_response_tokens, row.truncated_share) != (None, None)


def _lengths(row: SummaryRow) -> tuple[str, str]:
    tokens, cut = row.mean_response_tokens, row.truncated_share
    return ("-" if tokens is None else f"{tokens:.0f}", "-" if cut is None else f"{100 * cut:.1f}")


def notes(summary: Summary, baseline_dir: Path | None) -> Iterator[str]:
    """What a reader has to know about the tables."""
    yield "Intervals: Wilson. Average: unweighted mean of the categories, its interval of all n."
    if any(_has_lengths(row) for row in summary.rows):
        yield "tokens: of a rollout after its prompt, mean; cut %: rollouts that a limit ended."
    yield from summary.limits
    for suite in dict.fromkeys(row.suite for row in summary.rows if row.rollouts != row.tasks):
        yield (
            f"Suite {suite!r}: several rollouts a task; n counts rollouts, which are not "
            "independent of each other, so the intervals are too narrow."
        )
    if summary.defective is None:
        list_name = files.DEFECTIVE.relative_to(ROOT)
        yield f"There is no list of defective tasks ({list_name}): all figures are with them."
    else:
        named = ", ".join(sorted(summary.defective)) or "none, so without them is the same"
        yield f"Defective among the evaluated tasks: {named}."
    if summary.baseline is not None:
        steps = list(next(iter(summary.baseline.values())))
        which = f"its step {steps[0]}" if len(steps) == 1 else "same step"
        yield (
            f"points, better, worse, p: against {baseline_dir}, {which} (-: none), paired by "
            "task; p of the exact McNemar test."
        )


def show(summary: Summary, baseline_dir: Path | None = None) -> None:
    """Print tables and notes."""
    console = Console(width=None if sys.stdout.isatty() else _WIDTH_WITHOUT_TERMINAL)
    defective = summary.defective or frozenset()
    affected = {suite for suite, tasks in summary.suites.items() if defective & tasks.keys()}
    rows = [r for r in summary.rows if r.defective_tasks == "included" or r.suite in affected]
    for table in tables(rows, summary.baseline is not None, spaces=int(console.width >= 100)):
        console.print(table)
        console.print()
    for note in notes(summary, baseline_dir):
        console.print(note, markup=False, highlight=False)


def write_json(
    path: Path, summary: Summary, val_dir: Path, parquet: Path, baseline_dir: Path | None
) -> None:
    """Write the rows and the names of what they were made from."""
    document = {
        "val_dir": str(val_dir),
        "parquet": str(parquet),
        "baseline_dir": str(baseline_dir) if baseline_dir else None,
        "confidence_level": 0.95,
        "defective_tasks": None if summary.defective is None else sorted(summary.defective),
        "incomplete": summary.gaps,
        "rows": [dataclasses.asdict(row) for row in summary.rows],
    }
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def write_csv(path: Path, rows: Sequence[SummaryRow]) -> None:
    """Write one line for each row; an empty cell if there is nothing to compare with."""
    names = [field.name for field in dataclasses.fields(SummaryRow)]
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows(dataclasses.asdict(row) for row in rows)
