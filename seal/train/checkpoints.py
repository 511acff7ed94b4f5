"""Which checkpoints of a run are kept, and which of them is the best.

In: the recipe, the loop's state, verl's own saving as a function, and the folder that verl saves
in (`trainer.default_local_dir`; its files are known to `seal.records.checkpoint_folder`). Out:
verl's checkpoints with `seal_state.json` in each, as many as the recipe wants, and best.json; and
the state that a run is resumed with. No torch here.

verl's own limit (`trainer.max_actor_ckpt_to_keep`) does not know the best checkpoint and forgets
earlier ones when a run is resumed, so it has to stay null.
"""

import logging
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from seal.records.checkpoint_folder import (
    BEST_FILE,
    DELETED,
    NOTE,
    PREFIX,
    Best,
    CheckpointError,
    begin_save,
    checkpoint,
    free_name,
    is_complete,
    latest_complete,
    read_best,
    steps,
    write_best,
)
from seal.settings.rules import keeps_best
from seal.settings.sections import Settings
from seal.train.state import LoopState, load, save

logger = logging.getLogger(__name__)


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


def prune(folder: Path, keep_last: int | None, step: int, best: int | None) -> None:
    """Delete the checkpoints up to a step that are not kept.

    The checkpoint of the step itself must be complete. Remains of a save that was cut off are
    deleted, too; later checkpoints are not. The best checkpoint and the one that verl resumes from
    are never deleted. What cannot be deleted now is tried again the next time.
    """
    for leftover in folder.glob(f"{DELETED}*"):
        _delete(leftover)
    if keep_last is None:
        return
    saved = [number for number in steps(folder) if number <= step]
    complete = [number for number in saved if is_complete(checkpoint(folder, number))]
    newest = complete[max(0, len(complete) - keep_last) :]
    kept = {*newest, latest(folder), best}
    for number in saved:
        if number not in kept:
            _delete(checkpoint(folder, number))


def _delete(path: Path) -> None:
    """Delete a folder; it is renamed first, so that a kill leaves nothing like a checkpoint."""
    try:
        if not path.name.startswith(DELETED):
            path = path.rename(free_name(path.with_name(f"{DELETED}{path.name}")))
        shutil.rmtree(path)
    except OSError as error:
        # On NFS a file that is still open leaves .nfs files: no reason to end a training.
        logger.warning("%s cannot be deleted yet: %s", path, error)


class CheckpointKeeper:
    """Saves, keeps and loads what a run needs to go on.

    Raises:
        SettingsError: The recipe's checkpoints cannot be kept.
    """

    def __init__(self, settings: Settings) -> None:
        self._trainer = settings.trainer
        self._keep_best = keeps_best(settings)
        self._keep_last = settings.seal.checkpoints.keep_last  # None: all
        self._saved_step: int | None = None  # the last checkpoint of this run

    def after_step(self, state: LoopState, step: int, save_now: Callable[[], None]) -> None:
        """Save (with `save_now`, which calls `save`), unless only the best checkpoint is kept."""
        if self._keep_last != 0:
            save_now()
            self._prune(state.best, step)

    def after_validation(self, state: LoopState, step: int, save_now: Callable[[], None]) -> None:
        """If the validation found a new best score, keep its checkpoint and name it the best."""
        best = state.best
        if best is None or best.step != step:
            return
        if self._saved_step == step:
            save(state, self._folder(step))
        elif self._keep_best:
            save_now()
        if self._keep_best:
            write_best(self._root, best)
            self._prune(best, step)

    def save(self, state: LoopState, step: int, verl_saves: Callable[[], None]) -> None:
        """Save the loop's state, then verl's: verl names the checkpoint complete at its end."""
        begin_save(self._folder(step))
        save(state, self._folder(step))
        verl_saves()
        self._saved_step = step

    def resumed(self, step: int) -> LoopState | None:
        """The loop's state of the step that verl has loaded; None if training starts anew.

        The step is 0 if verl has loaded no checkpoint.

        Raises:
            TrainingError: The checkpoint has no loop state.
            CheckpointError: The steps to come would overwrite the best checkpoint.
        """
        named = read_best(self._root)
        if named is not None and named.step > step:
            raise CheckpointError(
                f"a run from step {step} on would overwrite the best checkpoint in {self._root}, "
                f"of step {named.step}; resume from a later one, or use another "
                "trainer.experiment_name"
            )
        if step == 0:
            return None
        explicit = self._trainer.resume_mode == "resume_path"
        source = self._trainer.resume_from_path if explicit else None
        folder = self._folder(step) if source is None else Path(source)
        state = load(folder)
        if folder.resolve() == self._folder(step).resolve():
            self._saved_step = step
        best = state.best
        if best is None or not self._keep_best:
            return state
        if is_complete(self._folder(best.step)):
            write_best(self._root, best)
            return state
        logger.warning(
            "the best checkpoint so far, of step %d with %s %.4f, is not in %s; "
            "the best one will be one of those to come",
            best.step,
            best.metric,
            best.score,
            self._root,
        )
        return replace(state, best=None)

    def _prune(self, best: Best | None, step: int) -> None:
        if not self._keep_best:  # what best.json names may be deleted
            (self._root / BEST_FILE).unlink(missing_ok=True)
            best = None
        prune(self._root, self._keep_last, step, None if best is None else best.step)

    @property
    def _root(self) -> Path:
        return Path(self._trainer.default_local_dir)

    def _folder(self, step: int) -> Path:
        return checkpoint(self._root, step)


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
        chosen = path
    else:
        folder = path / "checkpoints" if (path / "checkpoints").is_dir() else path
        chosen = checkpoint(folder, _step(folder, which))
    if not is_complete(chosen):
        if not chosen.is_dir():
            raise CheckpointError(f"{chosen} does not exist; name another checkpoint")
        raise CheckpointError(
            f"{chosen} is not complete: a shard, data.pt or the loop's state is missing. Its save "
            "was cut off, or a part of it lies on other nodes; name another checkpoint"
        )
    return chosen


def _step(folder: Path, which: str) -> int:
    if which == "last":
        last = latest_complete(folder)
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
