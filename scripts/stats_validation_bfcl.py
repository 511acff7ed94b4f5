"""Summarise validation logs: pass rate by step and category, with intervals and a comparison.

In: --val-dir, a folder with one <step>.jsonl a validation, a line a rollout, as training writes
it; --parquet, the evaluation file of the run, which says which tasks the logs should hold. Out: a
table a suite on the terminal, and the same figures as --json, --csv and --plot.

Every pass rate stands with its 95 % Wilson interval and n, the number of rollouts. The last row of
a step is the average as the paper averages: the unweighted mean of the category rates, with the
Wilson interval of all n. A second table leaves out the tasks that are known to be defective. With
--baseline-dir each rate is compared with another run's: the difference in percentage points on the
tasks that both hold, how many of these became better and worse, and the p-value of the exact
McNemar test on them. Where the logs hold them, the tokens of a rollout after its prompt and the
share of rollouts that a limit ended, of steps or of tokens, stand beside it.

Exit status: 0; 1 where a file cannot be used (one sentence and nothing else), or where tasks are
missing from the logs or duplicate (everything is printed and written, with a sentence a step),
which --allow-incomplete accepts; 2 where the command line is wrong.
"""

import argparse
import csv
import dataclasses
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
from rich import box
from rich.console import Console
from rich.table import Table

from seal.records.validation_log import BadValidationLog, json_objects, read_folder
from seal.records.validation_statistics import AVERAGE
from seal.records.validation_summary import (
    Expected,
    Results,
    Row,
    baseline_step,
    complaints,
    limits_reached,
    results_of,
    summarise,
)
from seal.study.validation_plot import write_plot

ROOT = Path(__file__).resolve().parents[1]
DEFECTIVE = ROOT / "data/bfcl_defective_tasks.json"
WIDTH_WITHOUT_TERMINAL = 120
"""Of the tables in a file or a pipe."""


class BadInput(Exception):
    """A file besides the logs cannot be used; the message says which, why, and what to do."""


@dataclass(frozen=True)
class Summary:
    """Everything there is to print."""

    suites: dict[str, dict[str, Expected]]
    """What the logs should hold, by suite and task id."""
    baseline: Results | None
    defective: frozenset[str] | None
    """Evaluated tasks that are defective; None where no list of them is there."""
    rows: list[Row]
    gaps: list[str]
    """Sentences on missing and duplicate tasks."""
    limits: list[str]
    """Sentences on what ended truncated rollouts."""


# ---- reading -----------------------------------------------------------------------------------


def evaluation_tasks(parquet: Path) -> dict[str, dict[str, Expected]]:
    """The tasks that a validation should hold, by suite and task id.

    Raises:
        BadInput: The file is missing or is no evaluation file.
    """
    if not parquet.is_file():
        raise BadInput(f"--parquet {parquet} is no file; make it with scripts/prepare_bfcl.py")
    try:
        rows = pyarrow.parquet.ParquetFile(parquet).read().to_pylist()
    except (OSError, pyarrow.ArrowException) as error:
        reason = str(error).partition("\n")[0]
        raise BadInput(f"--parquet {parquet} cannot be read as parquet: {reason}") from None
    suites: dict[str, dict[str, Expected]] = {}
    for number, row in enumerate(rows, 1):
        try:
            info = row["extra_info"]
            suite, task, category = info["suite"], info["task_id"], info["category"]
            rollouts = int(row.get("__rollout_n__", 1))
            "".join((suite, task, category))  # a TypeError unless all are text
        except (KeyError, TypeError, ValueError):
            raise BadInput(
                f"--parquet {parquet}, row {number}: no extra_info with suite, task_id and "
                "category; expected an evaluation file of scripts/prepare_bfcl.py"
            ) from None
        before = suites.setdefault(suite, {}).get(task)
        rollouts += before.rollouts if before else 0
        suites[suite][task] = Expected(category, rollouts)
    if "train" in suites or not suites:
        raise BadInput(f"--parquet {parquet} holds no evaluation tasks; is it for training?")
    return dict(sorted(suites.items()))


def check_known(suites: dict[str, dict[str, Expected]], path: Path) -> None:
    """Every task to evaluate is in multi_turn_processed.jsonl, in the same category.

    Raises:
        BadInput: It is not.
        BadValidationLog: The file is no JSON lines file.
    """
    if not path.is_file():
        raise BadInput(
            f"--bfcl-jsonl {path} does not exist; .venv/bin/python scripts/prepare_bfcl.py makes "
            "env_service/environments/bfcl/bfcl_data/multi_turn_processed.jsonl"
        )
    known = {line.get("id"): line.get("category") for _, line in json_objects(path)}
    for tasks in suites.values():
        for task, expected in tasks.items():
            if known.get(task) != expected.category:
                raise BadInput(
                    f"--bfcl-jsonl {path} has no task {task!r} of category {expected.category!r}, "
                    "as --parquet does; expected the file of scripts/prepare_bfcl.py"
                )


def defective_tasks(path: Path) -> frozenset[str]:
    """Ids in a list of defective tasks.

    Raises:
        BadInput: The file is missing or is no such list.
    """
    try:
        return frozenset(task["task_id"] for task in json.loads(path.read_bytes())["tasks"])
    except OSError as error:
        raise BadInput(f"--defective {path} cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, RecursionError):
        raise BadInput(
            f"{path} is no list of defective tasks; expected the JSON object "
            '{"tasks": [{"task_id": "..."}, ...]}'
        ) from None


def read_all(args: argparse.Namespace) -> Summary:
    """Everything that the command line names, summarised.

    Raises:
        BadInput: A file cannot be used.
        BadValidationLog: A log cannot be used.
    """
    suites = evaluation_tasks(args.parquet)
    if args.bfcl_jsonl:
        check_known(suites, args.bfcl_jsonl)
    defective = None
    if args.defective or DEFECTIVE.exists():
        defective = defective_tasks(args.defective or DEFECTIVE) & set().union(*suites.values())
    run = read_folder(args.val_dir)
    results = results_of(run, suites, str(args.val_dir))
    gaps = list(complaints(results, suites, str(args.val_dir)))
    baseline = None
    if args.baseline_dir:
        baseline = results_of(read_folder(args.baseline_dir), suites, str(args.baseline_dir))
        gaps += complaints(baseline, suites, str(args.baseline_dir))
        steps = next(iter(baseline.values()))
        if all(baseline_step(step, steps) is None for step in next(iter(results.values()))):
            raise BadInput(
                f"--baseline-dir {args.baseline_dir} has no step of --val-dir {args.val_dir}; "
                "leave the one log in it that every step is to be compared with"
            )
    rows = summarise(results, baseline, defective)
    return Summary(suites, baseline, defective, rows, gaps, list(limits_reached(run)))


# ---- terminal ----------------------------------------------------------------------------------


def tables(rows: Sequence[Row], compare: bool, spaces: int = 1) -> Iterator[Table]:
    """A table a suite, and one more without defective tasks."""
    for suite, kind in dict.fromkeys((row.suite, row.defective_tasks) for row in rows):
        part = [row for row in rows if (row.suite, row.defective_tasks) == (suite, kind)]
        # Columns that say nothing new are left out: 80 characters hold the others.
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


def _comparison(row: Row) -> tuple[str, ...]:
    if row.difference_points is None or row.p_value is None:
        return ("-",) * 5
    p = "<0.001" if row.p_value < 0.001 else f"{row.p_value:.3f}"
    return f"{row.difference_points:+.2f}", str(row.better), str(row.worse), p, str(row.pairs)


def _has_lengths(row: Row) -> bool:
    return (row.mean_response_tokens, row.truncated_share) != (None, None)


def _lengths(row: Row) -> tuple[str, ...]:
    tokens, cut = row.mean_response_tokens, row.truncated_share
    return (
        "-" if tokens is None else f"{tokens:.0f}",
        "-" if cut is None else f"{100 * cut:.1f}",
    )


def notes(summary: Summary, args: argparse.Namespace) -> Iterator[str]:
    """What a reader has to know of the tables."""
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
        name = DEFECTIVE.relative_to(ROOT)
        yield f"There is no list of defective tasks ({name}): all figures are with them."
    else:
        named = ", ".join(sorted(summary.defective)) or "none, so without them is the same"
        yield f"Defective among the evaluated tasks: {named}."
    if summary.baseline is not None:
        steps = list(next(iter(summary.baseline.values())))
        which = f"its step {steps[0]}" if len(steps) == 1 else "same step"
        yield (
            f"points, better, worse, p: against {args.baseline_dir}, {which} (-: none), paired by "
            "task; p of the exact McNemar test."
        )


def show(summary: Summary, args: argparse.Namespace) -> None:
    """Print tables and notes."""
    console = Console(width=None if sys.stdout.isatty() else WIDTH_WITHOUT_TERMINAL)
    defective = summary.defective or frozenset()
    affected = {suite for suite, tasks in summary.suites.items() if defective & tasks.keys()}
    rows = [r for r in summary.rows if r.defective_tasks == "included" or r.suite in affected]
    for table in tables(rows, summary.baseline is not None, spaces=int(console.width >= 100)):
        console.print(table)
        console.print()
    for note in notes(summary, args):
        console.print(note, markup=False, highlight=False)


# ---- files -------------------------------------------------------------------------------------


def write_json(path: Path, summary: Summary, args: argparse.Namespace) -> None:
    """The rows and what they were made from."""
    document = {
        "val_dir": str(args.val_dir),
        "parquet": str(args.parquet),
        "baseline_dir": str(args.baseline_dir) if args.baseline_dir else None,
        "confidence_level": 0.95,
        "defective_tasks": None if summary.defective is None else sorted(summary.defective),
        "incomplete": summary.gaps,
        "rows": [dataclasses.asdict(row) for row in summary.rows],
    }
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def write_csv(path: Path, rows: Sequence[Row]) -> None:
    """One line a row; an empty cell where there is nothing to compare with."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(
            file, [field.name for field in dataclasses.fields(Row)], lineterminator="\n"
        )
        writer.writeheader()
        writer.writerows(dataclasses.asdict(row) for row in rows)


# ---- command line ------------------------------------------------------------------------------


def parse_arguments(argv: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    file: dict[str, Any] = {"type": Path, "metavar": "FILE"}
    folder: dict[str, Any] = {"type": Path, "metavar": "DIR"}
    option = parser.add_argument
    option("--val-dir", required=True, help="folder of validation logs", **folder)
    option(
        "--parquet",
        required=True,
        help="evaluation file of the run, e.g. data/bfcl_eval_400.parquet; its column "
        "__rollout_n__, where it has one, says how many rollouts a task has",
        **file,
    )
    option("--bfcl-jsonl", help="multi_turn_processed.jsonl: checks --parquet's tasks", **file)
    option(
        "--baseline-dir",
        help="logs of another run on the same tasks: each step is compared with its same step, or "
        "with its only one",
        **folder,
    )
    option(
        "--defective",
        help='list of defective tasks, {"tasks": [{"task_id": ...}, ...]} '
        f"(default {DEFECTIVE.relative_to(ROOT)}, where it is there)",
        **file,
    )
    option(
        "--allow-incomplete",
        action="store_true",
        help="exit with 0 although tasks are missing from the logs or duplicate",
    )
    option("--json", help="write all figures, rates as shares from 0 to 1", **file)
    option("--csv", help="the same as a table, a line a figure", **file)
    option("--plot", help="PNG: rates by step, with bands", **file)
    args = parser.parse_args(argv)
    if args.plot and args.plot.suffix.lower() != ".png":
        parser.error(f"--plot {args.plot}: expected the name of a .png file")
    return args


def main(argv: list[str]) -> int:
    """Read the command line, print and write the summary; the exit code tells success."""
    args = parse_arguments(argv)
    try:
        summary = read_all(args)
        if args.json:
            write_json(args.json, summary, args)
        if args.csv:
            write_csv(args.csv, summary.rows)
        if args.plot:
            write_plot(args.plot, summary.rows)
    except ModuleNotFoundError as error:
        text = f"--plot needs a newer environment ({error}); run install.sh"
        print(f"stats_validation_bfcl: {text}", file=sys.stderr)
        return 1
    except (BadInput, BadValidationLog, OSError) as error:
        print(f"stats_validation_bfcl: {error}", file=sys.stderr)
        return 1
    show(summary, args)
    for gap in summary.gaps:
        print(f"stats_validation_bfcl: {gap}", file=sys.stderr)
    return int(bool(summary.gaps) and not args.allow_incomplete)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
