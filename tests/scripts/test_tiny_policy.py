"""data/tiny_policy is what scripts/make_tiny_policy.py makes, up to the rounding in training."""

import json
from pathlib import Path
from typing import Any

import make_tiny_policy
import pytest
import torch
from transformers import Qwen3ForCausalLM

from seal import ROOT
from seal.backbone.loading import load_backbone
from seal.launch.recipe import load_recipe
from seal.warm_up.supervised import summed_loss, tokenize
from seal.warm_up.tiny_policy import FIRST, RECIPE, demonstrations, model_config, noted
from seal.warm_up.tiny_tokenizer import train_tokenizer
from seal.warm_up.whole_folder import BUILT

FOLDER = ROOT / "data/tiny_policy"
AGAIN = "make data/tiny_policy again: delete it, then scripts/make_tiny_policy.py --out " + str(
    FOLDER.relative_to(ROOT)
)


@pytest.fixture(scope="module")
def facts() -> dict[str, Any]:
    read: dict[str, Any] = json.loads((FOLDER / BUILT).read_text("utf-8"))
    return read


@pytest.fixture(scope="module")
def demonstrated() -> tuple[list[dict[str, Any]], str]:
    """Those that the tokenizer was made from, which do not depend on how many others there are."""
    return demonstrations(make_tiny_policy.parse([f"--out={FOLDER}", f"--synthetic-tasks={FIRST}"]))


def test_the_recipe_starts_from_it() -> None:
    assert ROOT / load_recipe(RECIPE, []).actor_rollout_ref.model.path == FOLDER


def test_it_learned_from_these_demonstrations(
    facts: dict[str, Any], demonstrated: tuple[list[dict[str, Any]], str]
) -> None:
    assert facts["settings"] == noted(make_tiny_policy.parse([f"--out={FOLDER}"])), AGAIN
    assert facts["demonstrations_sha256"] == demonstrated[1], AGAIN


def test_its_tokenizer_and_shape_are_the_scripts(
    facts: dict[str, Any], demonstrated: tuple[list[dict[str, Any]], str], tmp_path: Path
) -> None:
    tokenizer = train_tokenizer(demonstrated[0])
    tokenizer.save_pretrained(tmp_path)
    untrained = Qwen3ForCausalLM(model_config(tokenizer))
    untrained.save_pretrained(tmp_path)
    for made in tmp_path.iterdir():
        if made.name != "model.safetensors":
            assert made.read_bytes() == (FOLDER / made.name).read_bytes(), f"{made.name}: {AGAIN}"
    assert {one.name for one in FOLDER.iterdir()} == {one.name for one in tmp_path.iterdir()} | {
        BUILT
    }
    shapes = {name: one.shape for name, one in untrained.state_dict().items()}
    model = Qwen3ForCausalLM.from_pretrained(FOLDER)
    assert shapes == {name: one.shape for name, one in model.state_dict().items()}
    assert facts["parameters"] == sum(one.numel() for one in model.parameters())


def test_it_has_learned_them(
    facts: dict[str, Any], demonstrated: tuple[list[dict[str, Any]], str]
) -> None:
    backbone = load_backbone(str(FOLDER), load_recipe(RECIPE, []))
    some = [tokenize(backbone, one) for one in demonstrated[0][::48]]
    pad = int(backbone.tokenizer.pad_token_id)
    with torch.no_grad():
        losses = [
            float(summed) / learnt
            for summed, learnt in (
                summed_loss(model, some, pad)
                for model in (
                    Qwen3ForCausalLM.from_pretrained(FOLDER),
                    Qwen3ForCausalLM(model_config(backbone.tokenizer)),
                )
            )
        ]
    assert losses[0] < 1.5 * facts["last_epoch_loss"]
    assert losses[1] > 5.0
