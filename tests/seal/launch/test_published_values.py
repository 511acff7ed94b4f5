"""exp/SEAL.yaml against the published table: arXiv 2605.24426, section 4.1, Table 4, appendix D."""

import re
from typing import Any

import pyarrow.parquet
import pytest
from omegaconf import OmegaConf

from seal.launch.recipe import EXP, load_recipe

ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"

PAPER: dict[str, Any] = {
    # section 4.1: the algorithm and its loss
    "algorithm.adv_estimator": "grpo",
    "algorithm.use_kl_in_reward": False,
    f"{ACTOR}.clip_ratio": 0.2,
    f"{ACTOR}.clip_ratio_low": 0.2,
    f"{ACTOR}.clip_ratio_high": 0.2,
    f"{ACTOR}.use_kl_loss": True,
    f"{ACTOR}.kl_loss_coef": 0.001,
    f"{ACTOR}.kl_loss_type": "low_var_kl",
    f"{ACTOR}.entropy_coeff": 0,
    f"{ACTOR}.loss_agg_mode": "token-mean",
    # Table 4: sizes
    f"{ACTOR}.optim.lr": 1e-6,
    "data.train_batch_size": 32,
    f"{ACTOR}.ppo_mini_batch_size": 8,
    f"{ACTOR}.ppo_micro_batch_size_per_gpu": 1,
    f"{ROLLOUT}.n": 8,
    "data.max_prompt_length": 8192,
    "data.max_response_length": 4096,
    f"{ROLLOUT}.max_model_len": 16384,
    "trainer.total_epochs": 6,
    # Table 4: rollouts and machine
    f"{ROLLOUT}.name": "vllm",
    f"{ROLLOUT}.mode": "async",
    f"{ROLLOUT}.temperature": 1.0,
    f"{ROLLOUT}.val_kwargs.temperature": 0.0,
    f"{ROLLOUT}.tensor_model_parallel_size": 1,
    f"{ROLLOUT}.gpu_memory_utilization": 0.6,
    f"{ROLLOUT}.agent.num_workers": 32,
    "trainer.n_gpus_per_node": 4,
    "trainer.nnodes": 1,
    # section 4.1: validation
    "trainer.val_before_train": True,
    "trainer.test_freq": 10,
    "seal.checkpoints.keep_best": True,
    "seal.checkpoints.keep_last": 0,
    "actor_rollout_ref.model.path": "Qwen/Qwen2.5-7B-Instruct",
    # section 3.4: weights; utilities as published with the paper
    "seal.weights.w_min": 0.5,
    "seal.weights.w_max": 2.0,
    "seal.weights.utilities.spurious_tool_call": 2.0,
    "seal.weights.utilities.correct_abstention": 1.8,
    "seal.weights.utilities.missing_tool_call": 1.5,
    "seal.weights.utilities.state_mismatch": 1.0,
    "seal.weights.utilities.response_mismatch": 0.9,
    "seal.weights.utilities.instance_mismatch": 0.6,
    "seal.weights.utilities.pass": 1.0,
    # appendix D: which guidelines are shown
    "seal.interface.min_prevalence": 0.10,
    "seal.interface.max_mean_reward": 0.6,
    "seal.interface.min_observations": 8,
    "seal.interface.max_guidelines": 3,
    "seal.interface.prevalence_over": "failures",
    # The same thresholds for what is on and for what is off.
    "seal.interface.hysteresis": 0.0,
    # section 3.3: marks come with the failures that they are for
    "seal.interface.static_schema_cues": False,
    # section 3.5: the whole loop; every turn counts in the profile of its round
    "seal.cascade_share": 1.0,
    "seal.profile.window_rounds": 1,
    "seal.profile.window": "sliding",
    "seal.interface.schema_cues": True,
    "seal.interface.recovery_feedback": True,
    "seal.interface.guidelines": True,
    "seal.profile.frozen_after": None,
    "seal.weights.scope": "trajectory",
    "seal.weights.applies_to": "all",
    # Abstract: failed rollouts are diagnosed.
    "seal.weights.failures_in_passes": "as_pass",
    "seal.weights.normalize": "none",
    "seal.weights.assignment": "own",
    "seal.interface.choice": "failures",
    "seal.exposure.share": 1.0,
    "seal.exposure.gone_at": None,
    "seal.weights.dynamic.enabled": False,
    "seal.reward.mode": "binary",
}

ON_PURPOSE: dict[str, Any] = {
    # The published actor's token mean is that of a micro-batch of one dialogue.
    f"{ACTOR}.loss_agg_mode": "seq-mean-token-mean",
    # bfcl-eval's own rule, so that training plays the game that is evaluated.
    "env_service.unreadable_message": "ends_turn",
    # verl's response is the whole dialogue behind the prompt, not one answer of it, which is
    # bounded by env_service.max_tokens_per_step.
    "data.max_response_length": 7680,
    # With the interface on, 62 of the 800 tasks do not fit the published 8192.
    "data.max_prompt_length": 8704,
    # An interrupted run goes on from the last checkpoint, so that one stays beside the best.
    "seal.checkpoints.keep_last": 1,
}

OURS = {
    # Of draws, which the paper's method does not have.
    "seal.interface.seed",
    # The paper has these labels, but neither it nor its configuration file has their utilities.
    "seal.weights.utilities.invalid_tool_call",
    "seal.weights.utilities.argument_mismatch",
    "seal.weights.utilities.recovery_failure",
}

PUBLISHED_FILE: dict[str, Any] = {
    # What the configuration published with the paper has instead: exp/published.yaml.
    f"{ROLLOUT}.gpu_memory_utilization": 0.4,
    "actor_rollout_ref.model.path": "Qwen/Qwen3.5-4B",
    "seal.weights.dynamic.enabled": True,
    "seal.weights.dynamic.beta": 0.25,
    "seal.weights.dynamic.alpha": 1.0,
    "seal.weights.dynamic.n_conf": 32,
    "seal.profile.window_rounds": 12,
    "seal.profile.window": "tumbling",
    f"{ACTOR}.clip_ratio_c": 10.0,
    "seal.reward.mode": "capped",
    "seal.reward.cap": 0.0,
    "seal.reward.abstention_weight": 0.5,
    "seal.interface.static_schema_cues": True,
    "seal.weights.failures_in_passes": "as_failure",
    "env_service.unreadable_message": "retry",
    "seal.interface.schema_cues": False,
    "seal.interface.recovery_feedback": False,
    "seal.interface.guidelines": False,
}


def differences(recipe: str, published: dict[str, Any]) -> dict[str, Any]:
    loaded = load_recipe(EXP / f"{recipe}.yaml", [])
    ours = {key: OmegaConf.select(loaded, key, throw_on_missing=True) for key in published}
    return {key: value for key, value in ours.items() if value != published[key]}


def leaves(node: Any, prefix: str) -> set[str]:
    if not OmegaConf.is_dict(node):
        return {prefix}
    return {leaf for key in node for leaf in leaves(node[key], f"{prefix}.{key}")}


def test_the_recipe_holds_the_papers_values_but_for_what_it_says() -> None:
    # Where the paper has no value, its configuration file may have one.
    assert differences("SEAL", {**PUBLISHED_FILE, **PAPER}) == ON_PURPOSE


def test_the_recipe_says_in_its_head_what_is_other_than_in_the_paper() -> None:
    head = (EXP / "SEAL.yaml").read_text("utf-8").partition("defaults:")[0]
    assert set(re.findall(r"^#   ([\w.]+): ", head, re.MULTILINE)) == ON_PURPOSE.keys()


def test_every_key_of_the_method_is_compared() -> None:
    method = load_recipe(EXP / "SEAL.yaml", []).seal
    sections = ("cascade_share", "weights", "interface", "exposure", "profile", "reward")
    ours = {leaf for name in sections for leaf in leaves(method[name], f"seal.{name}")}
    assert ours - {*PAPER, *PUBLISHED_FILE} == OURS


def test_published_yaml_holds_the_published_files_values() -> None:
    kept = {key: value for key, value in ON_PURPOSE.items() if key not in PUBLISHED_FILE}
    assert differences("published", {**PAPER, **PUBLISHED_FILE}) == kept


def test_an_answer_has_the_published_length_and_a_dialogue_the_published_room() -> None:
    recipe = load_recipe(EXP / "SEAL.yaml", [])
    assert recipe.env_service.max_tokens_per_step == PAPER["data.max_response_length"]
    lengths = recipe.data.max_prompt_length + recipe.data.max_response_length
    assert lengths == recipe.actor_rollout_ref.rollout.max_model_len


@pytest.mark.parametrize("key", ["train_files", "val_files"])
def test_an_epoch_and_a_validation_have_400_tasks(key: str) -> None:
    recipe = load_recipe(EXP / "SEAL.yaml", [])
    table = pyarrow.parquet.read_metadata(EXP.parent / recipe.data[key])
    assert table.num_rows == 400
