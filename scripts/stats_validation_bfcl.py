"""Summarise validation logs: pass rate by step and category.

In: a folder with one `<step>.jsonl` a validation, a line a rollout. Out: one table a suite, or
--json. The last row averages the categories, as the paper does.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Console
from rich.table import Table

NEEDED: dict[str, tuple[type, ...]] = {
    "task_id": (str,),
    "score": (int, float),
    "suite": (str,),
    "step": (int,),
}


class BadLog(Exception):
    """A validation log cannot be used; the message says which line and why."""


def read_logs(folder: Path, categories: dict[str, str] | None) -> pd.DataFrame:
    """All lines of all logs: step, suite, category, task_id, score.

    Args:
        folder: Holds the logs.
        categories: Category of every known task, None to believe the logs.

    Raises:
        BadLog: No logs, or a line that is no rollout, of an unknown task, or of another step.
    """
    logs = sorted(folder.glob("*.jsonl"), key=lambda path: path.stem.zfill(12))
    if not logs:
        raise BadLog(f"no validation logs (<step>.jsonl) in {folder}; has the run validated yet?")
    rows = []
    for log in logs:
        if not log.stem.isdigit():
            raise BadLog(f"{log} is not named after a step; expected e.g. 10.jsonl")
        # Not splitlines: a dialogue may hold characters that it takes for line ends.
        lines = log.read_text("utf-8").rstrip("\n").split("\n")
        if lines == [""]:
            raise BadLog(f"{log} is empty: the validation of this step did not finish")
        for number, text in enumerate(lines, 1):
            line = _checked(f"{log}, line {number}", text, int(log.stem))
            category = line.get("category")
            if categories is not None:
                if line["task_id"] not in categories:
                    raise BadLog(
                        f"{log}, line {number}: unknown task {line['task_id']!r}; is the log of "
                        "another benchmark?"
                    )
                category = categories[line["task_id"]]
            if category is None:
                raise BadLog(
                    f"{log}, line {number}: no category; name the tasks' file with --bfcl-jsonl"
                )
            rows.append(
                {
                    "step": line["step"],
                    "suite": line["suite"],
                    "category": category,
                    "task_id": line["task_id"],
                    "score": float(line["score"]),
                }
            )
    return pd.DataFrame(rows)


def _checked(where: str, text: str, step: int) -> dict[str, Any]:
    try:
        line = json.loads(text)
    except ValueError as error:
        raise BadLog(f"{where}: not JSON ({error}); was the run cut off while writing?") from None
    if not isinstance(line, dict):
        raise BadLog(f"{where}: expected an object, got {type(line).__name__}")
    for key, kind in NEEDED.items():
        if not isinstance(line.get(key), kind):
            raise BadLog(f"{where}: no {key!r}; is this a validation log?")
    if not 0 <= line["score"] <= 1:
        raise BadLog(f"{where}: score {line['score']}, expected a number from 0 to 1")
    if line["step"] != step:
        raise BadLog(f"{where}: step {line['step']} in the log of step {step}")
    return line


def summarise(rollouts: pd.DataFrame) -> pd.DataFrame:
    """Pass rate and number of rollouts by suite, step and category, and the categories' mean."""
    by_category = (
        rollouts.groupby(["suite", "step", "category"])["score"]
        .agg(pass_rate="mean", n="count")
        .reset_index()
    )
    average = (
        by_category.groupby(["suite", "step"])
        .agg(pass_rate=("pass_rate", "mean"), n=("n", "sum"))
        .reset_index()
    )
    average["category"] = "average of categories"
    return pd.concat([by_category, average], ignore_index=True)


def complaints(rollouts: pd.DataFrame, expected: set[str] | None) -> list[str]:
    """What makes the benchmark suite's figures less than they seem."""
    found = []
    for step, every in rollouts.groupby("step"):
        group = every[every["suite"] == "benchmark"]
        twice = group["task_id"][group["task_id"].duplicated()].unique()
        if len(twice):
            found.append(f"step {step}: {len(twice)} tasks appear twice, e.g. {twice[0]}")
        if expected is not None:
            missing = expected - set(group["task_id"])
            if missing:
                found.append(
                    f"step {step}: {len(missing)} of {len(expected)} evaluation tasks are missing"
                )
    return found


def tables(summary: pd.DataFrame) -> list[Table]:
    """One table a suite: categories down, steps across."""
    made = []
    for suite, part in summary.groupby("suite"):
        table = Table(title=f"Pass rate, suite {suite!r}", title_justify="left")
        table.add_column("category")
        steps = sorted(part["step"].unique())
        for step in steps:
            table.add_column(f"step {step}", justify="right")
        categories = [c for c in part["category"].unique() if not c.startswith("average")]
        for category in [*sorted(categories), "average of categories"]:
            cells = []
            for step in steps:
                cell = part[(part["category"] == category) & (part["step"] == step)]
                cells.append(
                    f"{cell['pass_rate'].iloc[0]:.2%} (n={cell['n'].iloc[0]})" if len(cell) else "-"
                )
            table.add_row(category, *cells)
        made.append(table)
    return made


def evaluation_tasks(parquet: Path) -> set[str]:
    """Ids of the benchmark tasks that a validation should hold.

    Raises:
        BadLog: The file is missing or is no evaluation file.
    """
    if not parquet.is_file():
        raise BadLog(f"--parquet {parquet} does not exist; make it with scripts/prepare_bfcl.py")
    frame = pd.read_parquet(parquet)
    if "extra_info" not in frame:
        raise BadLog(f"--parquet {parquet} has no column extra_info; is it an evaluation file?")
    infos = frame["extra_info"]
    tasks = {info["task_id"] for info in infos if info["suite"] == "benchmark"}
    if not tasks:
        raise BadLog(f"--parquet {parquet} holds no task of suite benchmark; is it for training?")
    return tasks


def known_categories(path: Path) -> dict[str, str]:
    """Category of each task in multi_turn_processed.jsonl.

    Raises:
        BadLog: The file is missing.
    """
    if not path.is_file():
        raise BadLog(f"--bfcl-jsonl {path} does not exist; make it with scripts/prepare_bfcl.py")
    with path.open(encoding="utf-8") as lines:
        tasks = [json.loads(line) for line in lines]
    return {task["id"]: task["category"] for task in tasks}


def main(argv: list[str]) -> int:
    """Read the command line, print the summary."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--val-dir", type=Path, required=True, help="folder of validation logs")
    parser.add_argument(
        "--parquet", type=Path, help="evaluation file: says which tasks are missing"
    )
    parser.add_argument("--bfcl-jsonl", type=Path, help="multi_turn_processed.jsonl: known tasks")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    args = parser.parse_args(argv)
    try:
        categories = known_categories(args.bfcl_jsonl) if args.bfcl_jsonl else None
        expected = evaluation_tasks(args.parquet) if args.parquet else None
        rollouts = read_logs(args.val_dir, categories)
    except BadLog as error:
        print(f"stats_validation_bfcl: {error}", file=sys.stderr)
        return 2
    summary = summarise(rollouts)
    for complaint in complaints(rollouts, expected):
        print(f"warning: {complaint}", file=sys.stderr)
    if args.json:
        print(summary.to_json(orient="records", indent=1))
    else:
        console = Console()
        for table in tables(summary):
            console.print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
