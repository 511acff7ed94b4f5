"""Prompts of synthetic tasks among those of verl's loader.

In: a pool, the settings `data.synthetic_*`, and verl's data set of training tasks. Out: single
prompts, in the form of verl's loader, and what has been drawn. `SealTrainer` asks for them.

With B prompts a step and the share s, step t has

    floor(t * s * B) - floor((t - 1) * s * B)

prompts of the pool, so the share is exact over steps, whatever B is. A group that lost a rollout,
or that algorithm.filter_groups takes out, is replaced by one of its kind: a batch without filter
keeps this number. verl's loader gives the other prompts; with s = 1 it is not asked. How many steps
a run has, and when an epoch of it ends, follows from the files of real tasks as ever.
"""

import copy
import math
import uuid
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import datasets
import numpy as np
from tensordict import TensorDict
from verl.utils import tensordict_utils as tu
from verl.utils.dataset.rl_dataset import collate_fn

from seal import ROOT
from seal.coevolution.drawing import Drawing, dealt_out, draw, weights
from seal.settings.sections import Settings
from seal.tasks.pools import Pool, pool_rows, read_pool
from seal.tasks.splits import BadData
from seal.train.errors import TrainingError
from seal.train.state import LoopState


def prompts_of_pool(step: int, share: float, batch_size: int) -> int:
    """How many of a step's prompts come from the pool; steps begin at 1.

    >>> [prompts_of_pool(step, 0.3, 5) for step in (1, 2, 3, 4)]
    [1, 2, 1, 2]
    """
    # As it is written: a float's 0.3 is less than 3 / 10, and so would be ten steps of it.
    written = Fraction(str(share)) * batch_size
    return math.floor(step * written) - math.floor((step - 1) * written)


def pool_of_run(settings: Settings, training: Any) -> "SyntheticPrompts | None":
    """The prompts of the recipe's pool; None if it has none. `training` is as in the class.

    Raises:
        TrainingError: The pool cannot be read, or as in `SyntheticPrompts`.
    """
    name = settings.data.synthetic_tasks
    if name is None:
        return None
    try:
        pool = read_pool(name, ROOT)
    except BadData as error:
        raise TrainingError(str(error)) from error
    return SyntheticPrompts(pool, settings, training)


class SyntheticPrompts:
    """The prompts of a pool's tasks.

    Args:
        pool: The pool.
        settings: The recipe.
        training: verl's data set of the training files (RLHFDataset).

    Raises:
        TrainingError: The training files have other columns, so that verl could not put prompts of
            both into a batch.
    """

    def __init__(self, pool: Pool, settings: Settings, training: Any) -> None:
        self._pool, self._data, self._seed = pool, settings.data, settings.seed
        targets = [task.targets for task in pool.rows]
        shuffled = self._data.synthetic_choice == "shuffled"
        self._targets = dealt_out(targets, self._seed) if shuffled else targets
        rows = datasets.Dataset.from_list(pool_rows(pool))
        expected = set(training.dataframe.column_names)
        if set(rows.column_names) != expected:
            raise TrainingError(
                f"data.train_files have the columns {', '.join(sorted(expected))}, and synthetic "
                f"tasks {', '.join(sorted(rows.column_names))}; make the files with "
                "scripts/prepare_bfcl.py"
            )
        # verl's own way from a row to a prompt.
        self._rows = copy.copy(training)
        self._rows.dataframe = rows
        self._waiting: deque[int] = deque()
        self._groups: set[str] = set()

    @property
    def waiting(self) -> int:
        """Prompts that have been drawn and not yet been taken."""
        return len(self._waiting)

    def begin_step(self, state: LoopState, step: int) -> LoopState:
        """Draw the tasks of a step.

        Raises:
            TrainingError: The state belongs to another pool.
        """
        self._waiting.clear()
        self._groups.clear()
        data = self._data
        count = prompts_of_pool(step, data.synthetic_share, data.train_batch_size)
        return self._drawn(state, step, count)

    def replace_groups(self, state: LoopState, step: int, groups: Sequence[str]) -> LoopState:
        """Draw a task for each of these groups, ids of the step's prompts, that was of the pool."""
        return self._drawn(state, step, sum(group in self._groups for group in groups))

    def take(self) -> TensorDict:
        """The prompt that was drawn first, as verl's loader gives one."""
        prompt: dict[str, Any] = collate_fn([self._rows[self._waiting.popleft()]])
        uid = str(uuid.uuid4())
        self._groups.add(uid)
        prompt["uid"] = np.array([uid], dtype=object)
        taken: TensorDict = tu.get_tensordict(prompt)
        return taken

    def _drawn(self, state: LoopState, step: int, count: int) -> LoopState:
        drawing = state.drawing or Drawing(self._pool.tasks_sha256)
        if drawing.pool_sha256 != self._pool.tasks_sha256:
            raise TrainingError(
                f"the checkpoint was trained on another pool {self._pool.name!r} (sha256 "
                f"{drawing.pool_sha256:.12}) than the one in data/synthetic "
                f"({self._pool.tasks_sha256:.12}); make that one again, or start another run"
            )
        task_weights = weights(drawing.scores, self._targets, self._data.synthetic_steering)
        tasks, drawn = draw(drawing.drawn, task_weights, count, self._seed, step)
        self._waiting.extend(tasks)
        return replace(state, drawing=replace(drawing, drawn=drawn))
