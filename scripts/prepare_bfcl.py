"""Make the data files that the recipes name, from bfcl-eval's own files and a seed.

In: the multi-turn tasks inside the installed bfcl-eval package. Out, byte for byte the same every
time:

* data/bfcl_400_split.json: 400 training and 400 evaluation tasks, 100 of each category, drawn by
  category as in the published protocol. This puts siblings of evaluation tasks (the same scenario
  number in another category) into training;
* data/bfcl_train.parquet, data/bfcl_eval_400.parquet: those tasks as rows for verl;
* data/bfcl_scenario_split.json, data/bfcl_scenario_train.parquet, data/bfcl_scenario_eval.parquet:
  the same, drawn by scenario, without that leak;
* data/smollm2_split.json, data/smollm2_train.parquet, data/smollm2_eval.parquet: that split with
  some training scenarios kept apart for development, and the tasks that exp/smollm2.yaml trains on
  and evaluates; data/smollm2_study_eval.parquet: what exp/study/smollm2.yaml evaluates;
* data/bfcl_clean_split.json, data/bfcl_clean_train.parquet, data/bfcl_clean_eval.parquet: the same
  with all categories and the whole benchmark (exp/protocol/clean.yaml);
* data/quickstart_tasks.json, data/quickstart_train.parquet, data/quickstart_eval.parquet: the
  shortest training tasks, and the real tasks that the quickstart evaluates;
  data/quickstart_split.json: which scenarios lend their worlds to synthetic tasks there;
* data/tiny_study_train.parquet, data/tiny_study_eval.parquet: most of those tasks to train on, and
  the tasks that exp/study/tiny.yaml evaluates;
* env_service/environments/bfcl/bfcl_data/multi_turn_processed.jsonl: every task with its reference,
  for summaries. It holds answers and is not committed.

Either all files are replaced, or none. What evaluation tasks share with training tasks is printed
for both splits; --leakage-report prints it for any other split, and --split-file makes
<stem>_train.parquet and <stem>_eval.parquet of it. The file of a split holds
{"train": [task id, ...], "val": [task id, ...]}.

With --pool NAME it only writes data/NAME_eval.parquet: a suite of synthetic tasks, which
`python -m env_service.environments.bfcl.synthesis make NAME` made before. Such a suite is evaluated
if the file is among data.val_files.

A row names a task; the prompts that a policy sees come from the environment service.
"""

import argparse
import sys
from pathlib import Path

from seal import ROOT
from seal.tasks import splits, tables
from seal.tasks.files import bfcl_data, processed_lines, read_split, read_tasks, replace_all
from seal.tasks.pools import pool_tasks, read_pool
from seal.tasks.splits import Split

PROCESSED = "env_service/environments/bfcl/bfcl_data/multi_turn_processed.jsonl"


def _arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bfcl-data", type=Path, help="bfcl_eval/data (default: in .venv-bfcl)")
    parser.add_argument("--seed", type=int, default=42, help="seed of the splits (default: 42)")
    parser.add_argument("--out", type=Path, default=ROOT / "data", help="folder (default: data)")
    parser.add_argument(
        "--processed",
        type=Path,
        default=ROOT / PROCESSED,
        help=f"file with tasks and references (default: {PROCESSED})",
    )
    only = parser.add_mutually_exclusive_group()
    only.add_argument(
        "--processed-only", action="store_true", help="write that file and nothing else"
    )
    only.add_argument(
        "--split-file", type=Path, metavar="SPLIT.json", help="write tables of this split only"
    )
    only.add_argument(
        "--leakage-report",
        type=Path,
        metavar="SPLIT.json",
        help="print what leaks in this split; write nothing",
    )
    only.add_argument("--pool", metavar="NAME", help="write a suite of this pool's tasks only")
    parser.add_argument(
        "--suite", default="unseen", help="with --pool: name of the suite (default: unseen)"
    )
    parser.add_argument(
        "--rollouts",
        type=int,
        default=2,
        help="with --pool: rollouts of each task at temperature 1 (default: 2)",
    )
    return parser.parse_args(argv)


def _run(args: argparse.Namespace) -> None:
    if args.pool is not None:
        rows = tables.sampled_rows(
            pool_tasks(read_pool(args.pool, ROOT)), args.suite, args.rollouts
        )
        suite = args.out / f"{args.pool}_eval.parquet"
        replace_all({suite: tables.parquet(rows)})
        print(suite)
        return
    tasks = read_tasks(args.bfcl_data or bfcl_data(ROOT))
    contents: dict[str, bytes] = {}
    reported: dict[str, Split] = {}
    theirs: Path | None = args.split_file or args.leakage_report
    if theirs is not None:
        reported[str(theirs)] = split = read_split(theirs, tasks)
        if args.split_file:
            contents = tables.split_files(split, theirs.stem)
    elif not args.processed_only:
        contents = tables.recipe_files(tasks, args.seed)
        reported["bfcl_400_split.json"] = splits.category_split(tasks, args.seed)
        reported["bfcl_scenario_split.json"] = splits.scenario_split(tasks, args.seed)
    files = {args.out / name: content for name, content in contents.items()}
    if theirs is None:
        files[args.processed] = processed_lines(tasks)
    replace_all(files)
    for path in files:
        print(path)
    for name, split in reported.items():
        print(f"\nLeakage of {name}\n{splits.leakage_report(split)}")
    if reported:
        print(f"\n{splits.leakage_legend()}")


def main(argv: list[str]) -> int:
    """Read the command line, write the files, print their names and what leaks."""
    try:
        _run(_arguments(argv))
    except splits.BadData as error:
        raise SystemExit(f"prepare_bfcl: {error}") from error
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
