"""The rows of the recipes' data files, as verl reads them.

In: BFCL's tasks, split. Out: rows that name a task, a mode and a suite; the content of each file by
its name.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from seal.tasks import quickstart
from seal.tasks.quickstart import base_tasks
from seal.tasks.splits import (
    BadData,
    Split,
    Task,
    category_split,
    development_scenarios,
    scenario_split,
)

QUICKSTART_ROLLOUTS = 8
DEVELOPMENT_SCENARIOS = 20
"""Training scenarios that are kept apart to choose a checkpoint on."""
TINY_STUDY_UNTRAINED = 8
"""Tasks of the quickstart that the study does not train on."""
TINY_STUDY_ROLLOUTS = 32
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
    "smollm2_study_eval.parquet",
)

Rows = list[dict[str, Any]]


def suite_rows(
    tasks: Iterable[Task],
    suite: str,
    *,
    mode: str = "eval",
    temperature: float | None = None,
    rollouts: int | None = None,
) -> Rows:
    """Tasks as verl reads them, one row each.

    Args:
        tasks: The tasks, in order.
        suite: The summary that the rows belong to.
        mode: "train" (through the learning interface) or "eval" (the untouched benchmark).
        temperature: Sampling temperature; None: the recipe's.
        rollouts: How many rollouts of each row; None: the recipe's number.
    """
    # verl reads the number of rollouts from this column.
    column = {} if rollouts is None else {"__rollout_n__": rollouts}
    return [
        {
            "data_source": f"{suite}/{task.category}",
            # verl needs a prompt; a task that opens with an empty turn has no message.
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
            **column,
        }
        for index, task in enumerate(tasks)
    ]


def training_rows(tasks: Iterable[Task]) -> Rows:
    """Rows of tasks to train on."""
    return suite_rows(tasks, "train", mode="train")


def sampled_rows(tasks: Iterable[Task], suite: str, rollouts: int, mode: str = "eval") -> Rows:
    """Rows of tasks to sample several times at temperature 1."""
    return suite_rows(tasks, suite, mode=mode, temperature=1.0, rollouts=rollouts)


def quickstart_evaluation(trained: Iterable[Task], evaluation: Iterable[Task]) -> Rows:
    """The quickstart's real tasks: those trained on, sampled, and untrained ones, greedily."""
    return [
        *sampled_rows(trained, "fixed", QUICKSTART_ROLLOUTS // 2),
        *suite_rows(evaluation, "benchmark", rollouts=1),
    ]


def smollm2_evaluation(
    development: Iterable[Task], training: Sequence[Task], evaluation: Sequence[Task]
) -> Rows:
    """SmolLM2's suites: development, training tasks, and held-out tasks sampled and greedily."""
    return [
        *_smollm2_sampled(development, training, evaluation),
        *suite_rows(evaluation, "held_out_greedy", rollouts=1),
    ]


def smollm2_study_evaluation(
    development: Iterable[Task], training: Sequence[Task], evaluation: Sequence[Task]
) -> Rows:
    """The SmolLM2 study's suites: the sampled ones, and the training tasks with the interface."""
    shown = training[:SMOLLM2_FIXED]
    return [
        *_smollm2_sampled(development, training, evaluation),
        *sampled_rows(shown, "fixed_with_interface", SMOLLM2_ROLLOUTS, mode="train"),
    ]


def _smollm2_sampled(
    development: Iterable[Task], training: Sequence[Task], evaluation: Sequence[Task]
) -> Rows:
    return [
        *sampled_rows(development, "development", SMOLLM2_ROLLOUTS),
        *sampled_rows(training[:SMOLLM2_FIXED], "fixed", SMOLLM2_ROLLOUTS),
        *sampled_rows(evaluation, "held_out", SMOLLM2_ROLLOUTS // 2),
    ]


def tiny_study_evaluation(trained: Sequence[Task], untrained: Iterable[Task]) -> Rows:
    """The tiny study's suites: tasks trained on, with and without the interface, and others.

    `fixed` is sampled so often because a pass rate of 8 rollouts a task has a standard error of 3
    points, more than two seeds differ. `progress` is the same with fewer, for the course of a run.
    """
    return [
        *sampled_rows(trained, "fixed", TINY_STUDY_ROLLOUTS),
        *sampled_rows(trained, "progress", QUICKSTART_ROLLOUTS),
        *sampled_rows(untrained, "untrained", 2 * QUICKSTART_ROLLOUTS),
        *sampled_rows(trained, "fixed_with_interface", QUICKSTART_ROLLOUTS, mode="train"),
    ]


def recipe_files(tasks: Sequence[Task], seed: int) -> dict[str, bytes]:
    """The content of the recipes' files, by name."""
    published, disjoint = category_split(tasks, seed), scenario_split(tasks, seed)
    shortest = quickstart.trained_tasks(published)
    apart = development_scenarios(disjoint.train, seed, DEVELOPMENT_SCENARIOS)
    development = [task for task in disjoint.train if task.scenario in apart]
    trained = [task for task in disjoint.train if task.scenario not in apart]
    pool = sorted(base_tasks(trained), key=lambda task: task.length)
    # Every fourth task, so that both groups have the same lengths.
    untrained = shortest[3 :: quickstart.TRAINED // TINY_STUDY_UNTRAINED]
    studied = [task for task in shortest if task not in untrained]
    world = quickstart.sides(tasks, shortest, trained)
    clean = [
        *suite_rows(development, "development"),
        *suite_rows(disjoint.val, "benchmark"),
    ]
    rows = (
        training_rows(published.train),
        suite_rows(published.val, "benchmark"),
        training_rows(disjoint.train),
        suite_rows(disjoint.val, "benchmark"),
        training_rows(trained),
        clean,
        training_rows(shortest),
        quickstart_evaluation(shortest, world["val"]),
        training_rows(studied),
        tiny_study_evaluation(studied, untrained),
        training_rows(pool),
        smollm2_evaluation(base_tasks(development), pool, base_tasks(disjoint.val)),
        smollm2_study_evaluation(base_tasks(development), pool, base_tasks(disjoint.val)),
    )
    sides = {"train": trained, "development": development, "val": disjoint.val}
    return {
        "bfcl_400_split.json": _split_document(vars(published), seed),
        "bfcl_scenario_split.json": _split_document(vars(disjoint), seed),
        "quickstart_tasks.json": _document([task.task_id for task in shortest]),
        "quickstart_split.json": _split_document(world, seed),
        "bfcl_clean_split.json": _split_document(sides, seed),
        "smollm2_split.json": _split_document(
            {**sides, "development": base_tasks(development)}, seed
        ),
        **{name: parquet(table) for name, table in zip(TABLES, rows, strict=True)},
    }


def split_files(split: Split, stem: str) -> dict[str, bytes]:
    """The content of both tables of somebody's split, by name.

    Raises:
        BadData: The names are those of a recipe's files.
    """
    tables = {
        f"{stem}_train.parquet": training_rows(split.train),
        f"{stem}_eval.parquet": suite_rows(split.val, "benchmark"),
    }
    for name in tables:
        if name in TABLES:
            raise BadData(f"its table would be {name}, which is a recipe's; rename the split file")
    return {name: parquet(rows) for name, rows in tables.items()}


def parquet(rows: Rows) -> bytes:
    """The rows as a parquet file."""
    import pandas as pd  # not installed with the environment service, which makes no table

    table: bytes = pd.DataFrame(rows).to_parquet(index=False)
    return table


def _split_document(sides: Mapping[str, Iterable[Task]], seed: int) -> bytes:
    ids = {name: [task.task_id for task in tasks] for name, tasks in sides.items()}
    return _document({"seed": seed, **ids})


def _document(content: Any) -> bytes:
    return (json.dumps(content, indent=1) + "\n").encode()
