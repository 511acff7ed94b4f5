"""The folder a run saves its checkpoints in, as files: which are whole, which is the last one.

In: the folder that verl saves in (`trainer.default_local_dir`), with `global_step_<n>/` and verl's
note of the latest step. Out: steps, and what going back to an earlier one changes there. Used by
the launcher (where to go on from), the trainer (what to delete) and scripts/export_hf.py.

A checkpoint is made in this order: `seal_state.json`, the actor's shards, `data.pt`, then
verl's note of the latest step. Whatever moment a run is killed at, a folder with all of the first
three is whole; the note may be missing, empty or behind.

Standard library only, so the launcher can read without importing torch.
"""

import json
import re
import zipfile
from pathlib import Path

PREFIX = "global_step_"
NOTE = "latest_checkpointed_iteration.txt"
"""Where verl notes the step of the last complete checkpoint."""
BEST_FILE = "best.json"
"""Beside the checkpoints: step, metric and score of the best one."""
DELETED = "deleted_"
"""A checkpoint is renamed before it is deleted: what a kill leaves of it is never taken for one."""
ABANDONED = "abandoned_"
"""Before the name of a whole checkpoint that a run went back behind."""


def step_of(path: Path) -> int:
    """Step of a checkpoint by its name; 0 for a folder that is none."""
    number = path.name.removeprefix(PREFIX)
    return int(number) if number != path.name and number.isascii() and number.isdigit() else 0


def checkpoint(folder: Path, step: int) -> Path:
    """Where the checkpoint of a step is."""
    return folder / f"{PREFIX}{step}"


def steps(folder: Path) -> list[int]:
    """Steps of all checkpoints, whole or not, ascending."""
    return sorted(step for path in folder.glob(f"{PREFIX}*") if (step := step_of(path)) > 0)


def is_whole(path: Path) -> bool:
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
    """Make an earlier save of the same step count as cut off until the new one has ended."""
    (path / "data.pt").unlink(missing_ok=True)


def latest_whole(folder: Path) -> int | None:
    """Step of the newest whole checkpoint; one that was being written is passed over."""
    whole = (step for step in reversed(steps(folder)) if is_whole(checkpoint(folder, step)))
    return next(whole, None)


def best_step(folder: Path) -> int | None:
    """Step that best.json names; None without one.

    Raises:
        ValueError, KeyError, TypeError: It cannot be read.
    """
    try:
        return int(json.loads((folder / BEST_FILE).read_text("utf-8"))["step"])
    except FileNotFoundError:
        return None


def free_name(path: Path) -> Path:
    """The path itself, or with .1, .2, ... behind it if there is something already."""
    number, free = 0, path
    while free.exists():
        number += 1
        free = path.with_name(f"{path.name}.{number}")
    return free


def abandon_after(folder: Path, step: int) -> list[Path]:
    """Let a run go on from a step: nothing later is taken for a checkpoint of it, nothing is lost.

    Whole checkpoints after the step become `abandoned_global_step_<n>`; what is left of saves that
    were cut off is left to the trainer to delete. verl's note then names the newest whole one, and
    a best.json that names a later one goes.

    Returns:
        Where the whole ones are now.
    """
    abandoned = []
    for later in reversed([one for one in steps(folder) if one > step]):
        path = checkpoint(folder, later)
        whole = is_whole(path)
        new = free_name(path.with_name(f"{ABANDONED if whole else DELETED}{path.name}"))
        path.rename(new)
        abandoned += [new] if whole else []
    latest = latest_whole(folder)
    if latest is None:
        (folder / NOTE).unlink(missing_ok=True)
    else:
        unfinished = folder / f"{NOTE}.unfinished"
        unfinished.write_text(str(latest), "utf-8")
        unfinished.replace(folder / NOTE)
    best = best_step(folder)
    if best is not None and best > step:
        (folder / BEST_FILE).unlink()
    return abandoned
