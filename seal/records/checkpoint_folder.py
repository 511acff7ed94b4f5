"""The folder with a run's checkpoints: which are whole, which is the last, which the best.

In: the folder that verl saves in (`trainer.default_local_dir`). It holds `global_step_<n>/`, verl's
note of the latest step, and `best.json`. Out: steps, and what changes there when a run goes back to
an earlier one.

A checkpoint is made in this order: `seal_state.json`, the actor's shards, `data.pt`, then verl's
note of the latest step. A run may be killed at any moment: a folder with the first three is whole;
the note may be missing, empty or behind.
"""

import json
import re
import zipfile
from dataclasses import asdict, dataclass
from pathlib import Path

from seal.records.whole_file import write_whole

PREFIX = "global_step_"
NOTE = "latest_checkpointed_iteration.txt"
"""Where verl notes the step of the last complete checkpoint."""
BEST_FILE = "best.json"
"""Beside the checkpoints: step, metric and score of the best one."""
DELETED = "deleted_"
"""A checkpoint is renamed before it is deleted, so a half-deleted one is never read as one."""
ABANDONED = "abandoned_"
"""Prefix of a whole checkpoint that is later than the step a run went back to."""


class CheckpointError(Exception):
    """Checkpoints cannot be kept, found or read as asked; the message says what to do."""


@dataclass(frozen=True)
class Best:
    """The best validation so far, as `best.json` holds it."""

    metric: str
    """Name of the metric it was chosen by."""
    score: float
    step: int
    """Training steps done at that validation, which name its checkpoint."""


def step_of(path: Path) -> int:
    """Step of a checkpoint, from its name; 0 for a folder that is no checkpoint."""
    number = path.name.removeprefix(PREFIX)
    return int(number) if number != path.name and number.isascii() and number.isdigit() else 0


def checkpoint(folder: Path, step: int) -> Path:
    """The path of the checkpoint of a step."""
    return folder / f"{PREFIX}{step}"


def steps(folder: Path) -> list[int]:
    """Steps of all checkpoints, whole or not, ascending."""
    return sorted(step for path in folder.glob(f"{PREFIX}*") if (step := step_of(path)) > 0)


def is_complete(path: Path) -> bool:
    """Whether all of a checkpoint has been saved: the loop's state, every shard, data.pt."""
    shards = {shard.name for shard in path.glob("actor/model_world_size_*_rank_*.pt")}
    sizes = {re.sub(r"\D*(\d+)_rank.*", r"\1", name) for name in shards}
    try:
        json.loads((path / "seal_state.json").read_text("utf-8"))
        # torch writes a zip archive, whose directory comes last.
        return sizes == {str(len(shards))} and zipfile.is_zipfile(path / "data.pt")
    except (OSError, ValueError):
        return False


def begin_save(path: Path) -> None:
    """Mark an earlier save of the same step as unfinished until the new one has ended."""
    (path / "data.pt").unlink(missing_ok=True)


def latest_complete(folder: Path) -> int | None:
    """Step of the newest complete checkpoint; None without one."""
    complete = (step for step in reversed(steps(folder)) if is_complete(checkpoint(folder, step)))
    return next(complete, None)


def write_best(folder: Path, best: Best) -> None:
    """Name the best checkpoint in best.json."""
    write_whole(folder / BEST_FILE, json.dumps(asdict(best)) + "\n")


def read_best(folder: Path) -> Best | None:
    """What best.json names; None without one.

    Raises:
        CheckpointError: It cannot be read; the message says what was expected.
    """
    path = folder / BEST_FILE
    try:
        best = json.loads(path.read_text("utf-8"))
        return Best(str(best["metric"]), float(best["score"]), int(best["step"]))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):
        raise CheckpointError(
            f"{path} cannot be read; expected metric, score and step of the best checkpoint"
        ) from None


def free_name(path: Path) -> Path:
    """The path itself; if it exists, the path with .1, .2, ... behind it."""
    number, free = 0, path
    while free.exists():
        number += 1
        free = path.with_name(f"{path.name}.{number}")
    return free


def abandon_after(folder: Path, step: int) -> list[Path]:
    """Let a run go on from a step: no later folder counts as its checkpoint, and none is lost.

    Complete checkpoints after the step become `abandoned_global_step_<n>`, and their new paths are
    returned; the trainer deletes what is left of unfinished saves. verl's note then names the
    newest complete checkpoint. A best.json that names a later step is removed.
    """
    abandoned = []
    for later in reversed([number for number in steps(folder) if number > step]):
        path = checkpoint(folder, later)
        complete = is_complete(path)
        new = free_name(path.with_name(f"{ABANDONED if complete else DELETED}{path.name}"))
        path.rename(new)
        abandoned += [new] if complete else []
    latest = latest_complete(folder)
    if latest is None:
        (folder / NOTE).unlink(missing_ok=True)
    else:
        write_whole(folder / NOTE, str(latest))
    best = read_best(folder)
    if best is not None and best.step > step:
        (folder / BEST_FILE).unlink()
    return abandoned
