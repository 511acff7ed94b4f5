"""The verl platform "cpu".

VERL_USE_EXTERNAL_MODULES=seal.train.cpu.platform loads it into every process, and VERL_PLATFORM=cpu
selects it. A platform gives verl a device module like `torch.cuda`, the collective backend, and the
Ray resource that stands for one accelerator.
"""
# ruff: noqa: D102 - the methods are verl's and documented there

import ctypes
import resource
import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from verl.plugin.platform import PlatformBase, PlatformRegistry


def _peak_resident_bytes(*_args: Any) -> int:
    """Peak resident memory of this process, used for every memory figure of verl."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _return_freed_memory() -> None:
    """Give the system what is free: the C library keeps the gigabytes of an update otherwise."""
    ctypes.CDLL(None).malloc_trim(0)


def _nothing(*_args: Any, **_kwargs: Any) -> None:
    """Do nothing: the CPU has no such caches and counters."""


class _CpuDeviceModule(types.ModuleType):
    """`torch.cpu` with the functions of `torch.cuda` that verl calls on any device.

    verl tests `get_torch_device() == torch.cpu`, so it must be equal to that module. Without the
    two rng functions a resumed run fails when it reads the checkpoint.
    """

    max_memory_allocated = max_memory_reserved = staticmethod(_peak_resident_bytes)
    memory_allocated = memory_reserved = staticmethod(_peak_resident_bytes)
    empty_cache = staticmethod(_return_freed_memory)
    ipc_collect = reset_peak_memory_stats = staticmethod(_nothing)
    manual_seed = manual_seed_all = staticmethod(_nothing)

    @staticmethod
    def get_device_name(*_args: Any) -> str:
        return "CPU"

    @staticmethod
    def get_rng_state(*_args: Any) -> torch.Tensor:
        return torch.get_rng_state()

    @staticmethod
    def set_rng_state(state: torch.Tensor, *_args: Any) -> None:
        torch.set_rng_state(state)

    def __getattr__(self, name: str) -> Any:
        return getattr(torch.cpu, name)

    def __eq__(self, other: object) -> bool:
        return other is self or other is torch.cpu

    def __hash__(self) -> int:
        return hash(torch.cpu)


_DEVICE_MODULE = _CpuDeviceModule("seal_cpu_device")


@PlatformRegistry.register(platform="cpu")
class CpuPlatform(PlatformBase):
    """One "accelerator" on each machine: its CPU."""

    @property
    def device_name(self) -> str:
        return "cpu"

    @property
    def vendor_name(self) -> str:
        return "generic"

    @property
    def device_module(self) -> types.ModuleType:
        return _DEVICE_MODULE

    def is_available(self) -> bool:
        return True

    def is_platform_available(self, use_smi_check: bool = False) -> bool:
        return not torch.cuda.is_available()

    def current_device(self) -> torch.device:
        # Not an index: verl passes the value to tensor.to(), where 0 means cuda:0.
        return torch.device("cpu")

    def device_count(self) -> int:
        return 1

    def set_device(self, device_index: int) -> None:
        """There is one device."""

    def synchronize(self, device_index: int | None = None) -> None:
        """CPU operations are synchronous."""

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    def manual_seed_all(self, seed: int) -> None:
        torch.manual_seed(seed)

    def set_allocator_settings(self, settings: str) -> None:
        """The allocator of the C library has no settings for verl."""

    def empty_cache(self) -> None:
        _return_freed_memory()

    def get_device_capability(self, device_index: int = 0) -> tuple[int | None, int | None]:
        return (None, None)

    def communication_backend_name(self) -> str:
        return "gloo"

    def visible_devices_envvar(self) -> str:
        return "SEAL_CPU_VISIBLE_DEVICES"

    @contextmanager
    def nvtx_range(self, msg: str) -> Iterator[None]:
        yield

    def profiler_start(self) -> None:
        """No device profiler."""

    def profiler_stop(self) -> None:
        """No device profiler."""

    def ray_resource_name(self) -> str:
        # The resource exists because the recipe passes ray.init(num_gpus=1).
        return "GPU"

    def ray_noset_envvars(self) -> list[str]:
        return ["RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"]

    def is_ipc_supported(self) -> bool:
        # With False, verl transfers weights through POSIX shared memory.
        return False

    def cudart(self) -> None:
        return None
