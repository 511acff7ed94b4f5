"""What a launch was, in `launcher_record/NAME/`: enough to tell later what made the results.

In: recipe, overrides, command line. Out: `config.yaml` (resolved), `overrides.txt`, `record.json`
(versions, git commit, seed, machine) and `diff.patch` (what differs from the commit). The launch
that starts a run writes into the folder itself, one that resumes it into `resumed_N/` there.
"""

import datetime
import hashlib
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil
from omegaconf import DictConfig, OmegaConf

from seal.coevolution.evolution import InterfaceConfig, largest
from seal.coevolution.labels import FAILURES
from seal.launch import folders, gpus
from seal.launch.data_files import data_files
from seal.launch.folders import record_folder
from seal.launch.resume import CONFIG
from seal.launch.service import service_versions
from seal.launch.training import ray_address

PACKAGES = ("verl", "vllm", "torch", "ray", "transformers", "tensordict", "TransferQueue", "numpy")
SERVICE_PACKAGES = ("bfcl-eval", "bfcl_eval", "fastapi")
_PATIENCE_S = 30.0
_PIECE_BYTES, _PIECES = 64 * 1024, 256
# What `git apply` takes, whatever the user's git is set to.
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
class Launch:
    """What was asked for on the command line."""

    conf: Path
    """The recipe."""
    overrides: Sequence[str]
    """What followed --."""
    command_line: Sequence[str]
    """Program and arguments."""
    launch_id: str
    """Mark of the launch's processes."""
    resumed_from: int | None
    """Step of the checkpoint that the run goes on from; None where it starts anew."""


@dataclass(frozen=True)
class Place:
    """Where the launcher ran; in a Ray cluster the other nodes are not asked."""

    host: str
    system: str
    cpu: str
    cores: int | None
    memory_gib: float
    gpus: tuple[str, ...]
    """Name, memory and driver of each that NVML sees; empty without."""


def record_launch(recipe: DictConfig, launch: Launch) -> Path:
    """Write the record.

    The run's id gets the launch's: a service that outlives a run must not take the next one of
    the same name for it.

    Returns:
        The launch's folder, where its logs go, too.
    """
    recipe.seal.run_id = f"{recipe.seal.run_id}-{launch.launch_id[:8]}"
    folder = _new_folder(recipe, launch.resumed_from is not None)
    OmegaConf.save(recipe, folder / CONFIG)
    (folder / "overrides.txt").write_text("".join(f"{o}\n" for o in launch.overrides), "utf-8")
    git, patch = git_state()
    if patch is not None:
        (folder / "diff.patch").write_bytes(patch)
    record = {
        "name": str(recipe.trainer.experiment_name),
        "run_id": str(recipe.seal.run_id),
        "recipe": str(launch.conf),
        "overrides": list(launch.overrides),
        "command_line": list(launch.command_line),
        "seed": recipe.seed,
        "resumed_from_step": launch.resumed_from,
        "started": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
        "git": git,
        "versions": {"python": platform.python_version(), **package_versions()},
        # The service's on this machine; one on another machine is not asked.
        "service_versions": service_versions(SERVICE_PACKAGES),
        # What runs that are compared must have in common.
        "data": data_hashes(recipe),
        "policy": policy_hashes(recipe),
        "interface_texts": largest(
            InterfaceConfig(max_guidelines=len(FAILURES)), len
        ).content_hash(),
        "machine": asdict(place()),
        "ray_address": ray_address(recipe),
    }
    (folder / "record.json").write_text(json.dumps(record, indent=2) + "\n", "utf-8")
    return folder


def data_hashes(recipe: DictConfig) -> dict[str, str]:
    """SHA-256 of each data file that the recipe names, by its path."""
    paths = [path for key in ("train_files", "val_files") for path in data_files(recipe, key)]
    found = {}
    for path in paths:
        shown = path.relative_to(folders.ROOT) if path.is_relative_to(folders.ROOT) else path
        found[str(shown)] = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
    return found


def policy_hashes(recipe: DictConfig) -> dict[str, str]:
    """SHA-256 of each file of the model that training starts from, by its name.

    Of a large file its size and pieces from all over it are taken: other weights differ everywhere,
    and to read all of a large model takes minutes.
    """
    folder = folders.ROOT / str(recipe.actor_rollout_ref.model.path)
    return {path.name: _digest(path) for path in sorted(folder.glob("*")) if path.is_file()}


def _digest(path: Path) -> str:
    size = path.stat().st_size
    made = hashlib.sha256(str(size).encode())
    with path.open("rb") as file:
        for place in range(0, size, max(_PIECE_BYTES, size // _PIECES)):
            file.seek(place)
            made.update(file.read(_PIECE_BYTES))
    return made.hexdigest()


def package_versions() -> dict[str, str | None]:
    """Versions of the trainer's main packages; None for one that is not installed."""
    found: dict[str, str | None] = {}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = None
    return found


def git_state() -> tuple[dict[str, Any] | None, bytes | None]:
    """Commit, branch and what differs from it; nothing where the project is no git checkout.

    Returns:
        The state (`changed` is None if git could not tell), and a patch that `git apply` takes on
        that commit; files that git does not know are named in its head. None for a patch without
        content.
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


def place() -> Place:
    """The machine the launcher runs on."""
    found = gpus.read()
    return Place(
        host=platform.node(),
        system=platform.platform(),
        cpu=_cpu(),
        cores=os.cpu_count(),
        memory_gib=round(psutil.virtual_memory().total / 1024**3, 1),
        gpus=tuple(
            f"{gpu.name}, {gpu.total_bytes // 1024**2} MiB, {found.driver}" for gpu in found.seen
        ),
    )


def command_line(argv: Sequence[str]) -> list[str]:
    """The command that was typed: interpreter, program, arguments."""
    return [sys.executable, "launcher.py", *argv]


def _new_folder(recipe: DictConfig, resumed: bool) -> Path:
    first = record_folder(recipe)
    if not resumed:
        first.mkdir(parents=True)
        return first
    number = 1
    while (folder := first / f"resumed_{number}").exists():
        number += 1
    folder.mkdir(parents=True)
    return folder


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return platform.processor()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _git(*arguments: str) -> bytes | None:
    """What git says of the project's folder; None where it cannot."""
    # Another project's checkout that this folder merely lies in tells nothing.
    if not (folders.ROOT / ".git").exists():
        return None
    return _output("git", "-C", str(folders.ROOT), *arguments)


def _output(*command: str) -> bytes | None:
    """What a command prints; None where it fails or takes too long."""
    try:
        done = subprocess.run(command, capture_output=True, timeout=_PATIENCE_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
