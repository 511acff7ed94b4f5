from dataclasses import replace

import pytest
from check_material import MACHINE, QWEN_7B, machine, said
from omegaconf import DictConfig, OmegaConf
from project_folder import ROOT

from seal.launch.check import software
from seal.launch.check.finding import Level
from seal.launch.check.model import Model
from seal.launch.recipe import load_recipe

QWEN_35 = replace(
    QWEN_7B,
    path="models/small",
    config={"text_config": {"layer_types": ["linear_attention", "full_attention"]}},
)
BROKEN = machine(
    import_failures=dict.fromkeys(
        (software.FLASH_ATTENTION, software.LINEAR_ATTENTION), "ImportError: undefined symbol"
    )
)


@pytest.fixture(autouse=True)
def flash(seal: DictConfig) -> None:
    """As exp/SEAL.yaml is where flash-attn is installed."""
    seal.actor_rollout_ref.model.override_config.attn_implementation = software.FLASH


def test_a_flash_attention_that_does_not_import(seal: DictConfig) -> None:
    assert software.needed_modules(seal, QWEN_7B) == (software.FLASH_ATTENTION,)
    said(software.flash_attention(seal, MACHINE, QWEN_7B), Level.OK)
    text = said(software.flash_attention(seal, BROKEN, QWEN_7B), Level.ERROR)
    assert "undefined symbol" in text and "docs/running.md" in text


def test_the_overrides_that_are_named_do_without(seal: DictConfig) -> None:
    text = said(software.flash_attention(seal, BROKEN, QWEN_7B), Level.ERROR)
    overrides = text.split("override: ")[1].split()
    without = load_recipe(ROOT / "exp/SEAL.yaml", overrides)
    assert software.needed_modules(without, QWEN_7B) == ()
    assert "not used, sdpa" in said(
        software.flash_attention(without, BROKEN, QWEN_7B), Level.WARNING
    )


def test_the_quickstart_needs_neither(quick: DictConfig) -> None:
    assert software.needed_modules(quick, QWEN_35) == ()
    # A recipe for the processor that asks for it needs it all the same.
    quick.actor_rollout_ref.model.override_config = OmegaConf.create({})
    said(software.flash_attention(quick, BROKEN, QWEN_7B), Level.ERROR)


def test_linear_attention_without_its_kernels(seal: DictConfig) -> None:
    said(software.linear_attention(seal, MACHINE, QWEN_35), Level.OK)
    assert list(software.linear_attention(seal, BROKEN, QWEN_7B)) == []
    text = said(software.linear_attention(seal, BROKEN, QWEN_35), Level.ERROR)
    assert "undefined symbol" in text and "flash-linear-attention==0.5.2" in text
    seal.actor_rollout_ref.model.use_remove_padding = False
    said(software.linear_attention(seal, BROKEN, QWEN_35), Level.WARNING)


def test_the_backbone_qwen35_is_known_before_it_is_fetched() -> None:
    recipe = load_recipe(ROOT / "exp/SEAL.yaml", ["backbone=qwen3.5-4b"])
    model = Model(str(recipe.actor_rollout_ref.model.path), None)
    said(software.linear_attention(recipe, BROKEN, model), Level.WARNING)
    recipe.actor_rollout_ref.model.use_remove_padding = True
    said(software.linear_attention(recipe, BROKEN, model), Level.ERROR)


def test_nothing_to_compile_kernels_with(seal: DictConfig, quick: DictConfig) -> None:
    said(software.compiler(seal, MACHINE, QWEN_7B), Level.OK)
    bare = machine(compiler=None, python_headers=False)
    text = said(software.compiler(seal, bare, QWEN_7B), Level.ERROR)
    assert "gcc" in text and "Python.h" in text and "apt-get install" in text
    assert "Python.h" not in said(
        software.compiler(seal, machine(compiler=None), QWEN_7B), Level.ERROR
    )
    assert list(software.compiler(quick, bare, QWEN_7B)) == []
