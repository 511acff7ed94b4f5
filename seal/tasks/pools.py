"""Pools of synthetic tasks, as training reads them: without references.

In: the name of a pool and the project's folder. Out: its tasks in order, or `BadData`. The
environment service makes a pool (docs/environment.md#synthetic-tasks) and writes a table and a
report for the trainer; the references stay with the service.
"""

import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seal.labels import Label
from seal.records.json_lines import BadLine, read_json_lines
from seal.tasks.splits import BadData, Task
from seal.tasks.tables import Rows, training_rows
from seal.wire import SYNTHETIC_PREFIX

FOLDER = Path("data/synthetic")
"""Where tables and reports are, in the project's folder."""
_TASK_ID = re.compile(SYNTHETIC_PREFIX + r"(?P<pool>.+)_\d{6,}_\d+")


@dataclass(frozen=True)
class PoolTask:
    """A synthetic task without its reference."""

    task_id: str
    """For example synthetic_NAME_000123_17."""
    category: str
    """For example multi_turn_base."""
    prompt: tuple[dict[str, str], ...]
    """Messages of the first turn, each with role and content."""
    targets: tuple[Label, ...]
    """Labels that the task invites."""
    seed_task: str
    """The training task whose tool classes and initial state it has."""


@dataclass(frozen=True)
class Pool:
    """Synthetic tasks to train on."""

    name: str
    """As data.synthetic_tasks has it."""
    rows: tuple[PoolTask, ...]
    """At least one; a place in this order is a task's number in a drawing."""
    tasks_sha256: str
    """Of the file that the service plays, with references."""
    scenarios: frozenset[int]
    """Scenarios of the seed tasks."""


def table_file(root: Path, name: str) -> Path:
    """The tasks of a pool, one JSON line each."""
    return root / FOLDER / f"{name}.jsonl"


def report_file(root: Path, name: str) -> Path:
    """The report of a pool."""
    return root / FOLDER / f"{name}.report.json"


def pool_of(task_id: str) -> str | None:
    """The pool that a task belongs to; None for a task of BFCL's own.

    >>> pool_of("synthetic_first_try_000123_17"), pool_of("multi_turn_base_17")
    ('first_try', None)
    """
    match = _TASK_ID.fullmatch(task_id)
    return None if match is None else match["pool"]


def read_pool(name: str, root: Path) -> Pool:
    """Read a pool.

    Args:
        name: The pool.
        root: The project's folder.

    Raises:
        BadData: There is no such pool, table and report do not belong together, or a line is no
            task of it.
    """
    table, report = table_file(root, name), report_file(root, name)
    try:
        content, facts = table.read_bytes(), json.loads(report.read_bytes())
    except FileNotFoundError as error:
        raise BadData(
            f"there is no pool {name!r}: {error.filename} is missing; make it: "
            f".venv-bfcl/bin/python -m env_service.environments.bfcl.synthesis make {name} "
            "--split data/bfcl_clean_split.json"
        ) from None
    except (OSError, ValueError) as error:
        raise BadData(f"cannot read the pool {name!r}: {report}: {error}") from None
    hashes = [
        facts.get(key) if isinstance(facts, dict) else None
        for key in ("table_sha256", "tasks_sha256")
    ]
    if hashes[0] != hashlib.sha256(content).hexdigest() or not isinstance(hashes[1], str):
        raise BadData(f"{report} is not the report of {table}; make the pool {name!r} again")
    try:
        rows = tuple(read_json_lines(table, lambda _, row: _task(name, row)))
    except (OSError, BadLine) as error:
        raise BadData(str(error)) from None
    if len({row.task_id for row in rows}) != len(rows) or not rows:
        raise BadData(f"{table} has no task, or one twice; make the pool {name!r} again")
    scenarios = frozenset(int(row.seed_task.rpartition("_")[2]) for row in rows)
    return Pool(name, rows, hashes[1], scenarios)


def pool_rows(pool: Pool) -> Rows:
    """The tasks of a pool as verl reads tasks to train on, in order."""
    return training_rows(
        Task(
            task_id=task.task_id,
            category=task.category,
            question=[list(task.prompt)],
            involved_classes=[],
            reference=[],
        )
        for task in pool.rows
    )


def _task(name: str, row: dict[str, Any]) -> PoolTask:
    try:
        task = PoolTask(
            task_id=row["task_id"],
            category=row["category"],
            prompt=tuple(
                {"role": message["role"], "content": message["content"]}
                for message in row["prompt"]
            ),
            targets=tuple(map(Label, row["targets"])),
            seed_task=row["seed_task"],
        )
        belongs = pool_of(task.task_id) == name and task.seed_task.rpartition("_")[2].isdigit()
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadLine(f"not a task of a pool ({type(error).__name__}: {error})") from None
    if not belongs:
        raise BadLine(f"{task.task_id} of seed {task.seed_task} is no task of the pool {name!r}")
    return task
