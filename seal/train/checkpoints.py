"""Which checkpoints of a run stay on the disk, and which of them is the best.

In: the folder that verl saves in (`trainer.default_local_dir`, with `global_step_<n>/` and
`latest_checkpointed_iteration.txt`) and `seal.checkpoints` of the recipe. Out: best.json in that
folder, and no more checkpoints than are wanted. Called by the trainer after a save and after a
validation; scripts/export_hf.py finds a checkpoint with it. No torch here.

verl's own limits (`trainer.max_actor_ckpt_to_keep`) know no best checkpoint and forget earlier ones
when a run is resumed, so they have to stay null.
"""

import json
import logging
import os
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path

from omegaconf import DictConfig

from seal.records.checkpoint_folder import (
    BEST_FILE,
    DELETED,
    PREFIX,
    checkpoint,
    free_name,
    is_whole,
    latest_whole,
    steps,
)
from seal.records.checkpoint_folder import NOTE as TRACKER
from seal.train.state import Best

logger = logging.getLogger(__name__)


class CheckpointError(Exception):
    """Checkpoints cannot be kept or found as asked; the message says what to do."""


@dataclass(frozen=True)
class Retention:
    """Which checkpoints stay."""

    keep_best: bool
    """The one with the highest `seal.best_metric`."""
    keep_last: int | None
    """How many of the latest ones; None: all."""


def retention(config: DictConfig) -> Retention:
    """What the recipe keeps. Without checkpoints (`trainer.save_freq` below 1) there is no best.

    Raises:
        CheckpointError: Nothing would be kept, no validation would tell the best one, or verl
            would delete it.
    """
    trainer, wanted = config.trainer, config.seal.checkpoints
    for key in ("max_actor_ckpt_to_keep", "remove_previous_ckpt_in_save"):
        if trainer.get(key):
            raise CheckpointError(
                f"trainer.{key}={trainer[key]} would let verl delete the best checkpoint; set "
                "seal.checkpoints.keep_last instead"
            )
    if wanted.keep_last is not None and wanted.keep_last < 0:
        raise CheckpointError(
            f"seal.checkpoints.keep_last={wanted.keep_last}: expected a number from 0, or null to "
            "keep all"
        )
    if trainer.save_freq < 1:
        return Retention(keep_best=False, keep_last=wanted.keep_last)
    if not wanted.keep_best and wanted.keep_last == 0:
        raise CheckpointError(
            "seal.checkpoints keeps neither the best checkpoint nor the last one; to save none, "
            "set trainer.save_freq=-1"
        )
    if wanted.keep_best and trainer.test_freq < 1:
        raise CheckpointError(
            f"seal.checkpoints.keep_best needs validations to tell the best by, and "
            f"trainer.test_freq={trainer.test_freq} makes none; set it, or "
            "seal.checkpoints.keep_best=false"
        )
    return Retention(bool(wanted.keep_best), wanted.keep_last)


def latest(folder: Path) -> int | None:
    """Step of the checkpoint that a run is resumed from, as verl notes it; None without one."""
    tracker = folder / TRACKER
    try:
        return int(tracker.read_text("utf-8"))
    except FileNotFoundError:
        return None
    except ValueError:
        raise CheckpointError(
            f"{tracker} holds no step; write the number of the last checkpoint into it"
        ) from None


def write_best(folder: Path, best: Best) -> None:
    """Name the best checkpoint in best.json, at once or not at all."""
    unfinished = folder / f"{BEST_FILE}.unfinished"
    with unfinished.open("w", encoding="utf-8") as file:
        file.write(json.dumps(asdict(best)) + "\n")
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(folder / BEST_FILE)


def read_best(folder: Path) -> Best | None:
    """What best.json names; None without one.

    Raises:
        CheckpointError: It cannot be read.
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


def forget_best(folder: Path) -> None:
    """Remove best.json: without `keep_best`, what it names may be deleted any time."""
    (folder / BEST_FILE).unlink(missing_ok=True)


def check_not_overwritten(folder: Path, step: int) -> None:
    """Refuse to train on from a step before the best checkpoint's: it would be saved over.

    Raises:
        CheckpointError: It would.
    """
    best = read_best(folder)
    if best is not None and best.step > step:
        raise CheckpointError(
            f"a run from step {step} on would overwrite the best checkpoint in {folder}, of step "
            f"{best.step}; resume from a later one, or use another trainer.experiment_name"
        )


def prune(folder: Path, keep: Retention, step: int, best_step: int | None) -> list[int]:
    """Delete the checkpoints up to a step that are not kept; the step's own must be complete.

    What is left of a save that was cut off goes, too; later checkpoints stay. Never deleted are
    the best one and the one that a run is resumed from. What the file system does not let go is
    tried again the next time.

    Returns:
        The steps whose checkpoints are gone.
    """
    for leftover in folder.glob(f"{DELETED}*"):
        _delete(leftover)
    if keep.keep_last is None:
        return []
    found = [one for one in steps(folder) if one <= step]
    complete = [one for one in found if is_whole(checkpoint(folder, one))]
    kept = {*complete[len(complete) - min(keep.keep_last, len(complete)) :], latest(folder)}
    kept.add(best_step)
    return [one for one in found if one not in kept and _delete(checkpoint(folder, one))]


def _delete(path: Path) -> bool:
    """Delete a folder, renamed first; False if it is still there under its name."""
    try:
        if not path.name.startswith(DELETED):
            path = path.rename(free_name(path.with_name(f"{DELETED}{path.name}")))
        shutil.rmtree(path)
    except OSError as error:
        # A file that is still open leaves .nfs files on NFS: no reason to end a training.
        logger.warning("%s cannot be deleted yet: %s", path, error)
    return path.name.startswith(DELETED)


def find(path: Path, which: str) -> Path:
    """The checkpoint that a path means: itself, or the best or last one of an experiment.

    Args:
        path: A `global_step_<n>` folder, a folder of them, or an experiment's with `checkpoints/`.
        which: "best" or "last", where there is a choice.

    Raises:
        CheckpointError: There is none, or it is not complete.
    """
    if not path.is_dir():
        raise CheckpointError(f"{path} is no folder; expected a checkpoint or an experiment")
    if path.name.startswith(PREFIX):
        found = path
    else:
        folder = path / "checkpoints" if (path / "checkpoints").is_dir() else path
        found = checkpoint(folder, _step(folder, which))
    if not is_whole(found):
        if not found.is_dir():
            raise CheckpointError(f"{found} does not exist; name another checkpoint")
        raise CheckpointError(
            f"{found} is not complete: a shard, data.pt or the loop's state is missing, as its "
            "save was cut off or lies in part on other nodes; name another checkpoint"
        )
    return found


def _step(folder: Path, which: str) -> int:
    if which == "last":
        last = latest_whole(folder)
        if last is None:
            raise CheckpointError(f"there is no complete checkpoint in {folder}")
        return last
    best = read_best(folder)
    if best is None:
        raise CheckpointError(
            f"{folder} names no best checkpoint ({BEST_FILE}): the run has not validated yet, or "
            "keeps none; take the last one (--which last), or name a global_step folder"
        )
    return best.step
