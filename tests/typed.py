"""A recipe's own sections for tests: those of exp/SEAL.yaml, with some keys changed."""

import copy
import functools
from collections.abc import Mapping
from typing import Any

from omegaconf import DictConfig, OmegaConf

from seal.launch.recipe import EXP, load_recipe
from seal.settings.sections import SECTIONS, Settings, read_settings


@functools.cache
def _seal() -> DictConfig:
    """Composed once: that takes seconds."""
    return OmegaConf.masked_copy(load_recipe(EXP / "SEAL.yaml", []), list(SECTIONS))


def sections_with(changes: Mapping[str, Any]) -> DictConfig:
    """The sections; keys are dotted, and a section is replaced as a whole."""
    made = copy.deepcopy(_seal())
    for key, value in changes.items():
        OmegaConf.update(made, key, value, merge=False, force_add=True)
    return made


def settings_with(changes: Mapping[str, Any]) -> Settings:
    """The same, typed."""
    return read_settings(sections_with(changes))
