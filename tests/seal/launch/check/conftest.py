"""Real recipes for the tests of the checks, each test's own copy."""

import copy

import pytest
from omegaconf import DictConfig
from project_folder import ROOT

from seal.launch.recipe import load_recipe


@pytest.fixture(scope="session")
def composed() -> DictConfig:
    """exp/SEAL.yaml, composed once: that takes seconds."""
    return load_recipe(ROOT / "exp/SEAL.yaml", [])


@pytest.fixture
def seal(composed: DictConfig) -> DictConfig:
    return copy.deepcopy(composed)


@pytest.fixture
def quick(quickstart: DictConfig) -> DictConfig:
    """exp/quickstart.yaml in the real project's folder."""
    return copy.deepcopy(quickstart)
