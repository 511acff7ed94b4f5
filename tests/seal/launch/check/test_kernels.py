from dataclasses import replace

import pytest
from check_material import MACHINE, QWEN_7B, said
from omegaconf import DictConfig
from project_folder import ROOT

from seal.launch.check import kernels, software
from seal.launch.check.finding import Level
from seal.launch.memory import settings_of
from seal.launch.recipe import load_recipe
from seal.launch.shapes import CONFIGS

QWEN_3B = replace(QWEN_7B, config=CONFIGS["Qwen/Qwen2.5-3B-Instruct"])


def test_fused_kernels_need_a_tied_head(seal: DictConfig) -> None:
    assert list(kernels.fused_kernels(seal, MACHINE, QWEN_7B)) == []
    seal.actor_rollout_ref.model.use_fused_kernels = True
    said(kernels.fused_kernels(seal, MACHINE, QWEN_3B), Level.OK)
    text = said(kernels.fused_kernels(seal, MACHINE, QWEN_7B), Level.ERROR)
    assert "models/qwen2.5-7b" in text
    (override,) = (word.strip(";:,") for word in text.split() if "=" in word)
    without = load_recipe(ROOT / "exp/SEAL.yaml", [override])
    assert list(kernels.fused_kernels(without, MACHINE, QWEN_7B)) == []
    seal.actor_rollout_ref.actor.strategy = "fsdp"
    said(kernels.fused_kernels(seal, MACHINE, QWEN_7B), Level.OK)


@pytest.mark.parametrize("kind", [software.FLASH, "sdpa"])
def test_dynamic_batches_want_flash_attention(kind: str) -> None:
    attention = f"actor_rollout_ref.model.override_config.attn_implementation={kind}"
    recipe = load_recipe(ROOT / "exp/SEAL.yaml", ["+tuning=dynamic_batches", attention])
    found = [*kernels.dynamic_batches(recipe, MACHINE, QWEN_7B)]
    if kind == software.FLASH:
        assert found == []
        # The other passes follow the actor's setting, and the plan counts with its tokens.
        policy = recipe.actor_rollout_ref
        assert policy.ref.log_prob_use_dynamic_bsz and policy.rollout.log_prob_use_dynamic_bsz
        assert policy.ref.log_prob_max_token_len_per_gpu == 32768
        assert settings_of(recipe).tokens > 32768
    else:
        assert "use_dynamic_bsz=false" in said(found, Level.WARNING)
        recipe.actor_rollout_ref.actor.use_dynamic_bsz = False
        assert list(kernels.dynamic_batches(recipe, MACHINE, QWEN_7B)) == []
