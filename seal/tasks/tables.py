"""The rows of the recipes' data files, as verl reads them.

In: BFCL's tasks, split. Out: rows that name a task, a mode and a suite; the content of each file by
its name. Called by prepare_bfcl.py.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from seal.tasks import splits

QUICKSTART_TASKS = 32
QUICKSTART_ROLLOUTS = 8
QUICKSTART_EVALUATION_PER_CATEGORY = 5
DEVELOPMENT_SCENARIOS = 20
"""Training scenarios that are set apart to choose a checkpoint on."""
TINY_STUDY_UNTRAINED = 8
"""Tasks of the quickstart that the study does not train on."""
SMOLLM2_FIXED = 32
SMOLLM2_ROLLOUTS = 4
TABLES = (
    "bfcl_train.parquet",
    "bfcl_eval_400.parquet",
    "bfcl_scenario_train.parquet",
    "bfcl_scenario_eval.parquet",
    "bfcl_clean_train.parquet",
    "bfcl_clean_eval.parquet",
    "quickstart_train.parquet",
    "quickstart_eval.parquet",
    "tiny_study_train.parquet",
    "tiny_study_eval.parquet",
    "smollm2_train.parquet",
    "smollm2_eval.parquet",
)


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


def clean_evaluation(
    development: list[splits.Task], evaluation: list[splits.Task]
) -> list[dict[str, Any]]:
    """The clean protocol's suites: one to choose a checkpoint on, one to report."""
    chosen_on = (
        row(task, index, mode="eval", suite="development") for index, task in enumerate(development)
    )
    return [*chosen_on, *benchmark_rows(evaluation)]


def tiny_study_evaluation(
    trained: list[splits.Task], untrained: list[splits.Task]
) -> list[dict[str, Any]]:
    """The tiny study's suites: tasks trained on, with and without the interface, and others."""
    shown = [
        {**entry, "extra_info": {**entry["extra_info"], "mode": "train"}}
        for entry in sampled_rows(trained, "fixed_with_interface", QUICKSTART_ROLLOUTS // 2)
    ]
    return [
        *sampled_rows(trained, "fixed", QUICKSTART_ROLLOUTS),
        *sampled_rows(untrained, "untrained", 2 * QUICKSTART_ROLLOUTS),
        *shown,
    ]


def recipe_files(tasks: list[splits.Task], seed: int) -> dict[str, bytes]:
    """The files of the recipes, by name."""
    published, disjoint = splits.category_split(tasks, seed), splits.scenario_split(tasks, seed)
    shortest = sorted(_base(published.train), key=lambda task: task.length)[:QUICKSTART_TASKS]
    apart = splits.development_scenarios(disjoint.train, seed, DEVELOPMENT_SCENARIOS)
    development = [task for task in disjoint.train if task.scenario in apart]
    trained = [task for task in disjoint.train if task.scenario not in apart]
    pool = sorted(_base(trained), key=lambda task: task.length)
    # Every fourth one, so that both are as long.
    untrained = shortest[3 :: QUICKSTART_TASKS // TINY_STUDY_UNTRAINED]
    studied = [task for task in shortest if task not in untrained]
    rows = (
        training_rows(published.train),
        benchmark_rows(published.val),
        training_rows(disjoint.train),
        benchmark_rows(disjoint.val),
        training_rows(trained),
        clean_evaluation(development, disjoint.val),
        training_rows(shortest),
        quickstart_evaluation(shortest, published.val),
        training_rows(studied),
        tiny_study_evaluation(studied, untrained),
        training_rows(pool),
        smollm2_evaluation(_base(development), pool, _base(disjoint.val)),
    )
    sides = {"train": trained, "development": development, "val": disjoint.val}
    return {
        "bfcl_400_split.json": _document(_listed(published, seed)),
        "bfcl_scenario_split.json": _document(_listed(disjoint, seed)),
        "quickstart_tasks.json": _document([task.task_id for task in shortest]),
        "bfcl_clean_split.json": _document({"seed": seed} | _ids(sides)),
        "smollm2_split.json": _document(
            {"seed": seed} | _ids({**sides, "development": _base(development)})
        ),
        **{name: parquet(table) for name, table in zip(TABLES, rows, strict=True)},
    }


def _ids(sides: Mapping[str, list[splits.Task]]) -> dict[str, list[str]]:
    return {name: [task.task_id for task in tasks] for name, tasks in sides.items()}


def _base(tasks: Iterable[splits.Task]) -> list[splits.Task]:
    return [task for task in tasks if task.category == "multi_turn_base"]


def _listed(split: splits.Split, seed: int) -> dict[str, Any]:
    sides = {"train": split.train, "val": split.val}
    return {"seed": seed} | {side: [task.task_id for task in sides[side]] for side in sides}


def _document(content: Any) -> bytes:
    return (json.dumps(content, indent=1) + "\n").encode()


def parquet(rows: list[dict[str, Any]]) -> bytes:
    """The rows as a parquet file."""
    import pandas as pd  # the environment service's environment has none, and needs none

    table: bytes = pd.DataFrame(rows).to_parquet(index=False)
    return table
