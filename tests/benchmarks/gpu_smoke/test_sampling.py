import sys
import time
import types

import pytest

from benchmarks.gpu_smoke import sampling
from benchmarks.gpu_smoke.sampling import GpuSampler, NoGpuError


def nvml(count: int) -> types.ModuleType:
    """NVML with `count` GPUs, the first half busy, the second at 50 %."""
    module = types.ModuleType("pynvml")
    calls = {
        "nvmlInit": lambda: None,
        "nvmlDeviceGetCount": lambda: count,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetHandleByUUID": lambda uuid: f"by {uuid}",
        "nvmlDeviceGetName": lambda handle: b"A100",
        "nvmlDeviceGetUtilizationRates": lambda handle: types.SimpleNamespace(
            gpu=100 - 50 * handle
        ),
        "nvmlDeviceGetMemoryInfo": lambda handle: types.SimpleNamespace(used=(1 + handle) * 2**30),
    }
    for name, call in calls.items():
        setattr(module, name, call)
    return module


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setitem(sys.modules, "pynvml", nvml(3))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return monkeypatch


def test_gpus_that_cuda_sees(gpus: pytest.MonkeyPatch) -> None:
    assert sampling.find_gpus(None) == ([0, 1], ["A100", "A100"])  # a batch divides by two
    assert sampling.find_gpus(1) == ([0], ["A100"])
    gpus.setenv("CUDA_VISIBLE_DEVICES", "2,GPU-77")
    assert sampling.find_gpus(2) == ([2, "by GPU-77"], ["A100", "A100"])


@pytest.mark.parametrize("visible", ["", "-1"])
def test_gpus_hidden_from_cuda_are_none(gpus: pytest.MonkeyPatch, visible: str) -> None:
    gpus.setenv("CUDA_VISIBLE_DEVICES", visible)
    with pytest.raises(NoGpuError, match="leaves 0"):
        sampling.find_gpus(None)


def test_more_gpus_than_there_are(gpus: pytest.MonkeyPatch) -> None:
    with pytest.raises(NoGpuError, match="leaves 3, 4 asked for"):
        sampling.find_gpus(4)


def test_the_sampler_means_use_and_takes_the_fullest_memory(gpus: pytest.MonkeyPatch) -> None:
    with GpuSampler([0, 1]) as sampler:
        deadline = time.monotonic() + 10
        while len(sampler.samples) < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
    assert (sampler.samples[0].busy, sampler.samples[0].memory_gib) == (0.75, 2.0)
    assert sampler.samples[0].time < sampler.samples[1].time
