"""Where a run's outputs lie, and whose they are: folders by name, the lock of a name.

In: the resolved recipe. Out: paths below the project's folder. A run named NAME owns
`experiments/NAME/`, `experiments/tech_synthetic/NAME/` and `launcher_record/NAME/`.
"""

import errno
import fcntl
import json
import platform
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
from omegaconf import DictConfig, OmegaConf

from seal import ROOT as ROOT

_OUTPUTS = ("experiments", "experiments/tech_synthetic", "launcher_record")
_SHARED = ("tech_synthetic", "tiny_policy", "prompt_tokens")
"""Folders in experiments/ that belong to no run: all validation logs, a model, token counts."""
_FOLDER_KEYS = (
    "trainer.default_local_dir",
    "trainer.validation_data_dir",
    "trainer.rollout_data_dir",
    "seal.loop_dir",
)


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
    model = OmegaConf.select(recipe, "actor_rollout_ref.model.path")
    in_run = (ROOT / "experiments" / name).resolve()
    # A run that starts anew moves the folder of its name.
    if name in _SHARED or (model and (ROOT / str(model)).resolve().is_relative_to(in_run)):
        raise RunError(
            f"trainer.experiment_name={name!r}: experiments/{name} is in use for something else "
            "than a run; choose another name"
        )
    if name.endswith(".lock"):
        raise RunError(
            f"trainer.experiment_name={name!r}: names that end in .lock are kept for the "
            "launcher's own files; choose another name"
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


def check_outputs_free(recipe: DictConfig) -> None:
    """Refuse to start anew into a folder that is not the run's own and holds something.

    Raises:
        RunError: A key names such a folder; setting the run's outputs aside would not reach it.
    """
    own = [(ROOT / parent / run_name(recipe)).resolve() for parent in _OUTPUTS]
    for key in _FOLDER_KEYS:
        value = OmegaConf.select(recipe, key)
        if value is None:
            continue
        path = (ROOT / str(value)).resolve()
        if any(path.is_relative_to(folder) for folder in own) or not path.exists():
            continue
        if not path.is_dir() or any(path.iterdir()):
            raise RunError(
                f"{key}={value} holds something already, and a run that starts anew would write "
                "into it; name a folder that is empty or not there, or leave the key out"
            )


@contextmanager
def locked_name(recipe: DictConfig, launch_id: str) -> Iterator[str | None]:
    """Hold the run's name on this machine, so that no second launch writes into its folders.

    The system frees the lock when this process ends, however it ends.

    Args:
        recipe: Resolved recipe.
        launch_id: Mark of this launch's processes.

    Yields:
        The mark of the launch that had the name before: if it was killed, it may have left
        processes behind. None without one, and where the file system has no locks, as that launch
        may then be alive.

    Raises:
        RunError: Another launcher on this machine runs the name; its process id is named.
    """
    name = run_name(recipe)
    # Beside the record's folder, which is moved when a run of the same name starts anew.
    path = ROOT / "launcher_record" / f"{name}.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+", encoding="utf-8") as file:
        locked, taken = True, False
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            taken = True
        except OSError as error:
            # Some cluster file systems have no locks; a run is worth more than this check.
            if error.errno not in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP):
                raise
            locked = False
        file.seek(0)
        holder = _holder(file.read())
        if taken or (not locked and _is_alive(holder)):
            raise RunError(
                f"the run {name!r} is already being launched on this machine, by process "
                f"{holder.get('pid', 'unknown')}; wait for its end, or choose another name: "
                "-- trainer.experiment_name=NAME"
            )
        file.truncate(0)
        json.dump({"launch_id": launch_id, **_this_process()}, file)
        file.flush()
        yield holder.get("launch_id") if locked else None


def _this_process() -> dict[str, Any]:
    process = psutil.Process()
    return {"pid": process.pid, "created": process.create_time(), "host": platform.node()}


def _is_alive(holder: dict[str, Any]) -> bool:
    """Whether the launcher that a lock file names runs on this machine."""
    if holder.get("host") != platform.node():
        return False
    try:
        # A process id is used again; the clock may have been set since.
        created = float(psutil.Process(holder["pid"]).create_time())
        return abs(created - float(holder["created"])) < 2.0
    except (psutil.Error, KeyError, TypeError, ValueError):
        return False


def _holder(text: str) -> dict[str, Any]:
    try:
        read = json.loads(text)
    except ValueError:
        return {}
    return read if isinstance(read, dict) else {}
