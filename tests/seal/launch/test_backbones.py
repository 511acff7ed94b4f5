"""The groups of exp/backbone/ and exp/tuning/: what each sets, and who wins over whom."""

from typing import Any

import pytest
from omegaconf import DictConfig, OmegaConf

from seal.formats import FORMATS
from seal.launch.recipe import EXP, RecipeError, load_recipe

QWEN_STOPS = ["<|im_end|>", "<|endoftext|>"]
LLAMA_STOPS = ["<|eot_id|>", "<|eom_id|>", "<|end_of_text|>"]
GROUPS = {
    "qwen2.5-3b": ("Qwen/Qwen2.5-3B-Instruct", "hermes", QWEN_STOPS, {}),
    "qwen2.5-7b": ("Qwen/Qwen2.5-7B-Instruct", "hermes", QWEN_STOPS, {}),
    "qwen3.5-4b": ("Qwen/Qwen3.5-4B", "qwen3_coder", QWEN_STOPS, {"enable_thinking": False}),
    "smollm2-135m": ("models/smollm2-135m", "pythonic", ["<|im_end|>"], {}),
    "toolace-2-8b": ("Team-ACE/ToolACE-2-Llama-3.1-8B", "pythonic", LLAMA_STOPS, {}),
}
OWN_TEMPLATE = {"smollm2-135m", "toolace-2-8b"}


def chosen(recipe: Any) -> tuple[str, str, list[str], dict[str, Any]]:
    settings = recipe.env_service
    kwargs = OmegaConf.to_container(recipe.data.apply_chat_template_kwargs)
    assert isinstance(kwargs, dict)
    path = recipe.actor_rollout_ref.model.path
    return (
        path,
        settings.tool_format,
        list(settings.stop_tokens),
        {str(k): v for k, v in kwargs.items()},
    )


def test_every_group_is_known_here() -> None:
    assert {path.stem for path in (EXP / "backbone").glob("*.yaml")} == GROUPS.keys()


@pytest.mark.parametrize("name", GROUPS)
def test_a_backbone_is_one_line_of_any_recipe(name: str) -> None:
    for recipe in ("SEAL", "ablation_no_closed_loop"):
        loaded = load_recipe(EXP / f"{recipe}.yaml", [f"backbone={name}"])
        assert chosen(loaded) == GROUPS[name]
        assert loaded.env_service.tool_format in FORMATS
        own_template = loaded.actor_rollout_ref.model.custom_chat_template
        assert (own_template is not None) == (name in OWN_TEMPLATE)
        # Nothing that the group sets is lost in the recipe.
        written = OmegaConf.load(EXP / f"backbone/{name}.yaml")
        assert isinstance(written, DictConfig)
        written.pop("defaults", None)
        arrived = OmegaConf.merge(loaded, written) == loaded
        assert arrived


def test_defaults_and_who_wins() -> None:
    assert chosen(load_recipe(EXP / "SEAL.yaml", [])) == GROUPS["qwen2.5-7b"]
    assert chosen(load_recipe(EXP / "published.yaml", [])) == GROUPS["qwen3.5-4b"]
    published = load_recipe(EXP / "published.yaml", ["backbone=qwen2.5-3b"])
    assert chosen(published) == GROUPS["qwen2.5-3b"]
    # A local copy of a model: the group's facts with another path.
    local = ["backbone=qwen3.5-4b", "actor_rollout_ref.model.path=/models/q"]
    assert chosen(load_recipe(EXP / "SEAL.yaml", local)) == ("/models/q", *GROUPS["qwen3.5-4b"][1:])
    # SmolLM2's recipe starts from the warmed-up copy of its group's model.
    assert chosen(load_recipe(EXP / "smollm2.yaml", [])) == (
        "models/smollm2-135m-warm",
        *GROUPS["smollm2-135m"][1:],
    )


@pytest.mark.parametrize("name", GROUPS)
def test_the_tiny_policy_wins_over_any_backbone(name: str) -> None:
    loaded = load_recipe(EXP / "quickstart.yaml", [f"backbone={name}"])
    path, tool_format, stops, _ = chosen(loaded)
    assert (path, tool_format, stops) == ("data/tiny_policy", "hermes", ["<|im_end|>"])
    assert loaded.actor_rollout_ref.model.custom_chat_template is None
    assert loaded.launcher.build_policy == "scripts/make_tiny_policy.py --out " + path


def test_lora_is_one_line_of_any_recipe() -> None:
    for recipe, more in (("SEAL", []), ("vanilla", ["+machine=quickstart"])):
        without = load_recipe(EXP / f"{recipe}.yaml", more)
        loaded = load_recipe(EXP / f"{recipe}.yaml", [*more, "+tuning=lora"])
        model = loaded.actor_rollout_ref.model
        assert (model.lora_rank, model.lora_alpha, model.target_modules) == (32, 64, "all-linear")
        assert model.lora.merge is True
        without.actor_rollout_ref.model = model
        without.critic.model, without.reward = loaded.critic.model, loaded.reward
        assert without == loaded


def test_adapters_alone_are_refused_on_the_cpu() -> None:
    alone = ["+machine=cpu", "actor_rollout_ref.model.lora_rank=8"]
    with pytest.raises(RecipeError, match=r"set actor_rollout_ref\.model\.lora\.merge=true"):
        load_recipe(EXP / "SEAL.yaml", alone)
    load_recipe(EXP / "SEAL.yaml", [*alone, "actor_rollout_ref.model.lora.merge=true"])
    load_recipe(EXP / "SEAL.yaml", alone[1:])
