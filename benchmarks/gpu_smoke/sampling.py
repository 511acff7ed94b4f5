"""The GPUs of this machine, and samples of them while a loop runs, through NVML.

In: how many GPUs are wanted. Out: their handles; how busy and how full they were, moment by moment.
"""

import importlib
import os
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from benchmarks.gpu_smoke.kept import SmokeError
from seal.launch import gpus

SAMPLE_S = 0.1


class NoGpuError(SmokeError):
    """This machine has no GPU that can be used."""


@dataclass(frozen=True)
class GpuSample:
    """Every used GPU at one moment, through NVML."""

    time: float
    """Seconds since the epoch."""
    busy: float
    """Share of NVML's last sampling period (1/6 to 1 s) in which a kernel ran; mean over GPUs."""
    memory_gib: float
    """Memory in use on the fullest GPU, by all processes."""


class GpuSampler:
    """Samples GPUs in a thread while its block runs.

    Args:
        handles: NVML handles of the GPUs; if there are none, nothing is sampled.
    """

    def __init__(self, handles: Sequence[Any]) -> None:
        self.samples: list[GpuSample] = []
        self._handles = handles
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> "GpuSampler":
        if self._handles:
            self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._over.set()
        if self._handles:
            self._thread.join()

    def _sample(self) -> None:
        nvml = importlib.import_module("pynvml")
        while not self._over.wait(SAMPLE_S):
            busy = fmean(nvml.nvmlDeviceGetUtilizationRates(h).gpu for h in self._handles) / 100
            used = max(nvml.nvmlDeviceGetMemoryInfo(h).used for h in self._handles) / 1024**3
            self.samples.append(GpuSample(time.time(), busy, used))


def find_gpus(wanted: int | None) -> tuple[list[Any], list[str]]:
    """NVML handles and names of the first GPUs that CUDA_VISIBLE_DEVICES leaves.

    Args:
        wanted: How many; None: all, rounded down to a power of two, by which batches divide.

    Raises:
        NoGpuError: There is none, or fewer than wanted.
    """
    try:
        nvml, handles = gpus.visible()
        names = [gpus.text(nvml.nvmlDeviceGetName(handle)) for handle in handles]
    except gpus.NvmlError as error:
        raise NoGpuError(f"no GPU found ({error}); on a machine without one try: --cpu") from error
    count = wanted or 2 ** (len(handles).bit_length() - 1) if handles else 0
    if not handles or count > len(handles):
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        raise NoGpuError(
            f"no GPU found (CUDA_VISIBLE_DEVICES={visible} leaves {len(handles)}, {wanted or 1} "
            "asked for); on a machine without one try: --cpu"
        )
    return handles[:count], names[:count]


def memory_bytes(handles: Sequence[Any]) -> int:
    """Memory of the smallest of these GPUs, in bytes."""
    nvml = importlib.import_module("pynvml")
    return min(int(nvml.nvmlDeviceGetMemoryInfo(handle).total) for handle in handles)
