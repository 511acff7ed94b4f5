"""NVML made up: this project's tests need no GPU."""

import sys
import types

import pytest

from seal.launch import gpus

GIB = 1024**3


class NVMLError(Exception):
    """As in pynvml, where it derives from Exception alone."""


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    module = types.ModuleType("pynvml")
    calls = {
        "nvmlInit": lambda: None,
        "nvmlDeviceGetCount": lambda: 2,
        "nvmlDeviceGetHandleByIndex": lambda index: f"number {index}",
        "nvmlDeviceGetHandleByUUID": lambda uuid: uuid,
        "nvmlDeviceGetName": lambda handle: f"H100 {handle}".encode(),
        "nvmlDeviceGetMemoryInfo": lambda _: types.SimpleNamespace(total=80 * GIB, free=79 * GIB),
        "nvmlDeviceGetCudaComputeCapability": lambda _: (9, 0),
        "nvmlSystemGetDriverVersion": lambda: b"580.65.06",
        "nvmlSystemGetCudaDriverVersion": lambda: 12080,
    }
    for name, call in calls.items():
        setattr(module, name, call)
    monkeypatch.setitem(sys.modules, "pynvml", module)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return module


def test_what_nvml_says(nvml: types.ModuleType) -> None:
    read = gpus.read()
    assert (read.driver, read.cuda, read.unknown) == ("580.65.06", (12, 8), "")
    assert read.seen[1] == gpus.Gpu("H100 number 1", 80 * GIB, 79 * GIB, (9, 0))


@pytest.mark.parametrize(
    ("visible", "names"),
    [("1", ["H100 number 1"]), ("GPU-7, 0", ["H100 GPU-7", "H100 number 0"]), ("", []), ("-1", [])],
)
def test_gpus_that_cuda_sees(
    nvml: types.ModuleType, monkeypatch: pytest.MonkeyPatch, visible: str, names: list[str]
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert [gpu.name for gpu in gpus.read().seen] == names


def test_why_nvml_cannot_be_asked(nvml: types.ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise NVMLError("Driver Not Loaded")

    monkeypatch.setattr(nvml, "nvmlSystemGetDriverVersion", fail)
    assert gpus.read() == gpus.Gpus(unknown="NVML says: Driver Not Loaded")
    monkeypatch.setattr(nvml, "nvmlInit", fail)
    assert gpus.read().unknown == "NVML says: Driver Not Loaded"
    monkeypatch.setitem(sys.modules, "pynvml", None)  # an import of it fails
    assert "install.sh --cuda" in gpus.read().unknown
