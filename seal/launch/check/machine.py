"""The facts about a machine that decide whether a run can start on it, read once.

In: this machine, and what of it is asked. Out: `Machine`, which a test can make up. No judgement
here: that is what the checks are for.
"""

import importlib.metadata
import importlib.util
import json
import os
import re
import resource
import shutil
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from omegaconf import DictConfig

from seal.launch import folders, gpus
from seal.launch.check.programs import Program, ask
from seal.launch.gpus import Gpus
from seal.launch.training import ray_address

PATIENCE_S = 300.0
"""Seconds for an import; from a network file system one takes minutes."""
# Ray counts a container's share, not the machine; what it finds is what it will place by.
_RAY = (
    "import json, ray._private.utils as ray; "
    "print(json.dumps([int(ray.get_num_cpus()), int(ray.get_system_memory())]))"
)


@dataclass(frozen=True)
class Machine:
    """The machine that the launcher runs on; in a Ray cluster the other nodes are not asked."""

    gpus: Gpus
    gpu_files: int
    """NVIDIA devices in /dev, which are there without NVML, too."""
    torch: str | None
    """Version of the installed torch; None without."""
    torch_cuda: str | None
    """CUDA that torch was built with, e.g. 13.0; None for a build without."""
    import_failures: Mapping[str, str]
    """Why a module that was asked for does not import, by name; empty where it does."""
    cpus: int
    """Processors as Ray counts them."""
    memory_bytes: int
    """Memory as Ray counts it: the container's, if it has a limit."""
    shared_memory_bytes: int
    """Free space of /dev/shm."""
    open_files: int
    """The most files a process may open, as far as it can raise the limit by itself."""
    compiler: str | None
    """The C compiler that Triton takes; None without."""
    python_headers: bool
    """Whether Python.h is there, against which Triton compiles."""
    disk_bytes: int
    """Free space in the project's folder."""
    checkpoint_disk_bytes: int
    """Free space where checkpoints go."""
    cluster: str | None
    """The running Ray cluster that the run joins; None where it starts its own Ray here."""

    @classmethod
    def read(cls, recipe: DictConfig, modules: Sequence[str]) -> "Machine":
        """Read the facts.

        Args:
            recipe: Says where checkpoints go and which cluster is joined.
            modules: Those that are imported on trial, each in a process of its own.
        """
        asked = {"ray": _python(_RAY)}
        missing = {name: "it is not installed" for name in modules if not _is_found(name)}
        asked |= {name: _python(f"import {name}") for name in modules if name not in missing}
        answers = ask(asked, PATIENCE_S)
        failures = {name: answers[name].failure for name in modules if name in answers}
        counted = answers.pop("ray")
        if counted.failure:
            raise folders.RunError(
                f"Ray cannot be imported ({counted.failure}); make the environment anew: "
                "bash install.sh"
            )
        cpus, memory = json.loads(counted.printed.splitlines()[-1])
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        compiler = os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang")
        return cls(
            gpus=gpus.read(),
            gpu_files=len(list(Path("/dev").glob("nvidia[0-9]*"))),
            torch=_version("torch"),
            torch_cuda=_torch_cuda(),
            import_failures=missing | failures,
            cpus=cpus,
            memory_bytes=memory,
            shared_memory_bytes=_free_bytes(Path("/dev/shm")),
            open_files=sys.maxsize if hard == resource.RLIM_INFINITY else hard,
            compiler=compiler,
            python_headers=Path(sysconfig.get_path("include"), "Python.h").is_file(),
            disk_bytes=_free_bytes(folders.ROOT),
            checkpoint_disk_bytes=_free_bytes(folders.ROOT / str(recipe.trainer.default_local_dir)),
            cluster=ray_address(recipe),
        )


def _python(code: str) -> Program:
    return Program([sys.executable, "-W", "ignore", "-c", code], folders.ROOT)


def _is_found(module: str) -> bool:
    """Whether there is such a module, without importing the package around it."""
    return importlib.util.find_spec(module.split(".")[0]) is not None


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _torch_cuda() -> str | None:
    """Read from torch's source: its import takes seconds."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    file = Path(spec.origin).with_name("version.py")
    found = re.search(r"^cuda\b.*= '([\d.]+)'", file.read_text("utf-8"), re.MULTILINE)
    return found[1] if found else None


def _free_bytes(folder: Path) -> int:
    """Free space of the file system that a folder is on, or will be."""
    there = next((one for one in (folder, *folder.parents) if one.is_dir()), None)
    return 0 if there is None else shutil.disk_usage(there).free
