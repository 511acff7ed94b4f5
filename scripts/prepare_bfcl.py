"""Make the data files that the recipes name, from bfcl-eval's own files and a seed.

In: the multi-turn tasks inside the installed bfcl-eval package. Out, byte for byte the same every
time:

* data/bfcl_400_split.json: 400 training and 400 evaluation tasks, 100 of each category, drawn by
  category as the published protocol does. This puts siblings of evaluation tasks (the same scenario
  number in another category) into training;
* data/bfcl_train.parquet, data/bfcl_eval_400.parquet: those tasks as rows for verl;
* data/bfcl_scenario_split.json, data/bfcl_scenario_train.parquet, data/bfcl_scenario_eval.parquet:
  the same, drawn by scenario, without that leak;
* data/smollm2_split.json, data/smollm2_train.parquet, data/smollm2_eval.parquet: that split with
  some training scenarios set apart for development, and what exp/smollm2.yaml trains and evaluates;
* data/bfcl_clean_split.json, data/bfcl_clean_train.parquet, data/bfcl_clean_eval.parquet: the same
  with all categories and the whole benchmark (exp/protocol/clean.yaml);
* data/quickstart_tasks.json, data/quickstart_train.parquet, data/quickstart_eval.parquet: the
  shortest training tasks, and what the quickstart evaluates;
* data/tiny_study_train.parquet, data/tiny_study_eval.parquet: most of those tasks to train on, and
  what exp/study/tiny.yaml evaluates;
* env_service/environments/bfcl/bfcl_data/multi_turn_processed.jsonl: every task with its reference,
  for summaries. It holds answers and is not committed.

Files are replaced together, after all of them could be made. What evaluation tasks share with
training tasks is printed for both splits; --leakage-report prints it for any other, and
--split-file makes <stem>_train.parquet and <stem>_eval.parquet of it. Such a file holds
{"train": [task id, ...], "val": [task id, ...]}.

Rows name a task; prompts that a policy sees come from the environment service.
"""

import argparse
import json
import os
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from seal.tasks import splits, tables

ROOT = Path(__file__).resolve().parents[1]
PROCESSED = "env_service/environments/bfcl/bfcl_data/multi_turn_processed.jsonl"
TASKS_PER_CATEGORY = 200
NEEDED = {"id": str, "question": list, "involved_classes": list}
NEEDED_OF_REFERENCES = {"id": str, "ground_truth": list}


def read_tasks(folder: Path) -> list[splits.Task]:
    """All tasks, in the order of CATEGORIES and of bfcl-eval's files.

    Raises:
        BadData: They are not bfcl-eval's: 200 tasks in each category, of the same scenarios, each
            with a reference.
    """
    tasks = []
    for category in splits.CATEGORIES:
        path = folder / f"BFCL_v4_{category}.json"
        answers = folder / "possible_answer" / path.name
        rows = _rows(path, NEEDED)
        references = {row["id"]: row for row in _rows(answers, NEEDED_OF_REFERENCES)}
        expected = {f"{category}_{scenario}" for scenario in range(TASKS_PER_CATEGORY)}
        found = Counter(row["id"] for row in rows)
        if len(rows) != TASKS_PER_CATEGORY or found.keys() != expected:
            odd = [task_id for task_id, times in found.items() if times > 1]
            odd += sorted(found.keys() ^ expected)
            raise splits.BadData(
                f"{path} has {len(rows)} tasks, expected {category}_0 to "
                f"{category}_{TASKS_PER_CATEGORY - 1}; missing, doubled or foreign: {odd[0]}"
                + (f" and {len(odd) - 1} more" if odd[1:] else "")
            )
        unanswered = [row["id"] for row in rows if row["id"] not in references]
        if unanswered:
            raise splits.BadData(f"{answers} has no reference for {unanswered[0]}")
        tasks += [
            splits.Task(
                task_id=row["id"],
                category=category,
                question=row["question"],
                involved_classes=row["involved_classes"],
                reference=references[row["id"]]["ground_truth"],
            )
            for row in rows
        ]
    return tasks


def split_files(split: splits.Split, stem: str) -> dict[str, bytes]:
    """Both tables of somebody's split, by name.

    Raises:
        BadData: Their names are those of the recipes' files.
    """
    names = (f"{stem}_train.parquet", f"{stem}_eval.parquet")
    for name in names:
        if name in tables.TABLES:
            raise splits.BadData(
                f"its table would be {name}, which is a recipe's; rename the split file"
            )
    rows = (tables.training_rows(split.train), tables.benchmark_rows(split.val))
    return {name: tables.parquet(table) for name, table in zip(names, rows, strict=True)}


def processed_lines(tasks: Iterable[splits.Task]) -> bytes:
    """Every task with its reference, a line each."""
    lines = (
        {
            "id": task.task_id,
            "category": task.category,
            "question": task.question,
            "involved_classes": task.involved_classes,
            "ground_truth": task.reference,
        }
        for task in tasks
    )
    return "".join(json.dumps(line) + "\n" for line in lines).encode()


def read_split(path: Path, tasks: Iterable[splits.Task]) -> splits.Split:
    """The split that a file describes.

    Raises:
        BadData: It does not describe one; the message names the file.
    """
    try:
        return splits.named_split(json.loads(path.read_bytes()), tasks)
    except OSError as error:
        raise splits.BadData(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise splits.BadData(f"{path} is not JSON: {error}") from error
    except splits.BadData as error:
        raise splits.BadData(f"{path}: {error}") from error


def replace_all(files: Mapping[Path, bytes]) -> None:
    """Write all files under temporary names, then rename them: one that fails changes none.

    Raises:
        BadData: A file cannot be written.
    """
    temporary: dict[Path, Path] = {}
    try:
        for path, content in files.items():
            if path.is_dir():
                raise splits.BadData(f"cannot write {path}: it is a folder")
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary[path] = path.with_name(f".{path.name}.{os.getpid()}.tmp")
            temporary[path].write_bytes(content)
        for path, written in temporary.items():
            written.replace(path)
    except OSError as error:
        raise splits.BadData(f"cannot write the files: {error}") from error
    finally:
        for written in temporary.values():
            written.unlink(missing_ok=True)


def bfcl_data(root: Path) -> Path:
    """The data folder of the bfcl-eval that install.sh put into .venv-bfcl.

    Raises:
        BadData: There is none.
    """
    found = sorted(root.glob(".venv-bfcl/lib/python3*/site-packages/bfcl_eval/data"))
    if not found:
        raise splits.BadData(
            "no bfcl-eval in .venv-bfcl; run `bash install.sh`, or name the data "
            "folder of an installed bfcl_eval with --bfcl-data"
        )
    return found[0]


def _rows(path: Path, needed: Mapping[str, type]) -> list[dict[str, Any]]:
    if not path.is_file():
        raise splits.BadData(f"{path} does not exist; is --bfcl-data bfcl_eval/data?")
    rows = []
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        try:
            row = json.loads(line)
        except ValueError as error:
            raise splits.BadData(f"{path}, line {number} is not JSON: {error}") from error
        for key, kind in needed.items():
            if not isinstance(row, dict) or not isinstance(row.get(key), kind):
                raise splits.BadData(f"{path}, line {number} has no {kind.__name__} {key!r}")
        rows.append(row)
    return rows


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
    return parser.parse_args(argv)


def _run(args: argparse.Namespace) -> None:
    tasks = read_tasks(args.bfcl_data or bfcl_data(ROOT))
    files: dict[Path, bytes] = {}
    reported: dict[str, splits.Split] = {}
    theirs: Path | None = args.split_file or args.leakage_report
    if theirs is not None:
        reported[str(theirs)] = split = read_split(theirs, tasks)
        if args.split_file:
            made = split_files(split, theirs.stem)
            files = {args.out / name: content for name, content in made.items()}
    else:
        if not args.processed_only:
            made = tables.recipe_files(tasks, args.seed)
            files = {args.out / name: content for name, content in made.items()}
            reported["bfcl_400_split.json"] = splits.category_split(tasks, args.seed)
            reported["bfcl_scenario_split.json"] = splits.scenario_split(tasks, args.seed)
        files[args.processed] = processed_lines(tasks)
    replace_all(files)
    for path in files:
        print(path)
    for name, split in reported.items():
        print(f"\nLeakage of {name}\n{splits.leakage_report(split)}")
    if reported:
        print(f"\n{splits.leakage_legend()}")


def main(argv: list[str]) -> int:
    """Read the command line, write the files, say which and what leaks."""
    try:
        _run(_arguments(argv))
    except splits.BadData as error:
        raise SystemExit(f"prepare_bfcl: {error}") from error
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
