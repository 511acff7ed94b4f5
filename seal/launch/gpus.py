"""The GPUs of this machine, by NVML (nvidia-ml-py, one of the CUDA packages).

In: the driver and CUDA_VISIBLE_DEVICES. Out: `Gpus`, with the reason if NVML does not work. NVML
answers within milliseconds and uses no GPU memory; torch would need seconds and memory.
"""

import importlib
import os
from dataclasses import dataclass
from typing import Any


class NvmlError(Exception):
    """NVML does not work; the message says why."""


@dataclass(frozen=True)
class Gpu:
    """The state of one GPU."""

    name: str
    total_bytes: int
    free_bytes: int
    """Memory that no process uses."""
    capability: tuple[int, int]
    """CUDA's compute capability, e.g. (9, 0)."""


@dataclass(frozen=True)
class Gpus:
    """What NVML reports about a machine."""

    seen: tuple[Gpu, ...] = ()
    """The GPUs that CUDA_VISIBLE_DEVICES allows."""
    driver: str = ""
    """The driver's version, e.g. 580.65.06."""
    cuda: tuple[int, int] = (0, 0)
    """The newest CUDA that the driver runs, e.g. (13, 0)."""
    unknown: str = ""
    """Why NVML does not work; empty if it works."""


def visible() -> tuple[Any, list[Any]]:
    """The NVML module, and a handle of each GPU that CUDA_VISIBLE_DEVICES allows.

    Raises:
        NvmlError: nvidia-ml-py is not installed, there is no driver, or NVML fails.
    """
    try:
        nvml = importlib.import_module("pynvml")
        nvml.nvmlInit()
        wished = os.environ.get("CUDA_VISIBLE_DEVICES")
        names = range(nvml.nvmlDeviceGetCount()) if wished is None else wished.split(",")
        stripped = [str(name).strip() for name in names]
        return nvml, [_handle(nvml, name) for name in stripped if name not in ("", "-1")]
    except ImportError as error:
        raise NvmlError(
            "nvidia-ml-py is not installed; it comes with the CUDA packages: bash install.sh --cuda"
        ) from error
    except Exception as error:  # noqa: BLE001 - NVML's errors derive from Exception alone
        raise NvmlError(f"NVML says: {error}") from error


def text(name: str | bytes) -> str:
    """A string of NVML, which is bytes in some versions of the package."""
    return name.decode() if isinstance(name, bytes) else name


def read() -> Gpus:
    """Read the state of all GPUs."""
    try:
        nvml, handles = visible()
    except NvmlError as error:
        return Gpus(unknown=str(error))
    try:
        newest = nvml.nvmlSystemGetCudaDriverVersion()
        driver = text(nvml.nvmlSystemGetDriverVersion())
        seen = tuple(_gpu(nvml, handle) for handle in handles)
    except Exception as error:  # noqa: BLE001 - as above
        return Gpus(unknown=f"NVML says: {error}")
    # NVML writes 13.0 as 13000.
    return Gpus(seen, driver, (newest // 1000, newest % 1000 // 10))


def _gpu(nvml: Any, handle: Any) -> Gpu:
    memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    capability = nvml.nvmlDeviceGetCudaComputeCapability(handle)
    name = text(nvml.nvmlDeviceGetName(handle))
    return Gpu(name, int(memory.total), int(memory.free), (capability[0], capability[1]))


def _handle(nvml: Any, name: str) -> Any:
    if name.isdigit():
        return nvml.nvmlDeviceGetHandleByIndex(int(name))
    return nvml.nvmlDeviceGetHandleByUUID(name)
