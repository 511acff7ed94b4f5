"""What a run makes before it starts, if it is missing: the policy, and pools of synthetic tasks.

In: the commands of `launcher.build_policy` and `launcher.build_tasks`. Out: the model's folder, the
files of the pools, or an error that names the command that failed. One launch at a time makes
something; another that needs it waits.
"""

import contextlib
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import filelock
from omegaconf import DictConfig

from seal.launch import folders, pools
from seal.launch.folders import RunError
from seal.launch.processes import Family
from seal.launch.service import service_python
from seal.settings.sections import read_settings
from seal.tasks.pools import FOLDER


def prepare_policy(recipe: DictConfig, family: Family, say: Callable[[str], None] = print) -> float:
    """Build the policy if it is missing and the recipe has a command for it.

    If another launch is building it, wait for that one; `say` gets a sentence for the user then.

    Returns:
        The seconds that it took.

    Raises:
        RunError: A command failed, or did not make the policy.
    """
    path = str(recipe.actor_rollout_ref.model.path)
    commands = read_settings(recipe).launcher.build_policy
    folder = folders.ROOT / path
    if not commands or folder.is_dir():
        return 0.0
    started = time.monotonic()
    with _one_builder(folder, folder.name, say):
        # Another launch may have built it by now.
        if not folder.is_dir():
            for command in commands:
                _run(Path(sys.executable), command, family, "building the policy")
            if not (folder / "config.json").is_file():
                raise RunError(f"building the policy failed: {commands[-1]} did not make {path}")
    return time.monotonic() - started


def prepare_pools(
    recipe: DictConfig,
    family: Family,
    with_service: bool,
    say: Callable[[str], None] = print,
) -> bool:
    """Make the pools of synthetic tasks that are missing and for which the recipe has commands.

    A command that makes a pool that is there (`... make NAME ...`) is left out. If another launch
    is making pools, wait for that one; `say` gets a sentence for the user then.

    Args:
        recipe: Resolved recipe.
        family: Processes of the launch.
        with_service: The run starts the service, which needs the tasks with references.
        say: Tells the user something.

    Returns:
        Whether something was missing.

    Raises:
        RunError: A command failed or did not make its pool, or the run may not use a pool.
    """
    commands = read_settings(recipe).launcher.build_tasks
    lacking = bool(pools.missing(recipe, with_service))
    if lacking and commands:
        with _one_builder(folders.ROOT / FOLDER / "pools", "synthetic tasks", say):
            _make_pools(recipe, commands, family, with_service)
    pools.check_pools(recipe, with_service)
    return lacking


def _make_pools(
    recipe: DictConfig, commands: Sequence[str], family: Family, with_service: bool
) -> None:
    for command in commands:
        name = _pool_made_by(command)
        # Another launch may have made it by now.
        if name is None or pools.missing_files(name, with_service):
            _run(service_python(), command, family, "making synthetic tasks")
    if still := pools.missing(recipe, with_service):
        raise RunError(
            f"making synthetic tasks failed: no command of launcher.build_tasks made {still[0]}"
        )


def _pool_made_by(command: str) -> str | None:
    """The pool in a command `... make NAME ...`; None if it is another command.

    >>> _pool_made_by("-m env_service.environments.bfcl.synthesis make first --tasks 4")
    'first'
    """
    words = shlex.split(command)
    return words[words.index("make") + 1] if "make" in words[:-1] else None


def _run(python: Path, command: str, family: Family, purpose: str) -> None:
    # Without a log: the command shows its own progress.
    process = family.start([str(python), *shlex.split(command)], None, {}, folders.ROOT)
    if process.wait() != 0:
        raise RunError(f"{purpose} failed: {command}")


@contextlib.contextmanager
def _one_builder(target: Path, name: str, say: Callable[[str], None]) -> Iterator[None]:
    """Lets one launch at a time build something: two would delete each other's unfinished files."""
    target.parent.mkdir(parents=True, exist_ok=True)
    lock = filelock.FileLock(f"{target}.lock")
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        say(f"waiting for another launch, which is building {name}")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()
