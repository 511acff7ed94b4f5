"""Evaluations in the layout of the paper's tables.

In: folders of scripts/evaluate.py, one for each model (start, vanilla GRPO, SEAL), each with a
folder for each suite. Out: Table 1 (BFCL V3 multi-turn by category) and Table 2 (out of
distribution: BFCL V4 web search and memory, tau2-bench by domain), with a row for each model. A
figure is shown only if everything it is made of has been evaluated; notes name the rest.
"""

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from seal.evaluation import official_bfcl, official_tau2
from seal.evaluation.benchmark import LOG
from seal.evaluation.faults import EvaluationError
from seal.evaluation.settings import SETTINGS
from seal.validation.evaluation_file import BENCHMARK, EVALUATION_FILE
from seal.validation.log import read_log
from seal.validation.statistics import AVERAGE, rates, suite_results

TABLE_1 = (
    "multi_turn_base",
    "multi_turn_miss_func",
    "multi_turn_miss_param",
    "multi_turn_long_context",
    AVERAGE,
)
WEB, MEMORY, BFCL_V4, TAU2 = "web search", "memory", "BFCL V4 average", "tau2 average"
TABLE_2 = (WEB, MEMORY, BFCL_V4, *official_tau2.DOMAINS, TAU2)

_Reader = Callable[[Path, Mapping[str, Any]], tuple[dict[str, float], list[str]]]
"""A suite's folder and its settings -> figures and notes."""


@dataclass(frozen=True)
class ModelFigures:
    """A row of both tables: one model."""

    name: str
    """E.g. SEAL."""
    figures: dict[str, float]
    """Shares from 0 to 1 by column of both tables; without columns that were not evaluated."""
    notes: tuple[str, ...]
    """Sentences on what is incomplete or covers only some tasks."""


def model_figures(name: str, folder: Path) -> ModelFigures:
    """Read everything that was evaluated of one model.

    Raises:
        EvaluationError: The folder holds no evaluation, or a result cannot be read.
        BadValidationFile: The log of bfcl_v3 cannot be read.
    """
    suites = [path.parent for path in sorted(folder.glob(f"*/{SETTINGS}"))]
    if not suites:
        raise EvaluationError(f"{folder} holds no evaluation of scripts/evaluate.py")
    figures: dict[str, float] = {}
    notes: list[str] = []
    for suite in suites:
        wanted = json.loads((suite / SETTINGS).read_text("utf-8"))
        scores, remarks = _SUITES[wanted["suite"]](suite, wanted)
        figures |= scores
        notes += [f"{name}, {suite.name}: {remark}" for remark in remarks]
        if wanted.get("tasks"):
            notes.append(f"{name}, {suite.name}: only some tasks (--tasks {wanted['tasks']})")
    parts = [figures[key] for key in (WEB, MEMORY) if key in figures]
    if len(parts) == 2:
        figures[BFCL_V4] = fmean(parts)
    domains = [figures[key] for key in official_tau2.DOMAINS if key in figures]
    if len(domains) == len(official_tau2.DOMAINS):
        figures[TAU2] = fmean(domains)
    return ModelFigures(name, figures, tuple(notes))


def _bfcl_v3(folder: Path, wanted: Mapping[str, Any]) -> tuple[dict[str, float], list[str]]:
    log = folder / LOG
    if not log.exists() or not log.stat().st_size:
        return {}, ["not evaluated"]
    rollouts = read_log(log)
    by_category = rates(suite_results(rollouts, BENCHMARK))
    done = Counter(line.category for line in rollouts if line.suite == BENCHMARK)
    expected: Mapping[str, int] = wanted.get("expected", {})
    notes = []
    for name in TABLE_1[:-1]:
        if name not in expected:
            notes.append(f"no task of {name}")
        elif done[name] != expected[name]:
            notes.append(f"{name}: {done[name]} of {expected[name]} tasks")
        else:
            continue
        by_category.pop(name, None)
        by_category.pop(AVERAGE, None)
    parquet = wanted.get("parquet", [EVALUATION_FILE])[0]
    if parquet != EVALUATION_FILE:
        notes.append(f"tasks of {parquet}, {sum(expected.values())} of the benchmark")
    return {name: rate.rate for name, rate in by_category.items()}, notes


def _bfcl_v4(suite: str, column: str) -> _Reader:
    def read(folder: Path, _: Mapping[str, Any]) -> tuple[dict[str, float], list[str]]:
        scores = official_bfcl.read_scores(folder)
        lacking = [name for name in official_bfcl.CATEGORIES[suite] if name not in scores]
        if lacking:
            return {}, [f"not evaluated: {', '.join(lacking)}"]
        # The unweighted mean, as in bfcl-eval and the paper.
        return {column: fmean(scores.values())}, []

    return read


def _tau2(folder: Path, _: Mapping[str, Any]) -> tuple[dict[str, float], list[str]]:
    scores = official_tau2.read_scores(folder)
    whole = {name: score for name, score in scores.items() if score.simulations == score.expected}
    notes = [
        f"{name}: {scores[name].simulations} of {scores[name].expected} simulations"
        if name in scores
        else f"{name}: not evaluated"
        for name in official_tau2.DOMAINS
        if name not in whole
    ]
    return {name: score.pass_1 for name, score in whole.items()}, notes


_SUITES: dict[str, _Reader] = {
    "bfcl_v3": _bfcl_v3,
    "bfcl_v4_memory": _bfcl_v4("bfcl_v4_memory", MEMORY),
    "bfcl_v4_web": _bfcl_v4("bfcl_v4_web", WEB),
    "tau2": _tau2,
}


def tables(rows: Sequence[ModelFigures]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Title and columns of each table with at least one figure."""
    for title, columns in (
        ("Table 1: BFCL V3 multi-turn, pass rate in %", TABLE_1),
        ("Table 2: out of distribution, accuracy and pass^1 in %", TABLE_2),
    ):
        if any(column in row.figures for row in rows for column in columns):
            yield title, columns


def show(rows: Sequence[ModelFigures], json_file: Path | None) -> None:
    """Print Table 1 and Table 2 if they have figures, and write them as JSON."""
    printer = Console(width=None if sys.stdout.isatty() else 120)
    document: dict[str, Any] = {"notes": [note for row in rows for note in row.notes]}
    for title, columns in tables(rows):
        table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, show_edge=False)
        table.add_column("model")
        for column in columns:
            table.add_column(column.removeprefix("multi_turn_"), justify="right")
        for row in rows:
            cells = [row.figures.get(column) for column in columns]
            table.add_row(row.name, *("-" if c is None else f"{100 * c:.2f}" for c in cells))
        printer.print(table)
        printer.print()
        document[title.partition(":")[0]] = {
            row.name: {column: row.figures.get(column) for column in columns} for row in rows
        }
    for note in document["notes"]:
        printer.print(note, markup=False, highlight=False)
    if json_file:
        json_file.write_text(json.dumps(document, indent=1) + "\n", "utf-8")
