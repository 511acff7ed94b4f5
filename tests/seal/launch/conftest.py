"""What the tests of the launcher share: a recipe in a project folder of its own."""

import copy
from collections.abc import Iterator
from pathlib import Path

import pytest
from omegaconf import DictConfig
from project_folder import REAL_TASKS, ROOT

from seal.launch import folders
from seal.launch.processes import Family
from seal.launch.recipe import load_recipe


@pytest.fixture(scope="session")
def quickstart() -> DictConfig:
    """Composed once: that takes seconds."""
    return load_recipe(ROOT / "exp/quickstart.yaml", REAL_TASKS)


@pytest.fixture
def family() -> Iterator[Family]:
    """Processes of a test; none of them is left at its end."""
    made = Family()
    yield made
    assert made.end() == []


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quickstart: DictConfig) -> DictConfig:
    """The quickstart, in a project folder of its own and without settings of the user's."""
    monkeypatch.setattr(folders, "ROOT", tmp_path)
    for name in ("BFCL_SCRIPT", "BFCL_PATH", "RAY_ADDRESS", "SEAL_ENV_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    return copy.deepcopy(quickstart)
