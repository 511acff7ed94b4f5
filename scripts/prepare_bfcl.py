"""Make the data files that the recipes name, from bfcl-eval's own files and a seed.

In: the multi-turn tasks inside the installed bfcl-eval package. Out, byte for byte the same every
time:

* data/bfcl_400_split.json: 400 training and 400 evaluation tasks, 100 of each category;
* data/bfcl_train.parquet, data/bfcl_eval_400.parquet: those tasks as rows for verl;
* data/quickstart_tasks.json, data/quickstart_train.parquet, data/quickstart_eval.parquet: the
  shortest training tasks, and what the quickstart evaluates;
* bfcl_data/multi_turn_processed.jsonl: every task with its reference, for summaries. It holds
  answers and is not committed.

Rows name a task; prompts that a policy sees come from the environment service. Categories are
split separately, as the published protocol does, which puts siblings of evaluation tasks (the same
scenario number in another category) into training.
"""

import argparse
import json
import random
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
CATEGORIES = (
    "multi_turn_base",
    "multi_turn_miss_func",
    "multi_turn_miss_param",
    "multi_turn_long_context",
)
QUICKSTART_TASKS = 32
QUICKSTART_ROLLOUTS = 8
QUICKSTART_EVALUATION_PER_CATEGORY = 5


@dataclass(frozen=True)
class Task:
    """What the files need to know of a task."""

    task_id: str
    """Id, e.g. multi_turn_base_17."""
    category: str
    """One of CATEGORIES."""
    question: list[list[dict[str, str]]]
    """User messages by turn."""
    involved_classes: list[str]
    """Tool classes."""
    reference: list[list[str]]
    """Reference calls by turn."""

    @property
    def length(self) -> int:
        """Characters of user messages and reference calls together."""
        said = sum(len(message["content"]) for turn in self.question for message in turn)
        return said + sum(len(call) for turn in self.reference for call in turn)


def read_tasks(folder: Path) -> list[Task]:
    """All tasks, in the order of CATEGORIES and of bfcl-eval's files."""
    tasks = []
    for category in CATEGORIES:
        name = f"BFCL_v4_{category}.json"
        references = {row["id"]: row for row in _lines(folder / "possible_answer" / name)}
        tasks += [
            Task(
                task_id=row["id"],
                category=category,
                question=row["question"],
                involved_classes=row["involved_classes"],
                reference=references[row["id"]]["ground_truth"],
            )
            for row in _lines(folder / name)
        ]
    return tasks


def split(tasks: list[Task], seed: int) -> tuple[list[Task], list[Task]]:
    """Half of every category for training, half for evaluation, each in the files' order."""
    training: set[str] = set()
    for category in CATEGORIES:
        ids = [task.task_id for task in tasks if task.category == category]
        training.update(random.Random(f"{seed}/{category}").sample(ids, k=len(ids) // 2))
    return (
        [task for task in tasks if task.task_id in training],
        [task for task in tasks if task.task_id not in training],
    )


def row(
    task: Task, index: int, *, mode: str, suite: str, temperature: float | None = None
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


def training_rows(tasks: list[Task]) -> list[dict[str, Any]]:
    """Rows of tasks to train on, seen through the learning interface."""
    return [row(task, index, mode="train", suite="train") for index, task in enumerate(tasks)]


def benchmark_rows(tasks: list[Task]) -> list[dict[str, Any]]:
    """Rows of tasks to evaluate on: the untouched benchmark, at the recipe's temperature."""
    return [row(task, index, mode="eval", suite="benchmark") for index, task in enumerate(tasks)]


def quickstart_evaluation(shortest: list[Task], evaluation: list[Task]) -> list[dict[str, Any]]:
    """The quickstart's two suites: its training tasks sampled, some evaluation tasks greedily."""
    fixed = [
        row(task, index, mode="eval", suite="fixed", temperature=1.0)
        for index, task in enumerate(shortest)
    ]
    some = [
        task
        for category in CATEGORIES
        for task in [t for t in evaluation if t.category == category][
            :QUICKSTART_EVALUATION_PER_CATEGORY
        ]
    ]
    # verl reads the number of rollouts of a row from this column.
    return [
        {**entry, "__rollout_n__": QUICKSTART_ROLLOUTS if suite == "fixed" else 1}
        for suite, rows in (("fixed", fixed), ("benchmark", benchmark_rows(some)))
        for entry in rows
    ]


def write_files(tasks: list[Task], seed: int, out: Path) -> list[Path]:
    """Write the files of the recipes and return their paths."""
    import pandas as pd  # the environment service's environment has none, and needs none

    training, evaluation = split(tasks, seed)
    candidates = [task for task in training if task.category == "multi_turn_base"]
    shortest = sorted(candidates, key=lambda task: task.length)[:QUICKSTART_TASKS]
    out.mkdir(parents=True, exist_ok=True)
    documents: dict[str, Any] = {
        "bfcl_400_split.json": {
            "seed": seed,
            "train": [task.task_id for task in training],
            "val": [task.task_id for task in evaluation],
        },
        "quickstart_tasks.json": [task.task_id for task in shortest],
    }
    tables = {
        "bfcl_train.parquet": training_rows(training),
        "bfcl_eval_400.parquet": benchmark_rows(evaluation),
        "quickstart_train.parquet": training_rows(shortest),
        "quickstart_eval.parquet": quickstart_evaluation(shortest, evaluation),
    }
    for name, document in documents.items():
        (out / name).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    for name, rows in tables.items():
        pd.DataFrame(rows).to_parquet(out / name, index=False)
    return [out / name for name in (*documents, *tables)]


def write_processed(tasks: list[Task], processed: Path) -> Path:
    """Write every task with its reference, a line each, and return the file's path."""
    processed.parent.mkdir(parents=True, exist_ok=True)
    with processed.open("w", encoding="utf-8") as file:
        for task in tasks:
            line = {
                "id": task.task_id,
                "category": task.category,
                "question": task.question,
                "involved_classes": task.involved_classes,
                "ground_truth": task.reference,
            }
            file.write(json.dumps(line) + "\n")
    return processed


def bfcl_data(root: Path) -> Path:
    """The data folder of the bfcl-eval that install.sh put into .venv-bfcl.

    Raises:
        SystemExit: There is none.
    """
    found = sorted(root.glob(".venv-bfcl/lib/python3*/site-packages/bfcl_eval/data"))
    if not found:
        raise SystemExit(
            "prepare_bfcl: no bfcl-eval in .venv-bfcl; run `bash install.sh`, or name the data "
            "folder of an installed bfcl_eval with --bfcl-data"
        )
    return found[0]


def _lines(path: Path) -> list[dict[str, Any]]:
    if not path.is_file():
        raise SystemExit(f"prepare_bfcl: {path} does not exist; is --bfcl-data bfcl_eval/data?")
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def main(argv: list[str]) -> int:
    """Read the command line, write the files, say which."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bfcl-data", type=Path, help="bfcl_eval/data (default: in .venv-bfcl)")
    parser.add_argument("--seed", type=int, default=42, help="seed of the split (default: 42)")
    parser.add_argument("--out", type=Path, default=ROOT / "data", help="folder (default: data)")
    parser.add_argument(
        "--processed",
        type=Path,
        default=ROOT / "bfcl_data/multi_turn_processed.jsonl",
        help="file with tasks and references (default: bfcl_data/multi_turn_processed.jsonl)",
    )
    parser.add_argument(
        "--processed-only", action="store_true", help="write that file and nothing else"
    )
    args = parser.parse_args(argv)
    tasks = read_tasks(args.bfcl_data or bfcl_data(ROOT))
    written = [] if args.processed_only else write_files(tasks, args.seed, args.out)
    for path in [*written, write_processed(tasks, args.processed)]:
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
