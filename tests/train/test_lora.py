"""What +tuning=lora relies on in verl: merged adapters reach the rollout engine and leave again."""

import pytest
import torch
import torch.distributed
from omegaconf import DictConfig
from peft import LoraConfig, PeftModel, TaskType, get_peft_model
from small_models import TINY, small
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from transformers import AutoModelForImageTextToText, Qwen3Config, Qwen3ForCausalLM
from verl.utils.fsdp_utils import merged_lora_context, normalize_peft_param_name

from seal.launch.recipe import EXP, load_recipe


def whole(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {
        name: (value.full_tensor() if isinstance(value, DTensor) else value).clone()
        for name, value in state.items()
    }


def adapters(recipe: DictConfig) -> LoraConfig:
    """As verl's engine makes them of a recipe."""
    model = recipe.actor_rollout_ref.model
    return LoraConfig(
        task_type=TaskType.CAUSAL_LM,
        r=model.lora_rank,
        lora_alpha=model.lora_alpha,
        target_modules=model.target_modules,
        exclude_modules=model.exclude_modules,
    )


def adapted(model: Qwen3ForCausalLM) -> tuple[PeftModel, dict[str, torch.Tensor]]:
    """The model with random adapters, as the recipe has them, and what they add to each weight."""
    config = adapters(load_recipe(EXP / "SEAL.yaml", ["+tuning=lora"]))
    peft = get_peft_model(model, config)
    added = {}
    for name, module in peft.named_modules():
        if "default" in getattr(module, "lora_B", ()):
            up, down = module.lora_B["default"].weight, module.lora_A["default"].weight
            torch.nn.init.normal_(up)
            key = name.removeprefix("base_model.model.") + ".weight"
            added[key] = (up @ down).detach() * config.lora_alpha / config.r
    return peft, added


@pytest.mark.usefixtures("one_rank")
@pytest.mark.filterwarnings("ignore")
def test_merged_adapters_are_sent_and_taken_back() -> None:
    model = Qwen3ForCausalLM(Qwen3Config(**TINY, tie_word_embeddings=True))
    base = whole(model.state_dict())
    peft, added = adapted(model)
    assert len(added) == 2 * 7
    mesh = init_device_mesh("cpu", (1,))
    for layer in peft.base_model.model.model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(peft, mesh=mesh)
    before = whole(peft.state_dict())
    with merged_lora_context(peft, backup_adapters=True):
        sent = whole(normalize_peft_param_name(peft.state_dict()))
    assert sent.keys() == base.keys()
    for name, value in sent.items():
        torch.testing.assert_close(value, base[name] + added.get(name, 0.0))
    after = whole(peft.state_dict())
    assert all(torch.equal(after[name], before[name]) for name in before)


@pytest.mark.filterwarnings("ignore")
def test_the_vision_part_gets_no_adapters() -> None:
    recipe = load_recipe(EXP / "SEAL.yaml", ["backbone=qwen3.5-4b", "+tuning=lora"])
    without = load_recipe(
        EXP / "SEAL.yaml",
        ["backbone=qwen3.5-4b", "+tuning=lora", "actor_rollout_ref.model.exclude_modules=null"],
    )

    def places(chosen: DictConfig) -> set[str]:
        model = AutoModelForImageTextToText.from_config(small("qwen3.5-4b"))
        named = get_peft_model(model, adapters(chosen)).named_modules()
        return {name for name, module in named if "default" in getattr(module, "lora_B", ())}

    usual = places(without)
    vision = {name for name in usual if "visual" in name}
    assert vision and places(recipe) == usual - vision
