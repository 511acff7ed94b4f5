"""The facts about this machine that decide whether a run can start, read once.

In: this machine. Out: `Machine`, which a test can make up. The checks judge the facts, not this
module.
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
from seal.launch.folders import RunError, checkpoint_folder
from seal.launch.gpus import Gpus
from seal.launch.training import ray_address

PATIENCE_S = 300.0
"""Seconds for an import; on a network file system it takes minutes."""
# Ray counts the share of a container, not the whole machine, and schedules by these numbers.
_RAY = (
    "import json, ray._private.utils as ray; "
    "print(json.dumps([int(ray.get_num_cpus()), int(ray.get_system_memory())]))"
)


@dataclass(frozen=True)
class Machine:
    """The machine of the launcher; other nodes of a Ray cluster are not asked."""

    gpus: Gpus
    gpu_files: int
    """Number of NVIDIA devices in /dev, which exist without NVML too."""
    torch: str | None
    """Version of torch; None if it is not installed."""
    torch_cuda: str | None
    """CUDA version that torch was built with, e.g. 13.0; None for a build without CUDA."""
    import_failures: Mapping[str, str]
    """Why a module does not import, by its name; empty if it does."""
    cpus: int
    """Processors as Ray counts them."""
    memory_bytes: int
    """Memory as Ray counts it: the limit of the container, if it has one."""
    shared_memory_bytes: int
    """Free space of /dev/shm."""
    open_files: int
    """Hard limit of open files: a process can raise its own limit up to it."""
    compiler: str | None
    """The C compiler that Triton uses; None if there is none."""
    python_headers: bool
    """Whether Python.h exists; Triton needs it."""
    disk_bytes: int
    """Free space in the project's folder."""
    checkpoint_disk_bytes: int
    """Free space in the folder of the checkpoints."""
    cluster: str | None
    """Address of the Ray cluster that the run joins; None if it starts its own Ray."""

    @classmethod
    def read(cls, recipe: DictConfig, modules: Sequence[str]) -> "Machine":
        """Read the facts; each of the modules is imported on trial, in a separate process.

        The recipe names the folder of the checkpoints and the Ray cluster.

        Raises:
            RunError: Ray cannot be imported.
        """
        asked = {"ray": _python(_RAY)}
        missing = {name: "it is not installed" for name in modules if not _is_found(name)}
        asked |= {name: _python(f"import {name}") for name in modules if name not in missing}
        answers = ask(asked, PATIENCE_S)
        failures = {name: answers[name].failure for name in modules if name in answers}
        counted = answers.pop("ray")
        if counted.failure:
            raise RunError(
                f"Ray cannot be imported ({counted.failure}); make a new environment: "
                "bash install.sh"
            )
        cpus, memory = json.loads(counted.printed.splitlines()[-1])
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        compiler = os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang")
        return cls(
            gpus=gpus.read(),
            gpu_files=len(list(Path("/dev").glob("nvidia[0-9]*"))),
            torch=installed_version("torch"),
            torch_cuda=_torch_cuda(),
            import_failures=missing | failures,
            cpus=cpus,
            memory_bytes=memory,
            shared_memory_bytes=_free_bytes(Path("/dev/shm")),
            open_files=sys.maxsize if hard == resource.RLIM_INFINITY else hard,
            compiler=compiler,
            python_headers=Path(sysconfig.get_path("include"), "Python.h").is_file(),
            disk_bytes=_free_bytes(folders.ROOT),
            checkpoint_disk_bytes=_free_bytes(checkpoint_folder(recipe)),
            cluster=ray_address(recipe),
        )


def installed_version(package: str) -> str | None:
    """Version of an installed package; None if it is not installed."""
    installed = importlib.metadata.distributions(name=package)
    return next((distribution.version for distribution in installed), None)


def _python(code: str) -> Program:
    return Program([sys.executable, "-W", "ignore", "-c", code], folders.ROOT)


def _is_found(module: str) -> bool:
    """Whether the package of a module is installed; the package is not imported."""
    return importlib.util.find_spec(module.split(".")[0]) is not None


def _torch_cuda() -> str | None:
    """CUDA version of torch, from its source, because importing torch takes seconds."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    file = Path(spec.origin).with_name("version.py")
    match = re.search(r"^cuda\b.*= '([\d.]+)'", file.read_text("utf-8"), re.MULTILINE)
    return match[1] if match else None


def _free_bytes(folder: Path) -> int:
    """Free space on the file system of a folder, which may not exist yet."""
    existing = next((path for path in (folder, *folder.parents) if path.is_dir()), None)
    return 0 if existing is None else shutil.disk_usage(existing).free
