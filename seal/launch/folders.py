"""Where a run's outputs lie, and whose they are: folders by name, the lock of a name.

In: the resolved recipe. Out: paths below the project's folder. A run named NAME owns
`experiments/NAME/`, `experiments/tech_synthetic/NAME/` and `launcher_record/NAME/`.
"""

import errno
import fcntl
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from omegaconf import DictConfig

ROOT = Path(__file__).resolve().parents[2]
_OUTPUTS = ("experiments", "experiments/tech_synthetic", "launcher_record")


class RunError(Exception):
    """The run cannot start or has failed; the message says why and what to do."""


def run_name(recipe: DictConfig) -> str:
    """The run's name, which names its folders.

    Raises:
        RunError: It cannot name a folder.
    """
    name = str(recipe.trainer.experiment_name)
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", name):
        raise RunError(
            f"trainer.experiment_name={name!r} names folders: use letters, digits, '.', '_' and "
            "'-', a letter or digit first, at most 100"
        )
    return name


def record_folder(recipe: DictConfig) -> Path:
    """Where the run's first launch is recorded; those that resumed it are folders in it."""
    return ROOT / "launcher_record" / run_name(recipe)


def set_earlier_outputs_aside(recipe: DictConfig) -> Path | None:
    """Move the outputs of an earlier run of the same name to NAME.1, NAME.2, ...

    Returns:
        Where its training outputs (or, without any, its record) are now; None if there were none.
    """
    name = run_name(recipe)
    there = [ROOT / parent / name for parent in _OUTPUTS if (ROOT / parent / name).exists()]
    if not there:
        return None
    number = 1
    # One number for all of a run's folders.
    while any((ROOT / parent / f"{name}.{number}").exists() for parent in _OUTPUTS):
        number += 1
    moved = [old.rename(old.with_name(f"{name}.{number}")) for old in there]
    return moved[0]


@contextmanager
def locked_name(recipe: DictConfig, launch_id: str) -> Iterator[str | None]:
    """Hold the run's name on this machine, so that no second launch writes into its folders.

    The system frees the lock when this process ends, however it ends.

    Args:
        recipe: Resolved recipe.
        launch_id: Mark of this launch's processes.

    Yields:
        The mark of the launch that had the name before, None without one: if it was killed, it
        may have left processes behind.

    Raises:
        RunError: Another launcher on this machine runs the name; its process id is named.
    """
    name = run_name(recipe)
    # Beside the record's folder, which is moved when a run of the same name starts anew.
    path = ROOT / "launcher_record" / f"{name}.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = _holder(file.read()).get("pid", "unknown")
            raise RunError(
                f"the run {name!r} is already being launched on this machine, by process {holder}; "
                "wait for its end, or choose another name: -- trainer.experiment_name=NAME"
            ) from None
        except OSError as error:
            # Some cluster file systems have no locks; a run is worth more than this check.
            if error.errno not in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP):
                raise
        file.seek(0)
        before = _holder(file.read()).get("launch_id")
        file.truncate(0)
        json.dump({"pid": os.getpid(), "launch_id": launch_id}, file)
        file.flush()
        yield before


def _holder(text: str) -> dict[str, str]:
    try:
        read = json.loads(text)
    except ValueError:
        return {}
    return read if isinstance(read, dict) else {}
