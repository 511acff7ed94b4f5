"""Evaluations in the layout of the paper's tables.

In: folders of scripts/evaluate.py, one a model (start, vanilla GRPO, SEAL), each with a folder a
suite. Out: Table 1 (BFCL V3 multi-turn by category) and Table 2 (out of distribution: BFCL V4 web
search and memory, tau2-bench by domain), a row a model. A figure stands there only if all that it
is made of has been evaluated; the rest is named in notes.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from seal.evaluation import official_bfcl, official_tau2
from seal.evaluation.benchmark import LOG
from seal.evaluation.faults import EvaluationError
from seal.evaluation.settings import SETTINGS
from seal.validation_log import read_log
from seal.validation_statistics import AVERAGE, rates, task_results

TABLE_1 = (
    "multi_turn_base",
    "multi_turn_miss_func",
    "multi_turn_miss_param",
    "multi_turn_long_context",
    AVERAGE,
)
WEB, MEMORY, BFCL_V4, TAU2 = "web search", "memory", "BFCL V4 average", "tau2 average"
TABLE_2 = (WEB, MEMORY, BFCL_V4, *official_tau2.DOMAINS, TAU2)

_Reader = Callable[[Path], tuple[dict[str, float], list[str]]]
"""Figures and notes of a suite's folder."""


@dataclass(frozen=True)
class Row:
    """One model."""

    name: str
    """E.g. SEAL."""
    figures: dict[str, float]
    """Shares from 0 to 1 by column of both tables; what was not evaluated is not there."""
    notes: tuple[str, ...]
    """What is incomplete or counts only a part."""


def row_of(name: str, folder: Path) -> Row:
    """Read everything that was evaluated of one model.

    Raises:
        EvaluationError: The folder is none of an evaluation, or a result cannot be read.
        BadValidationLog: The log of bfcl_v3 cannot be read.
    """
    suites = [path.parent for path in sorted(folder.glob(f"*/{SETTINGS}"))]
    if not suites:
        raise EvaluationError(f"{folder} holds no evaluation of scripts/evaluate.py")
    figures: dict[str, float] = {}
    notes: list[str] = []
    for suite in suites:
        wanted = json.loads((suite / SETTINGS).read_text("utf-8"))
        found, remarks = _SUITES[wanted["suite"]](suite)
        figures |= found
        notes += [f"{name}, {suite.name}: {remark}" for remark in remarks]
        if wanted.get("tasks"):
            notes.append(f"{name}, {suite.name}: only some tasks (--tasks {wanted['tasks']})")
    parts = [figures[key] for key in (WEB, MEMORY) if key in figures]
    if len(parts) == 2:
        figures[BFCL_V4] = fmean(parts)
    domains = [figures[key] for key in official_tau2.DOMAINS if key in figures]
    if len(domains) == len(official_tau2.DOMAINS):
        figures[TAU2] = fmean(domains)
    return Row(name, figures, tuple(notes))


def _bfcl_v3(folder: Path) -> tuple[dict[str, float], list[str]]:
    rollouts = [line for line in read_log(folder / LOG) if line.suite == "benchmark"]
    found = rates(task_results(rollouts)) if rollouts else {}
    figures = {name: rate.rate for name, rate in found.items()}
    lacking = [name for name in TABLE_1[:-1] if name not in figures]
    if lacking:
        figures.pop(AVERAGE, None)
    return figures, [f"no task of {name}" for name in lacking]


def _bfcl_v4(suite: str, column: str) -> _Reader:
    def read(folder: Path) -> tuple[dict[str, float], list[str]]:
        scores = official_bfcl.read_scores(folder)
        lacking = [name for name in official_bfcl.CATEGORIES[suite] if name not in scores]
        if lacking:
            return {}, [f"not evaluated: {', '.join(lacking)}"]
        # Unweighted, as bfcl-eval and the paper average.
        return {column: fmean(score.accuracy for score in scores.values())}, []

    return read


def _tau2(folder: Path) -> tuple[dict[str, float], list[str]]:
    scores = official_tau2.read_scores(folder)
    whole = {name: score for name, score in scores.items() if score.tasks == score.expected}
    notes = [
        f"{name}: {scores[name].tasks} of {scores[name].expected} tasks"
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


def tables(rows: Sequence[Row]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Title and columns of each table that has a figure."""
    for title, columns in (
        ("Table 1: BFCL V3 multi-turn, pass rate in %", TABLE_1),
        ("Table 2: out of distribution, accuracy and pass^1 in %", TABLE_2),
    ):
        if any(column in row.figures for row in rows for column in columns):
            yield title, columns
