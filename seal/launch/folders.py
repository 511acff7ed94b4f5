"""The folders of a run, and the lock that gives a run's name to one launcher.

In: the resolved recipe. Out: paths below the project's folder. A run named NAME owns
`experiments/NAME/`, `experiments/tech_synthetic/NAME/` and `launcher_record/NAME/`.
"""

import errno
import fcntl
import itertools
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
_SHARED = (
    *("tech_synthetic", "tiny_policy", "prompt_tokens"),
    *("evaluation", "study", "gpu_smoke", "gpu_smoke_models"),
)
"""Folders in experiments/ that belong to no run: validation logs, a model, token counts, and what
scripts/evaluate.py, scripts/compare.py and scripts/gpu_smoke.py write."""
_FOLDER_KEYS = (
    "trainer.default_local_dir",
    "trainer.validation_data_dir",
    "trainer.rollout_data_dir",
    "seal.loop_dir",
)


class RunError(Exception):
    """The run cannot start or has failed; the message says why and what to do."""


def run_name(recipe: DictConfig) -> str:
    """The run's name, which is also the name of its folders.

    Raises:
        RunError: The name cannot be used for a folder, or its folder has another use.
    """
    name = str(recipe.trainer.experiment_name)
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", name):
        raise RunError(
            f"trainer.experiment_name={name!r} cannot name a folder: use at most 100 letters, "
            "digits, '.', '_' and '-', and begin with a letter or a digit"
        )
    model = OmegaConf.select(recipe, "actor_rollout_ref.model.path")
    in_run = (ROOT / "experiments" / name).resolve()
    # A new run moves the folder of its name aside.
    if name in _SHARED or (model and (ROOT / str(model)).resolve().is_relative_to(in_run)):
        raise RunError(
            f"trainer.experiment_name={name!r}: the folder experiments/{name} has another use; "
            "choose another name"
        )
    if name.endswith(".lock"):
        raise RunError(
            f"trainer.experiment_name={name!r}: the launcher's lock files end in .lock; choose "
            "another name"
        )
    return name


def record_folder(recipe: DictConfig) -> Path:
    """Folder with the record of the run's first launch; launches that resumed it are inside."""
    return ROOT / "launcher_record" / run_name(recipe)


def checkpoint_folder(recipe: DictConfig) -> Path:
    """Folder of the run's checkpoints."""
    return ROOT / str(recipe.trainer.default_local_dir)


def loop_folder(recipe: DictConfig) -> Path:
    """Folder of the run's loop log."""
    return ROOT / str(recipe.seal.loop_dir)


def _outputs(recipe: DictConfig) -> list[Path]:
    return [ROOT / parent / run_name(recipe) for parent in _OUTPUTS]


def set_earlier_outputs_aside(recipe: DictConfig) -> Path | None:
    """Move the outputs of an earlier run of the same name to NAME.1, NAME.2, ...

    Returns:
        The new path of its training outputs, or of its record if it has no other outputs. None if
        there was no earlier run.
    """
    outputs = _outputs(recipe)
    # All folders of a run get the same number.
    for number in itertools.count(1):
        new = [path.with_name(f"{path.name}.{number}") for path in outputs]
        if not any(path.exists() for path in new):
            break
    pairs = zip(outputs, new, strict=True)
    moved = [old.rename(path) for old, path in pairs if old.exists()]
    return moved[0] if moved else None


def check_outputs_free(recipe: DictConfig) -> None:
    """Check that a new run does not write into files of something else.

    `set_earlier_outputs_aside` moves the run's own folders only.

    Raises:
        RunError: A key names a folder that is not the run's own and is not empty.
    """
    own = [folder.resolve() for folder in _outputs(recipe)]
    for key in _FOLDER_KEYS:
        value = OmegaConf.select(recipe, key)
        if value is None:
            continue
        path = (ROOT / str(value)).resolve()
        if any(path.is_relative_to(folder) for folder in own) or not path.exists():
            continue
        if not path.is_dir() or any(path.iterdir()):
            raise RunError(
                f"{key}={value} is not empty, and a new run would write into it; name a folder "
                "that is empty or does not exist, or leave the key out"
            )


@contextmanager
def locked_name(recipe: DictConfig, launch_id: str) -> Iterator[str | None]:
    """Lock the run's name on this machine, so that no second launch writes into its folders.

    The system frees the lock when this process ends, however it ends. The lock file holds the id
    of this launch, which its processes carry.

    Yields:
        The id of the launch that had the name before; if it was killed, processes of it may still
        run. None if there was no launch before. Also None if the file system has no locks: the
        earlier launch may then be alive.

    Raises:
        RunError: Another launcher on this machine runs this name; its process id is named.
    """
    name = run_name(recipe)
    # Not in the record's folder: a new run of the same name moves that folder.
    path = ROOT / "launcher_record" / f"{name}.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+", encoding="utf-8") as file:
        locked, taken = True, False
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            taken = True
        except OSError as error:
            # Some cluster file systems have no locks. The run starts without this check.
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
        # The system reuses process ids, so the start time has to match too. Two seconds allow for
        # a clock that was adjusted.
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
