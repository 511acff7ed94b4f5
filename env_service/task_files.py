"""Pools of synthetic tasks that the service plays beside the tasks of its environments.

In: the files of --tasks. Out: a `TaskFile` for each, or one sentence that says why not. Nothing of
a file is looked at here but its name and hash: the worker processes read it, and refuse it if it
has another hash by then.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path

from env_service.environments.base import TaskFile
from seal.client.listening import CannotStart

PLAYED_BY = "bfcl"
"""The environment that plays them."""
ENDING = ".tasks.jsonl"
"""How the name of a pool's file ends; what stands before it is the pool's name."""


def task_files(paths: Sequence[Path], environments: Sequence[str]) -> tuple[TaskFile, ...]:
    """The pools to play.

    Args:
        paths: Their files.
        environments: Names of the environments that are served.

    Raises:
        CannotStart: A file cannot be read or is not named like a pool, two pools have one name, or
            no environment plays them.
    """
    if paths and PLAYED_BY not in environments:
        raise CannotStart(f"--tasks is for --env {PLAYED_BY}")
    pools: dict[str, TaskFile] = {}
    for path in paths:
        name = path.name.removesuffix(ENDING)
        if name in ("", path.name):
            raise CannotStart(f"--tasks {path} is no pool: a pool's file is named NAME{ENDING}")
        if name in pools:
            raise CannotStart(
                f"--tasks names the pool {name} twice, {pools[name].path} and {path}; ids of tasks "
                "have its name, so a service plays one of them"
            )
        try:
            with path.open("rb") as file:
                sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise CannotStart(f"cannot read --tasks {path}: {error.strerror}") from error
        pools[name] = TaskFile(PLAYED_BY, name, str(path.resolve()), sha256)
    return tuple(pools.values())
