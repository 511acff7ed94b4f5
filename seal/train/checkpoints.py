"""Which checkpoints of a run are kept, and which of them is the best.

In: `seal.checkpoints` of the recipe and the folder that verl saves in
(`trainer.default_local_dir`); `seal.records.checkpoint_folder` says what lies in it. Out: best.json
in that folder, and no more checkpoints than are wanted. No torch here.

verl's own limit (`trainer.max_actor_ckpt_to_keep`) does not know the best checkpoint and forgets
earlier ones when a run is resumed, so it has to stay null.
"""

import logging
import shutil
from dataclasses import dataclass
from pathlib import Path

from omegaconf import DictConfig

from seal.records.checkpoint_folder import (
    BEST_FILE,
    DELETED,
    NOTE,
    PREFIX,
    best_step,
    checkpoint,
    free_name,
    is_whole,
    latest_whole,
    steps,
)

logger = logging.getLogger(__name__)


class CheckpointError(Exception):
    """Checkpoints cannot be kept or found as asked; the message says what to do."""


@dataclass(frozen=True)
class Retention:
    """Which checkpoints are kept."""

    keep_best: bool
    """The one with the highest `seal.best_metric`."""
    keep_last: int | None
    """How many of the latest ones; None means all."""


def retention(config: DictConfig) -> Retention:
    """What the recipe keeps. If it saves none (`trainer.save_freq` below 1), there is no best one.

    Raises:
        CheckpointError: Nothing would be kept, no validation would find the best checkpoint, or
            verl would delete it.
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
            "seal.checkpoints.keep_best needs validations to find the best checkpoint, and "
            f"trainer.test_freq={trainer.test_freq} makes none; set it, or "
            "seal.checkpoints.keep_best=false"
        )
    return Retention(bool(wanted.keep_best), wanted.keep_last)


def latest(folder: Path) -> int | None:
    """Step of the checkpoint that verl resumes from, by verl's note; None if there is no note.

    Raises:
        CheckpointError: The note holds no step.
    """
    note = folder / NOTE
    try:
        return int(note.read_text("utf-8"))
    except FileNotFoundError:
        return None
    except ValueError:
        raise CheckpointError(
            f"{note} holds no step; write the number of the last checkpoint into it"
        ) from None


def _named_best(folder: Path) -> int | None:
    """Step that best.json names; None without one.

    Raises:
        CheckpointError: It cannot be read.
    """
    try:
        return best_step(folder)
    except ValueError as error:
        raise CheckpointError(str(error)) from None


def forget_best(folder: Path) -> None:
    """Remove best.json: without `keep_best`, the checkpoint that it names may be deleted."""
    (folder / BEST_FILE).unlink(missing_ok=True)


def check_not_overwritten(folder: Path, step: int) -> None:
    """Refuse to train on from a step before that of the best checkpoint.

    Raises:
        CheckpointError: The best checkpoint would be overwritten.
    """
    best = _named_best(folder)
    if best is not None and best > step:
        raise CheckpointError(
            f"a run from step {step} on would overwrite the best checkpoint in {folder}, of step "
            f"{best}; resume from a later one, or use another trainer.experiment_name"
        )


def prune(folder: Path, keep: Retention, step: int, best: int | None) -> None:
    """Delete the checkpoints up to a step that are not kept.

    The checkpoint of the step itself must be complete. Remains of a save that was cut off are
    deleted, too; later checkpoints are not. The best checkpoint and the one that verl resumes from
    are never deleted. What cannot be deleted now is tried again the next time.

    Args:
        folder: Of the checkpoints.
        keep: What is kept.
        step: Of the newest checkpoint.
        best: Step of the best one, None if there is none to keep.
    """
    for leftover in folder.glob(f"{DELETED}*"):
        _delete(leftover)
    if keep.keep_last is None:
        return
    found = [one for one in steps(folder) if one <= step]
    complete = [one for one in found if is_whole(checkpoint(folder, one))]
    newest = complete[max(0, len(complete) - keep.keep_last) :]
    kept = {*newest, latest(folder), best}
    for one in found:
        if one not in kept:
            _delete(checkpoint(folder, one))


def _delete(path: Path) -> None:
    """Delete a folder; it is renamed first, so that a kill leaves nothing like a checkpoint."""
    try:
        if not path.name.startswith(DELETED):
            path = path.rename(free_name(path.with_name(f"{DELETED}{path.name}")))
        shutil.rmtree(path)
    except OSError as error:
        # On NFS a file that is still open leaves .nfs files: no reason to end a training.
        logger.warning("%s cannot be deleted yet: %s", path, error)


def find(path: Path, which: str) -> Path:
    """The checkpoint that a path names: itself, or the best or last one of an experiment.

    Args:
        path: A `global_step_<n>` folder, a folder of them, or an experiment's with `checkpoints/`.
        which: "best" or "last"; ignored if the path is a checkpoint.

    Raises:
        CheckpointError: There is no such checkpoint, or it is not complete.
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
            f"{found} is not complete: a shard, data.pt or the loop's state is missing. Its save "
            "was cut off, or a part of it lies on other nodes; name another checkpoint"
        )
    return found


def _step(folder: Path, which: str) -> int:
    if which == "last":
        last = latest_whole(folder)
        if last is None:
            raise CheckpointError(f"there is no complete checkpoint in {folder}")
        return last
    best = _named_best(folder)
    if best is None:
        raise CheckpointError(
            f"{folder} names no best checkpoint ({BEST_FILE}): the run has not validated yet, or "
            "keeps none; take the last one (--which last), or name a global_step folder"
        )
    return best
