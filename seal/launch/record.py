"""The record of a launch in `launcher_record/NAME/`: all that the results depend on.

In: recipe, overrides, command line. Out: `config.yaml` (resolved), `overrides.txt`, `record.json`
(versions, git commit, seed, machine) and `diff.patch` (changes since the commit). The launch that
starts a run writes into the folder itself; a launch that resumes the run writes into `resumed_N/`.
"""

import datetime
import hashlib
import itertools
import json
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from omegaconf import DictConfig, OmegaConf

from seal.coevolution.evolution import InterfaceConfig, largest
from seal.labels import FAILURES
from seal.launch import folders, gpus, pools, processor
from seal.launch.check.machine import installed_version
from seal.launch.data_files import data_files
from seal.launch.folders import record_folder
from seal.launch.resume import CONFIG, POOLS, RECORD
from seal.launch.service import service_versions
from seal.launch.training import ray_address

PACKAGES = ("verl", "vllm", "torch", "ray", "transformers", "tensordict", "TransferQueue", "numpy")
SERVICE_PACKAGES = ("bfcl-eval", "bfcl_eval", "fastapi")
_PATIENCE_S = 30.0
_PIECE_BYTES, _PIECES = 64 * 1024, 256
# With these flags `git apply` takes the patch, whatever the settings of the user's git are.
_PLAIN_PATCH = (
    "--binary",
    "--no-color",
    "--no-ext-diff",
    "--no-textconv",
    "--no-relative",
    "--src-prefix=a/",
    "--dst-prefix=b/",
    "--unified=3",
    "--submodule=short",
)


@dataclass(frozen=True)
class Options:
    """The launcher's command line."""

    conf: Path
    """The recipe."""
    overrides: Sequence[str]
    """The arguments after --."""
    argv: Sequence[str]
    """All arguments, without the program."""
    with_bfcl: bool = False
    """Start the environment service for the run."""
    with_logview: bool = False
    """Start the log viewer for the run."""
    resume: bool = False
    """Go on with the run of this name."""


def record_launch(
    recipe: DictConfig, options: Options, launch_id: str, resumed_from: int | None
) -> Path:
    """Write the record; returns the launch's folder, which is for its logs, too.

    The launch id becomes part of the recipe's run id. Without it, a service that outlives this run
    would take the next run of the same name for this one. `resumed_from` is the step of the
    checkpoint that the run goes on from; None for a new run.
    """
    recipe.seal.run_id = f"{recipe.seal.run_id}-{launch_id[:8]}"
    folder = _new_folder(recipe, resumed_from is not None)
    OmegaConf.save(recipe, folder / CONFIG)
    (folder / "overrides.txt").write_text("".join(f"{o}\n" for o in options.overrides), "utf-8")
    git, patch = git_state()
    if patch is not None:
        (folder / "diff.patch").write_bytes(patch)
    record = {
        "name": str(recipe.trainer.experiment_name),
        "run_id": str(recipe.seal.run_id),
        "recipe": str(options.conf),
        "overrides": list(options.overrides),
        "command_line": [sys.executable, "launcher.py", *options.argv],
        "seed": recipe.seed,
        "resumed_from_step": resumed_from,
        "started": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
        "git": git,
        "versions": {"python": platform.python_version(), **package_versions()},
        # Of the service's environment on this machine. A service elsewhere is not asked.
        "service_versions": service_versions(SERVICE_PACKAGES),
        # Runs that are compared must have these three in common.
        "data": data_hashes(recipe),
        # Checked when the run goes on.
        POOLS: pools.hashes(recipe),
        "policy": policy_hashes(recipe),
        "interface_texts": largest(
            InterfaceConfig(max_guidelines=len(FAILURES)), len
        ).content_hash(),
        "machine": machine(),
        "ray_address": ray_address(recipe),
    }
    (folder / RECORD).write_text(json.dumps(record, indent=2) + "\n", "utf-8")
    return folder


def data_hashes(recipe: DictConfig) -> dict[str, str]:
    """SHA-256 of each data file of the recipe, by its path; "" for a missing file."""
    paths = [path for key in ("train_files", "val_files") for path in data_files(recipe, key)]
    hashes = {}
    for path in paths:
        shown = path.relative_to(folders.ROOT) if path.is_relative_to(folders.ROOT) else path
        hashes[str(shown)] = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
    return hashes


def policy_hashes(recipe: DictConfig) -> dict[str, str]:
    """SHA-256 of each file of the model that training starts from, by its name.

    For a large file the hash covers its size and pieces from all parts of it. Two sets of weights
    differ in all parts, and reading a whole large model takes minutes.
    """
    folder = folders.ROOT / str(recipe.actor_rollout_ref.model.path)
    return {path.name: _digest(path) for path in sorted(folder.glob("*")) if path.is_file()}


def _digest(path: Path) -> str:
    size = path.stat().st_size
    hasher = hashlib.sha256(str(size).encode())
    with path.open("rb") as file:
        for place in range(0, size, max(_PIECE_BYTES, size // _PIECES)):
            file.seek(place)
            hasher.update(file.read(_PIECE_BYTES))
    return hasher.hexdigest()


def package_versions() -> dict[str, str | None]:
    """Versions of the trainer's main packages; None for a package that is not installed."""
    return {name: installed_version(name) for name in PACKAGES}


def git_state() -> tuple[dict[str, Any] | None, bytes | None]:
    """Commit, branch and changes since the commit.

    Returns:
        The state, or None if the project is not a git checkout. `changed` is None if git could not
        tell. And a patch that `git apply` takes on that commit, or None if nothing changed; its
        first lines name the files that git does not track.
    """
    commit = _git("rev-parse", "HEAD")
    if commit is None:
        return None, None
    branch = _git("rev-parse", "--abbrev-ref", "HEAD") or b""
    untracked = (_git("ls-files", "--others", "--exclude-standard") or b"").splitlines()
    changes = _git("diff", "HEAD", *_PLAIN_PATCH)
    state = {
        "commit": commit.decode().strip(),
        "branch": branch.decode().strip(),
        "changed": None if changes is None else bool(changes),
        "untracked": [name.decode("utf-8", "replace") for name in untracked],
    }
    head = b"".join(b"# not in git, content not kept: " + name + b"\n" for name in untracked)
    return state, head + (changes or b"") or None


def machine() -> dict[str, Any]:
    """The machine of the launcher; other nodes of a Ray cluster are not recorded."""
    cards = gpus.read()
    return {
        "host": platform.node(),
        "system": platform.platform(),
        "cpu": processor.model_name() or platform.machine(),
        "cores": os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 1024**3, 1),
        "gpus": [
            f"{gpu.name}, {gpu.total_bytes // 1024**2} MiB, {cards.driver}" for gpu in cards.seen
        ],
    }


def _new_folder(recipe: DictConfig, resumed: bool) -> Path:
    first = record_folder(recipe)
    resumes = (first / f"resumed_{number}" for number in itertools.count(1))
    folder = next(path for path in resumes if not path.exists()) if resumed else first
    folder.mkdir(parents=True)
    return folder


def _git(*arguments: str) -> bytes | None:
    """Output of a git command in the project's folder; None if it fails or takes too long."""
    # The folder may be inside the checkout of another project, which is of no interest.
    if not (folders.ROOT / ".git").exists():
        return None
    command = ["git", "-C", str(folders.ROOT), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_PATIENCE_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout
