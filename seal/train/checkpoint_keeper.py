"""The checkpoints of one run: the loop's state is saved with each, and the best one is kept.

In: the loop's state, and verl's own saving as a function. Out: a checkpoint of verl's with
`seal_state.json` in it, best.json, and no more checkpoints than the recipe wants. The state of a
checkpoint that a run is resumed from. The rules are in `seal.train.checkpoints`. No torch here.
"""

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from omegaconf import DictConfig

from seal.records.checkpoint_folder import Best, begin_save, checkpoint, is_whole, write_best
from seal.train import checkpoints
from seal.train.state import LoopState, load, save

logger = logging.getLogger(__name__)


class CheckpointKeeper:
    """Saves, keeps and loads what a run needs to go on.

    Args:
        config: Resolved recipe.

    Raises:
        CheckpointError: The recipe's checkpoints cannot be kept.
    """

    def __init__(self, config: DictConfig) -> None:
        self._trainer = config.trainer
        self._wanted = checkpoints.retention(config)
        self._saved_step: int | None = None  # the last checkpoint of this run

    def after_step(self, state: LoopState, step: int, save_now: Callable[[], None]) -> None:
        """Save (with `save_now`, which calls `save`), unless only the best checkpoint is kept."""
        if self._wanted.keep_last != 0:
            save_now()
            self._prune(state.best, step)

    def after_validation(self, state: LoopState, step: int, save_now: Callable[[], None]) -> None:
        """If the validation found a new best score, keep its checkpoint and name it the best."""
        best = state.best
        if best is None or best.step != step:
            return
        if self._saved_step == step:
            save(state, self._folder(step))
        elif self._wanted.keep_best:
            save_now()
        if self._wanted.keep_best:
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

        Args:
            step: Training steps done, 0 if verl has loaded no checkpoint.

        Raises:
            StateError: The checkpoint has no loop state.
            CheckpointError: The steps to come would overwrite the best checkpoint.
        """
        checkpoints.check_not_overwritten(self._root, step)
        if step == 0:
            return None
        explicit = self._trainer.resume_mode == "resume_path"
        folder = Path(self._trainer.resume_from_path) if explicit else self._folder(step)
        state = load(folder)
        if folder.resolve() == self._folder(step).resolve():
            self._saved_step = step
        best = state.best
        if best is None or not self._wanted.keep_best:
            return state
        if is_whole(self._folder(best.step)):
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
        if not self._wanted.keep_best:
            checkpoints.forget_best(self._root)
            best = None
        kept = None if best is None else best.step
        checkpoints.prune(self._root, self._wanted, step, kept)

    @property
    def _root(self) -> Path:
        return Path(self._trainer.default_local_dir)

    def _folder(self, step: int) -> Path:
        return checkpoint(self._root, step)
