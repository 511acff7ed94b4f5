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
* data/quickstart_tasks.json, data/quickstart_train.parquet, data/quickstart_eval.parquet: the
  shortest training tasks, and what the quickstart evaluates;
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
from typing import TYPE_CHECKING, Any

# mypy knows this folder as the package `scripts`; when a script runs, that is a package of verl's.
if TYPE_CHECKING:
    from scripts import bfcl_splits as splits
else:
    import bfcl_splits as splits

ROOT = Path(__file__).resolve().parents[1]
PROCESSED = "env_service/environments/bfcl/bfcl_data/multi_turn_processed.jsonl"
TASKS_PER_CATEGORY = 200
NEEDED = {"id": str, "question": list, "involved_classes": list}
NEEDED_OF_REFERENCES = {"id": str, "ground_truth": list}
QUICKSTART_TASKS = 32
QUICKSTART_ROLLOUTS = 8
QUICKSTART_EVALUATION_PER_CATEGORY = 5
SMOLLM2_DEVELOPMENT = 20
"""Scenarios set apart."""
SMOLLM2_FIXED = 32
SMOLLM2_ROLLOUTS = 4
TABLES = (
    "bfcl_train.parquet",
    "bfcl_eval_400.parquet",
    "bfcl_scenario_train.parquet",
    "bfcl_scenario_eval.parquet",
    "quickstart_train.parquet",
    "quickstart_eval.parquet",
    "smollm2_train.parquet",
    "smollm2_eval.parquet",
)


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


def row(
    task: splits.Task, index: int, *, mode: str, suite: str, temperature: float | None = None
) -> dict[str, Any]:
    """A task as verl reads it.

    Args:
        task: The task.
        index: Number of the row.
        mode: "train" (through the learning interface) or "eval".
        suite: Which summary the row belongs to.
        temperature: Sampling temperature of this row; None: the recipe's.
    """
    return {
        "data_source": f"{suite}/{task.category}",
        # verl wants a prompt; tasks that open with an empty turn have no message to show.
        "prompt": task.question[0] or [{"role": "user", "content": ""}],
        "ability": "tool_use",
        "reward_model": {"style": "environment", "ground_truth": ""},
        "extra_info": {
            "index": index,
            "task_id": task.task_id,
            "category": task.category,
            "mode": mode,
            "suite": suite,
            "temperature": temperature,
        },
        "agent_name": "seal",
    }


def training_rows(tasks: list[splits.Task]) -> list[dict[str, Any]]:
    """Rows of tasks to train on, seen through the learning interface."""
    return [row(task, index, mode="train", suite="train") for index, task in enumerate(tasks)]


def benchmark_rows(tasks: list[splits.Task]) -> list[dict[str, Any]]:
    """Rows of tasks to evaluate on: the untouched benchmark, at the recipe's temperature."""
    return [row(task, index, mode="eval", suite="benchmark") for index, task in enumerate(tasks)]


def quickstart_evaluation(
    shortest: list[splits.Task], evaluation: list[splits.Task]
) -> list[dict[str, Any]]:
    """The quickstart's two suites: its training tasks sampled, some evaluation tasks greedily."""
    some = [
        task
        for category in splits.CATEGORIES
        for task in [t for t in evaluation if t.category == category][
            :QUICKSTART_EVALUATION_PER_CATEGORY
        ]
    ]
    return [
        *sampled_rows(shortest, "fixed", QUICKSTART_ROLLOUTS),
        *({**entry, "__rollout_n__": 1} for entry in benchmark_rows(some)),
    ]


def sampled_rows(tasks: Iterable[splits.Task], suite: str, rollouts: int) -> list[dict[str, Any]]:
    """Rows of tasks to sample several times at temperature 1, without the learning interface."""
    return [
        # verl reads the number of rollouts of a row from this column.
        {
            **row(task, index, mode="eval", suite=suite, temperature=1.0),
            "__rollout_n__": rollouts,
        }
        for index, task in enumerate(tasks)
    ]


def smollm2_evaluation(
    development: list[splits.Task], training: list[splits.Task], evaluation: list[splits.Task]
) -> list[dict[str, Any]]:
    """SmolLM2's suites: development, training tasks, and held-out tasks sampled and greedily."""
    greedy = (
        row(task, index, mode="eval", suite="held_out_greedy")
        for index, task in enumerate(evaluation)
    )
    return [
        *sampled_rows(development, "development", SMOLLM2_ROLLOUTS),
        *sampled_rows(training[:SMOLLM2_FIXED], "fixed", SMOLLM2_ROLLOUTS),
        *sampled_rows(evaluation, "held_out", SMOLLM2_ROLLOUTS),
        *({**entry, "__rollout_n__": 1} for entry in greedy),
    ]


def recipe_files(tasks: list[splits.Task], seed: int) -> dict[str, bytes]:
    """The files of the recipes, by name."""
    published, disjoint = splits.category_split(tasks, seed), splits.scenario_split(tasks, seed)
    shortest = sorted(_base(published.train), key=lambda task: task.length)[:QUICKSTART_TASKS]
    apart = splits.development_scenarios(disjoint.train, seed, SMOLLM2_DEVELOPMENT)
    development = [task for task in _base(disjoint.train) if task.scenario in apart]
    trained = [task for task in disjoint.train if task.scenario not in apart]
    pool = sorted(_base(trained), key=lambda task: task.length)
    rows = (
        training_rows(published.train),
        benchmark_rows(published.val),
        training_rows(disjoint.train),
        benchmark_rows(disjoint.val),
        training_rows(shortest),
        quickstart_evaluation(shortest, published.val),
        training_rows(pool),
        smollm2_evaluation(development, pool, _base(disjoint.val)),
    )
    sides = {"train": trained, "development": development, "val": disjoint.val}
    return {
        "bfcl_400_split.json": _document(_listed(published, seed)),
        "bfcl_scenario_split.json": _document(_listed(disjoint, seed)),
        "quickstart_tasks.json": _document([task.task_id for task in shortest]),
        "smollm2_split.json": _document(
            {"seed": seed} | {name: [task.task_id for task in sides[name]] for name in sides}
        ),
        **{name: _table(table) for name, table in zip(TABLES, rows, strict=True)},
    }


def _base(tasks: Iterable[splits.Task]) -> list[splits.Task]:
    return [task for task in tasks if task.category == "multi_turn_base"]


def split_files(split: splits.Split, stem: str) -> dict[str, bytes]:
    """Both tables of somebody's split, by name.

    Raises:
        BadData: Their names are those of the recipes' files.
    """
    names = (f"{stem}_train.parquet", f"{stem}_eval.parquet")
    for name in names:
        if name in TABLES:
            raise splits.BadData(
                f"its table would be {name}, which is a recipe's; rename the split file"
            )
    rows = (training_rows(split.train), benchmark_rows(split.val))
    return {name: _table(table) for name, table in zip(names, rows, strict=True)}


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


def _listed(split: splits.Split, seed: int) -> dict[str, Any]:
    sides = {"train": split.train, "val": split.val}
    return {"seed": seed} | {side: [task.task_id for task in sides[side]] for side in sides}


def _document(content: Any) -> bytes:
    return (json.dumps(content, indent=1) + "\n").encode()


def _table(rows: list[dict[str, Any]]) -> bytes:
    import pandas as pd  # the environment service's environment has none, and needs none

    table: bytes = pd.DataFrame(rows).to_parquet(index=False)
    return table


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
            made = recipe_files(tasks, args.seed)
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
