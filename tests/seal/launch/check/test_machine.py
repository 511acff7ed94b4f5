"""The facts about the machine that the tests run on, whichever that is."""

import importlib.util
import os
from pathlib import Path

import psutil
import pytest
from omegaconf import DictConfig

from seal.launch import folders
from seal.launch.check import machine as machine_facts
from seal.launch.check.machine import Machine


def test_this_machine(quick: DictConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/__init__.py").write_text("raise ImportError('undefined symbol: _ZN3c10')")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    read = Machine.read(quick, ("json", "broken", "nothing_of_this_name.inner"))
    # Found is not enough.
    assert read.import_failures == {
        "json": "",
        "broken": "ImportError: undefined symbol: _ZN3c10",
        "nothing_of_this_name.inner": "it is not installed",
    }
    assert 1 <= read.cpus <= (os.cpu_count() or 1)
    assert 0 < read.memory_bytes <= psutil.virtual_memory().total
    assert read.disk_bytes > 0 and read.checkpoint_disk_bytes > 0
    assert read.shared_memory_bytes > 0 and read.open_files > 0
    assert read.torch is not None
    if read.torch.endswith("+cpu"):
        assert read.torch_cuda is None
    assert read.cluster is None


def test_the_cuda_of_torch_is_read_without_importing_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch/__init__.py").write_text("raise AssertionError")
    (tmp_path / "torch/version.py").write_text("cuda: Optional[str] = '13.0'\nhip = None\n")
    spec = importlib.util.spec_from_file_location("torch", tmp_path / "torch/__init__.py")
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: spec)
    assert machine_facts._torch_cuda() == "13.0"


def test_an_environment_without_ray(quick: DictConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_facts, "_RAY", "import nothing_of_this_name")
    with pytest.raises(folders.RunError, match=r"Ray cannot be imported .*install\.sh"):
        Machine.read(quick, ())
