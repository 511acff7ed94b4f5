"""The sides of a split: which tasks lend their worlds, and which are kept apart.

In: a split's file and the name of a side. Out: the tasks of that side, and those of all other
sides.
"""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from env_service.environments.bfcl.synthesis.pool import BadPool
from env_service.environments.bfcl.tasks import BfclTask, load_tasks

SIDES = ("train", "development", "val")
"""Lists of task ids that a split may have."""


@dataclass(frozen=True)
class Sides:
    """A split, as seen from one of its sides."""

    side: str
    """That side."""
    lending: tuple[BfclTask, ...]
    """Its tasks."""
    others: tuple[BfclTask, ...]
    """The tasks of all other sides."""
    split_sha256: str
    """Of the split's file."""


def read_sides(path: Path, side: str) -> Sides:
    """Read a split.

    Raises:
        BadPool: It cannot be read, has no tasks on this side or on no other, or has an unknown
            task, or one task on two sides.
    """
    try:
        content = path.read_bytes()
        split = json.loads(content)
    except (OSError, ValueError) as error:
        raise BadPool(f"cannot read --split {path}: {error}") from None
    if not isinstance(split, dict) or not all(
        isinstance(split.get(needed), list) for needed in ("train", "val")
    ):
        raise BadPool(f"{path} is no split: it needs the lists 'train' and 'val'")
    ids = {name: split[name] for name in SIDES if isinstance(split.get(name), list)}
    if not ids.get(side):
        raise BadPool(f"{path} has no tasks on side {side!r}; it has {', '.join(ids)}")
    known, owners = load_tasks(), dict[str, str]()
    for name in ids:
        for task_id in ids[name]:
            if task_id not in known:
                raise BadPool(f"unknown task {task_id!r} in {path}; one is multi_turn_base_0")
            if owners.setdefault(task_id, name) != name:
                raise BadPool(f"{path}: {task_id} is on two sides, {owners[task_id]} and {name}")
    return Sides(
        side=side,
        lending=tuple(known[task_id] for task_id in ids[side]),
        others=tuple(known[task_id] for task_id, name in owners.items() if name != side),
        split_sha256=hashlib.sha256(content).hexdigest(),
    )
