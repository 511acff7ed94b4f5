"""The files of a pool of synthetic tasks.

In: tasks and their provenance, or a path. Out: lines, or tasks that the environment can play.

| file | what is in it |
|---|---|
| env_service/environments/bfcl/bfcl_data/synthetic/NAME.tasks.jsonl | tasks, for the service |
| data/synthetic/NAME.jsonl | what the trainer may know of them: no reference |
| data/synthetic/NAME.report.json | counts, shares, hashes |

None is committed. Tool docs are in no file: they are bfcl-eval's own, of the version that a line
names. Nor is the commit: the same arguments would give other bytes for an unrelated change. What a
task depends on has its own hashes: the split, the wordings, the results.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from env_service.environments.bfcl.tasks import BfclTask, class_docs, take_doc
from seal.wire import SYNTHETIC_PREFIX

ROOT = Path(__file__).resolve().parents[4]
"""The project's folder, below which pools are kept."""


class BadPool(Exception):
    """A pool cannot be read or made; the message says why."""


@dataclass(frozen=True)
class Provenance:
    """Where a task comes from, and what is needed to make it again."""

    author: str
    """Who proposed it."""
    seed_task: str
    """The task whose classes and initial state it has."""
    rng_seed: str
    """Seed of the generator that drew it."""
    calls: tuple[int, ...]
    """Calls of each turn that were asked for."""
    indirect_share: float
    """Probability that a value was said indirectly where it could be."""
    indirect_values: int
    """Values that were said indirectly."""
    result_calls: int
    """Calls with a value that an earlier result has shown."""
    changing_calls: int
    """Calls that changed the state."""
    targets: tuple[str, ...]
    """Labels that it invites (`targets`)."""
    results_sha256: str
    """Of everything that its reference returns."""
    split_sha256: str
    """Of the split's file."""
    wording_sha256: str
    """Of everything that can be said (`wording.fingerprint`)."""
    bfcl_eval: str
    """Version of bfcl-eval."""


def id_of(pool: str, number: int, seed_task: str) -> str:
    """The id of a pool's task; its last number is the scenario of its seed.

    >>> id_of("first", 123, "multi_turn_base_17")
    'synthetic_first_000123_17'
    """
    return f"{SYNTHETIC_PREFIX}{pool}_{number:06d}_{seed_task.rpartition('_')[2]}"


def is_of(task_id: str, pool: str) -> bool:
    """Whether a task has the id of a pool's task."""
    begin = re.escape(f"{SYNTHETIC_PREFIX}{pool}_")
    return re.fullmatch(begin + r"\d{6,}_\d+", task_id) is not None


def task_file(name: str, root: Path = ROOT) -> Path:
    """The tasks of a pool, with references."""
    return root / f"env_service/environments/bfcl/bfcl_data/synthetic/{name}.tasks.jsonl"


def table_file(name: str, root: Path = ROOT) -> Path:
    """The trainer's table of a pool, without references."""
    return root / f"data/synthetic/{name}.jsonl"


def report_file(name: str, root: Path = ROOT) -> Path:
    """The report of a pool."""
    return root / f"data/synthetic/{name}.report.json"


def table_line(task: BfclTask, provenance: Provenance) -> str:
    """What the trainer may know of a task, as a line of its table: no reference, no later turn."""
    row = {
        "task_id": task.task_id,
        "category": task.category,
        "prompt": task.turns[0],
        "targets": provenance.targets,
        "seed_task": provenance.seed_task,
    }
    return json.dumps(row) + "\n"


def line_of(task: BfclTask, provenance: Provenance) -> str:
    """A task as a line of the file."""
    held_out = {
        str(turn): [doc["function"]["name"] for doc in docs]
        for turn, docs in task.held_out_docs.items()
    }
    row = {
        "task_id": task.task_id,
        "category": task.category,
        "turns": task.turns,
        "involved_classes": task.involved_classes,
        "initial_config": task.initial_config,
        "held_out": held_out,
        "reference": task.reference,
        "provenance": asdict(provenance),
    }
    return json.dumps(row) + "\n"


def read_tasks(path: Path) -> list[BfclTask]:
    """The tasks of a pool, as they were made.

    Raises:
        BadPool: The file cannot be read, or was made with another bfcl-eval.
    """
    return [_task(path, number, row) for number, row in enumerate(read_rows(path), start=1)]


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The lines of a pool.

    Raises:
        BadPool: The file cannot be read.
    """
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BadPool(f"cannot read the pool {path}: {error}") from None
    return [_row(path, number, line) for number, line in enumerate(lines, start=1)]


def sha256_of(path: Path) -> str:
    """Hash of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _row(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except ValueError:
        row = None
    if not isinstance(row, dict):
        raise BadPool(f"{path}:{number} is not a task: it is no JSON object")
    return row


def _task(path: Path, number: int, row: Mapping[str, Any]) -> BfclTask:
    installed = version("bfcl_eval")
    try:
        made_with = row["provenance"]["bfcl_eval"]
        if made_with != installed:
            raise BadPool(
                f"{path} was made with bfcl-eval {made_with}, and {installed} is installed; make "
                "the pool again"
            )
        shown = [doc for owner in row["involved_classes"] for doc in class_docs(owner)]
        held_out = {
            int(turn): tuple(take_doc(shown, name) for name in names)
            for turn, names in row["held_out"].items()
        }
        return BfclTask(
            task_id=row["task_id"],
            category=row["category"],
            turns=tuple(map(tuple, row["turns"])),
            involved_classes=tuple(row["involved_classes"]),
            initial_config=row["initial_config"],
            tools=tuple(shown),
            held_out_docs=held_out,
            reference=tuple(map(tuple, row["reference"])),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadPool(f"{path}:{number} is not a task: {type(error).__name__}: {error}") from None
