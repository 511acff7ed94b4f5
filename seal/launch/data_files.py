"""The data files of a recipe: their paths, and the number of training steps they give."""

from pathlib import Path

from omegaconf import DictConfig

from seal.launch import folders
from seal.launch.folders import RunError
from seal.settings.sections import read_settings


def data_files(recipe: DictConfig, key: str) -> list[Path]:
    """The files of `data.<key>`, which is one path or a list of paths."""
    data = read_settings(recipe).data
    paths = {"train_files": data.train_files, "val_files": data.val_files}[key]
    return [folders.ROOT / path for path in paths]


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
