"""Summarise validation logs: pass rate by step and category, with intervals and a comparison.

In: --val-dir, a folder with a file <step>.jsonl for each validation, one line for each rollout, as
training writes it; --parquet, the evaluation file of the run, which says what the logs should hold.
Out: a table for each suite on the terminal, and the same figures as --json, --csv and --plot.

Each pass rate comes with its 95 % Wilson interval and n, the number of rollouts. The last row of a
step is the paper's average: the unweighted mean of the category rates, with the Wilson interval of
all n. A second table leaves out the tasks that are known to be defective. --baseline-dir compares
each rate with another run's: the difference in percentage points on the tasks that both hold, how
many of these became better and worse, and the p-value of the exact McNemar test on them. If the
logs hold them, there are two more columns: the tokens of a rollout after its prompt, and the share
of rollouts that a limit of steps or tokens ended.

Exit status: 0; 1 if a file cannot be used (one sentence and nothing else), or if tasks are missing
from the logs or duplicate (everything is printed and written, with a sentence for each step), which
--allow-incomplete accepts; 2 if the command line is wrong.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

from seal import ROOT
from seal.validation.files import DEFECTIVE, read_summary
from seal.validation.log import BadValidationFile
from seal.validation.plot import write_plot
from seal.validation.tables import show, write_csv, write_json


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
        "__rollout_n__, if it has one, says how many rollouts a task has",
        **file,
    )
    option("--bfcl-jsonl", help="multi_turn_processed.jsonl: checks --parquet's tasks", **file)
    option(
        "--baseline-dir",
        help="logs of another run on the same tasks: each step is compared with the same step, or "
        "with its only one",
        **folder,
    )
    option(
        "--defective",
        help='list of defective tasks, {"tasks": [{"task_id": ...}, ...]} '
        f"(default {DEFECTIVE.relative_to(ROOT)}, if it exists)",
        **file,
    )
    option(
        "--allow-incomplete",
        action="store_true",
        help="exit with 0 although tasks are missing from the logs or duplicate",
    )
    option("--json", help="write all figures, rates as shares from 0 to 1", **file)
    option("--csv", help="the same as a table, one line for each figure", **file)
    option("--plot", help="PNG: rates by step, with bands", **file)
    args = parser.parse_args(argv)
    if args.plot and args.plot.suffix.lower() != ".png":
        parser.error(f"--plot {args.plot}: expected the name of a .png file")
    return args


def main(argv: list[str]) -> int:
    """Read the command line, print and write the summary; returns the exit code."""
    args = parse_arguments(argv)
    try:
        summary = read_summary(
            args.val_dir,
            args.parquet,
            bfcl_jsonl=args.bfcl_jsonl,
            baseline_dir=args.baseline_dir,
            defective=args.defective,
        )
        if args.json:
            write_json(args.json, summary, args.val_dir, args.parquet, args.baseline_dir)
        if args.csv:
            write_csv(args.csv, summary.rows)
        if args.plot:
            write_plot(args.plot, summary.rows)
    except ModuleNotFoundError as error:
        text = f"--plot needs a newer environment ({error}); run install.sh"
        print(f"stats_validation_bfcl: {text}", file=sys.stderr)
        return 1
    except (BadValidationFile, OSError) as error:
        print(f"stats_validation_bfcl: {error}", file=sys.stderr)
        return 1
    show(summary, args.baseline_dir)
    for gap in summary.gaps:
        print(f"stats_validation_bfcl: {gap}", file=sys.stderr)
    return int(bool(summary.gaps) and not args.allow_incomplete)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
