"""The data files of a recipe: their paths, their rows, and the number of training steps."""

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from seal.launch import folders
from seal.launch.folders import RunError
from seal.settings.sections import read_settings


def data_files(recipe: DictConfig, key: str) -> list[Path]:
    """The files of `data.<key>`, which is one path or a list of paths."""
    data = read_settings(recipe).data
    paths = {"train_files": data.train_files, "val_files": data.val_files}[key]
    return [folders.ROOT / path for path in paths]


@dataclass(frozen=True)
class TaskRow:
    """A row of a data file, as far as a launch reads it."""

    file: Path
    """The file."""
    task_id: str
    """The task, of BFCL or of a pool."""
    prompt: list[dict[str, str]]
    """The first messages, each with role and content."""


def task_rows(path: Path) -> list[TaskRow]:
    """The rows of a data file: parquet, or JSON with one row on each line.

    Raises:
        RunError: It cannot be read, or its rows name no tasks.
    """
    status = path.stat()
    return _task_rows(path, status.st_mtime_ns, status.st_size)


@functools.lru_cache
def _task_rows(path: Path, _time: int, _size: int) -> list[TaskRow]:
    # The import takes a third of a second, and most commands read no rows.
    import pyarrow.json
    import pyarrow.parquet

    try:
        if path.suffix == ".parquet":
            table = pyarrow.parquet.read_table(path, columns=["extra_info", "prompt"])
        else:
            table = pyarrow.json.read_json(path)
        return [
            TaskRow(path, str(row["extra_info"]["task_id"]), _messages(row["prompt"]))
            for row in table.to_pylist()
        ]
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise RunError(
            f"{path} cannot be read as tasks: each row needs a prompt and extra_info with task_id, "
            f"see data/bfcl_train.parquet ({type(error).__name__}: {error})"
        ) from error


def _messages(prompt: list[dict[str, Any]]) -> list[dict[str, str]]:
    return [{"role": message["role"], "content": message["content"]} for message in prompt]


def total_steps(recipe: DictConfig) -> int | None:
    """Training steps of the run, from the recipe or, as verl does it, from the number of epochs.

    Returns:
        The largest possible number: verl makes fewer steps if it drops overlong prompts. None if
        the training data is not parquet.

    Raises:
        RunError: A data file cannot be read.
    """
    if recipe.trainer.total_training_steps is not None:
        return int(recipe.trainer.total_training_steps)
    # The import takes half a second, and only recipes without total_training_steps need it.
    import pyarrow.parquet

    rows = 0
    for path in data_files(recipe, "train_files"):
        if path.suffix != ".parquet":
            return None
        try:
            rows += pyarrow.parquet.read_metadata(path).num_rows
        except (OSError, ValueError) as error:
            raise RunError(f"data.train_files: {path} cannot be read ({error})") from error
    most = recipe.data.get("train_max_samples", -1)
    if most is not None and most > 0:
        rows = min(rows, int(most))
    return int(rows // recipe.data.train_batch_size * recipe.trainer.total_epochs)
