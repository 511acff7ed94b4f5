"""The closed form against torch's own tracker on fake tensors; machine groups that have to fit."""

import itertools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText

from seal.launch import memory
from seal.launch.memory import Plan, Settings, UnplannedError, plan, settings_of
from seal.launch.recipe import EXP, load_recipe
from seal.launch.shapes import CONFIGS, config_of, shape_of
from seal.train import log_probs

ROOT = Path(__file__).resolve().parents[3]
GIB = 2**30
BACKBONES = sorted(path.stem for path in (EXP / "backbone").glob("*.yaml"))
SMALL = {
    "model_type": "qwen2",
    "vocab_size": 32000,
    "hidden_size": 512,
    "intermediate_size": 2048,
    "num_hidden_layers": 3,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "max_position_embeddings": 32768,
}


def settings_for(gpus: int, tokens: int, own: int, **more: Any) -> Settings:
    given = {
        "offload": "none",
        "utilization": 0.6,
        "tensor_parallel": 1,
        "bucket_bytes": 2**31,
        "dialogue": tokens,
        **more,
    }
    return Settings(gpus, tokens, own, **given)


def update_of(made: Plan) -> int:
    return made.update - memory.ASIDE_BYTES


@pytest.mark.parametrize("path", CONFIGS)
def test_parameters_are_those_of_the_model(path: str) -> None:
    described = dict(CONFIGS[path])
    config = AutoConfig.for_model(described.pop("model_type"), **described)
    text = config.get_text_config() is config
    made = AutoModelForCausalLM if text else AutoModelForImageTextToText
    with torch.device("meta"):
        model = made.from_config(config)
    shape = shape_of(CONFIGS[path])
    assert sum(one.numel() for one in model.parameters()) == shape.parameters
    layers = model.get_decoder().layers
    sizes = [sum(one.numel() for one in layer.parameters()) for layer in layers]
    assert (max(sizes), len(sizes)) == (shape.layer_parameters, shape.layers)


def test_the_closed_form_is_within_a_tenth_of_the_simulation(tmp_path: Path) -> None:
    tied = {True: tmp_path / "tied.json", False: tmp_path / "untied.json"}
    for one, file in tied.items():
        file.write_text(json.dumps({**SMALL, "tie_word_embeddings": one}))
    # The largest stage is the head's with many tokens of the policy, a layer's with few.
    tokens, shares, ranks = 2048, (1500, 50), (1, 4)
    command = [sys.executable, str(ROOT / "scripts/memory_simulation.py"), *map(str, tied.values())]
    command += [f"--tokens={tokens}", "--own", *map(str, shares), "--ranks", *map(str, ranks)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    cases = itertools.product(tied, shares, ranks)
    for (one, own, gpus), simulated in zip(cases, found, strict=True):
        shape = shape_of({**SMALL, "tie_word_embeddings": one})
        made = plan(shape, settings_for(gpus, tokens, own))
        assert update_of(made) == pytest.approx(simulated["total"], rel=0.1)
        # Not by the parts that are exact alone.
        state = made.weights + made.gradients + made.optimizer
        assert simulated["sharded_param"] == pytest.approx(made.weights, rel=0.01)
        assert update_of(made) - state == pytest.approx(simulated["total"] - state, rel=0.15)


@settings(max_examples=100, deadline=None)
@given(
    path=st.sampled_from(sorted(CONFIGS)),
    gpus=st.integers(1, 64),
    tokens=st.integers(64, 65536),
    share=st.floats(0, 1),
)
def test_more_of_anything_takes_more_and_what_is_offered_fits(
    path: str, gpus: int, tokens: int, share: float
) -> None:
    shape = shape_of(CONFIGS[path])
    own = round(share * tokens)
    made = plan(shape, settings_for(gpus, tokens, own))
    assert plan(shape, settings_for(2 * gpus, tokens, own)).update < made.update
    assert plan(shape, settings_for(gpus, 2 * tokens, own)).update >= made.update
    assert plan(shape, settings_for(gpus, tokens, tokens)).update >= made.update
    for gib in (40, 80):
        largest = made.largest_utilization(gib * GIB)
        if largest is None:
            continue
        assert made.update <= gib * GIB and made.wake(gib * GIB, largest) <= gib * GIB
        assert largest == 0.9 or made.wake(gib * GIB, largest + 0.011) > gib * GIB
        # Offloading never takes from the rollout engine.
        for offload in ("between", "always"):
            other = plan(shape, settings_for(gpus, tokens, own, offload=offload))
            assert (other.largest_utilization(gib * GIB) or 0.0) >= largest


@pytest.mark.parametrize("backbone", BACKBONES)
@pytest.mark.parametrize("gpus", [1, 2, 4, 8])
def test_a_machine_group_fits_every_backbone(gpus: int, backbone: str) -> None:
    overrides = [f"backbone={backbone}", f"+machine=gpus_{gpus}"]
    recipe = load_recipe(EXP / "SEAL.yaml", overrides)
    assert (recipe.trainer.n_gpus_per_node, recipe.trainer.nnodes) == (gpus, 1)
    assert recipe.actor_rollout_ref.ref.fsdp_config.model_dtype == "bf16"
    # Eight dialogues of eight rollouts are a mini-batch: every GPU gets as many.
    assert recipe.actor_rollout_ref.actor.ppo_mini_batch_size * 8 % gpus == 0
    config = config_of(recipe.actor_rollout_ref.model.path, ROOT)
    assert config is not None
    found = settings_of(recipe)
    assert found.tokens == 16384
    largest = plan(shape_of(config), found).largest_utilization(80 * GIB)
    assert largest is not None and found.utilization <= largest


def test_the_group_changes_memory_alone() -> None:
    published = load_recipe(EXP / "SEAL.yaml", ["trainer.n_gpus_per_node=8"])
    group = load_recipe(EXP / "SEAL.yaml", ["+machine=gpus_8"])
    for section in ("seal", "data", "algorithm", "env_service", "reward"):
        assert group[section] == published[section]
    assert group.actor_rollout_ref.actor == published.actor_rollout_ref.actor


def test_dynamic_batches_may_go_beyond_their_budget() -> None:
    dynamic = ["actor_rollout_ref.actor.use_dynamic_bsz=true"]
    dynamic += ["actor_rollout_ref.actor.ppo_max_token_len_per_gpu=32768"]
    assert settings_of(load_recipe(EXP / "SEAL.yaml", dynamic)).tokens == round(1.3 * 32768)
    with pytest.raises(UnplannedError, match="lora_rank 0"):
        settings_of(load_recipe(EXP / "SEAL.yaml", ["+tuning=lora"]))


def test_a_folder_speaks_for_itself(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/config.json").write_text(json.dumps(SMALL))
    assert config_of("mine", tmp_path) == SMALL
    assert config_of("Qwen/Qwen2.5-7B-Instruct", tmp_path) == CONFIGS["Qwen/Qwen2.5-7B-Instruct"]
    assert config_of("Qwen/Unknown", tmp_path) is None


def test_chunks_are_those_of_the_engine() -> None:
    assert memory.CHUNK_BYTES == log_probs.CHUNK_BYTES
