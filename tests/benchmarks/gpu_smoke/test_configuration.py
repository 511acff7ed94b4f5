from pathlib import Path

import pytest
from omegaconf import OmegaConf

from benchmarks.gpu_smoke import configuration
from benchmarks.gpu_smoke.configuration import Case, baseline_config, case
from seal.launch.recipe import load_recipe


def measured(size: str, *overrides: str, gpus: int = 2) -> Case:
    return case(size, list(range(gpus)), 3, overrides, Path("out"))


def test_what_runs_is_the_recipe_with_small_batches() -> None:
    recipe = measured("7b", "seed=5").recipe()
    published = load_recipe(configuration.RECIPE, ["seed=5"])
    assert recipe.actor_rollout_ref.model.path == "experiments/gpu_smoke_models/7b"
    assert (recipe.trainer.n_gpus_per_node, recipe.trainer.total_training_steps) == (2, 3)
    assert recipe.seed == recipe.data.seed == 5
    assert recipe.seal.weights == published.seal.weights
    assert recipe.seal.interface == published.seal.interface
    assert recipe.actor_rollout_ref.actor.optim == published.actor_rollout_ref.actor.optim
    ours, theirs = (
        r.data.train_batch_size / r.actor_rollout_ref.actor.ppo_mini_batch_size
        for r in (recipe, published)
    )
    assert ours == theirs  # updates a step
    assert recipe.actor_rollout_ref.model.use_remove_padding is True
    # What a backbone group sets for a real model does not reach the one with random weights.
    assert recipe.actor_rollout_ref.model.custom_chat_template is None
    assert recipe.env_service.stop_tokens == []
    # The longest tool docs are 7,600 tokens, the longest dialogue has 8 turns.
    assert recipe.data.max_prompt_length == 8704
    assert recipe.data.max_response_length >= 8 * recipe.env_service.max_tokens_per_step * 1.5


def test_the_real_model_keeps_its_template_and_fits_its_context() -> None:
    recipe = measured("smollm2").recipe()
    group = load_recipe(configuration.RECIPE, ["backbone=smollm2-135m"])
    model = recipe.actor_rollout_ref.model
    assert model.custom_chat_template == group.actor_rollout_ref.model.custom_chat_template
    assert recipe.env_service.stop_tokens == ["<|im_end|>"]
    assert recipe.actor_rollout_ref.rollout.ignore_eos is False
    assert recipe.actor_rollout_ref.rollout.max_model_len <= 8192


@pytest.mark.parametrize(
    ("size", "gpus"), [("0.5b", 1), ("smollm2", 2), ("tiny", 0), ("smollm2", 0)]
)
def test_verls_loop_differs_by_its_own_parts_alone(tmp_path: Path, size: str, gpus: int) -> None:
    shared = measured(size, gpus=gpus)
    recipe = shared.recipe()
    config = baseline_config(shared, tmp_path, 77)
    assert config.trainer.v1.trainer_mode == "sync"
    assert config.trainer.v1.sampler.custom_sampler.path is None
    assert config.trainer.v1.sampler.sync_refill_failed_groups is False
    assert config.actor_rollout_ref.rollout.agent.default_agent_loop == "single_turn_agent"
    assert config.data.max_response_length == config.actor_rollout_ref.rollout.response_length == 77
    assert "seal" not in config and "env_service" not in config
    for section in ("actor", "model", "ref"):
        assert config.actor_rollout_ref[section] == recipe.actor_rollout_ref[section]
    assert config.algorithm == recipe.algorithm
    assert config.ray_kwargs == recipe.ray_kwargs
    rollout, own = config.actor_rollout_ref.rollout, recipe.actor_rollout_ref.rollout
    changed = {key for key in own if rollout[key] != own[key]}
    assert changed == {"agent", "response_length", "trace"}  # trace holds the run's name
    # What verl reads is whole: nothing is left to be worked out against the recipe.
    assert "${" not in OmegaConf.to_yaml(config)
