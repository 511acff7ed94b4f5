"""Packed sequences against separate ones, with torch's attention, for every backbone's model."""

import inspect
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from small_models import small
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText
from verl.models.transformers.monkey_patch import apply_monkey_patch

from seal.launch.check.model import Model
from seal.launch.recipe import EXP, load_recipe

BACKBONES = sorted(path.stem for path in (EXP / "backbone").glob("*.yaml"))
LEAKS = {"qwen3.5-4b"}


Logits = Callable[[torch.Tensor, list[int]], torch.Tensor]


@pytest.fixture
def logits_of(request: pytest.FixtureRequest) -> Logits:
    """Logits (tokens, vocabulary) of a packed row: its tokens, and the lengths of its sequences."""
    config = small(request.param)
    text = config.get_text_config() is config
    made = AutoModelForCausalLM if text else AutoModelForImageTextToText
    torch.manual_seed(1)
    model = made.from_config(config, attn_implementation="sdpa").float().eval()
    apply_monkey_patch(model, use_remove_padding=True)
    # As verl's engine asks.
    told = "cu_seqlens" in inspect.signature(model.forward).parameters

    def logits(ids: torch.Tensor, lengths: list[int]) -> torch.Tensor:
        positions = torch.cat([torch.arange(length) for length in lengths])[None]
        ends = torch.tensor([0, *lengths]).cumsum(0)
        with torch.no_grad():
            return model(
                input_ids=ids[None],
                attention_mask=None,
                position_ids=positions if text else positions.repeat(4, 1, 1),
                use_cache=False,
                **({"cu_seqlens": ends, "cu_seqlens_cpu": ends} if told else {}),
            ).logits[0]

    return logits


@pytest.mark.parametrize("logits_of", sorted({*BACKBONES} - LEAKS), indirect=True)
def test_packed_sequences_do_not_see_each_other(logits_of: Logits) -> None:
    draw = torch.Generator().manual_seed(2)
    a, b = (torch.randint(3, 250, (size,), generator=draw) for size in (37, 23))
    alone = [logits_of(one, [len(one)]) for one in (a, b)]
    assert min(one.abs().max() for one in alone) > 0.05
    for first, second in ((0, 1), (1, 0)):
        row = [(a, b)[first], (a, b)[second]]
        packed = logits_of(torch.cat(row), [len(one) for one in row])
        parts = packed.split([len(one) for one in row])
        for part, single in zip(parts, (alone[first], alone[second]), strict=True):
            assert torch.allclose(part, single, atol=1e-5)


@pytest.mark.skipif(torch.cuda.is_available(), reason="flash-linear-attention works on a GPU")
@pytest.mark.parametrize("logits_of", sorted(LEAKS), indirect=True)
def test_a_state_leaks_into_the_next_sequence(logits_of: Logits) -> None:
    draw = torch.Generator().manual_seed(2)
    a, b = (torch.randint(3, 250, (size,), generator=draw) for size in (37, 23))
    alone = [logits_of(one, [len(one)]) for one in (a, b)]
    packed = logits_of(torch.cat([a, b]), [37, 23])
    # Forward alone: the first one is as it was, the second one begins in its state.
    assert torch.allclose(packed[:37], alone[0], atol=1e-5)
    assert (packed[37:] - alone[1]).abs().max() > 1e-3
    # One sequence a row, which is what the backbone's group asks for, is safe.
    assert torch.allclose(logits_of(b, [23]), alone[1], atol=1e-6)


@pytest.mark.parametrize("backbone", BACKBONES)
def test_a_model_that_leaks_is_not_packed(backbone: str, tmp_path: Path) -> None:
    """Its group's own settings; what sets packing on is refused before the start."""
    small(backbone).save_pretrained(tmp_path)
    local = f"actor_rollout_ref.model.path={tmp_path}"
    recipe = load_recipe(EXP / "SEAL.yaml", [f"backbone={backbone}", local])
    assert recipe.actor_rollout_ref.model.use_remove_padding is (backbone not in LEAKS)
    assert Model.read(recipe).linear_attention is (backbone in LEAKS)
