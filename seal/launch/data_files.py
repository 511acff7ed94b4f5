"""The data files a recipe names: where they are, and how many training steps they make."""

from pathlib import Path

from omegaconf import DictConfig, ListConfig

from seal.launch import folders
from seal.launch.folders import RunError


def data_files(recipe: DictConfig, key: str) -> list[Path]:
    """The files of `data.<key>`, which is one path or a list."""
    value = recipe.data[key]
    return [
        folders.ROOT / str(one) for one in (value if isinstance(value, ListConfig) else [value])
    ]


def total_steps(recipe: DictConfig) -> int | None:
    """Training steps of the run: as the recipe says, or as verl works them out from the epochs.

    Returns:
        Steps, at most: verl makes fewer if it drops overlong prompts. None where the training data
        is not parquet.

    Raises:
        RunError: A file cannot be read.
    """
    if recipe.trainer.total_training_steps is not None:
        return int(recipe.trainer.total_training_steps)
    # Half a second, which a run that says its steps need not wait.
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
