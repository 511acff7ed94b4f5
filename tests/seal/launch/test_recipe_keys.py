"""Every key of a recipe is one that verl or the project reads; a misspelt one is an error."""

from pathlib import Path

import pytest
from omegaconf import OmegaConf

from seal.launch import known_keys, recipe
from seal.launch.recipe import EXP, RecipeError, load_recipe

# A study (exp/study/) is no recipe: tests/seal/study/test_definition.py.
FILES = sorted(path for path in EXP.rglob("*.yaml") if path.parent.name != "study")
GROUPS = [path for path in FILES if path.parent != EXP]


def plain(path: Path) -> dict[str, object]:
    """A file as it stands, without what it names in its defaults."""
    content = OmegaConf.to_container(OmegaConf.load(path), resolve=False)
    assert isinstance(content, dict)
    content.pop("defaults", None)
    return {str(key): value for key, value in content.items()}


@pytest.fixture(scope="module")
def verl() -> dict[str, object]:
    return recipe._plain(recipe._verl_configuration(), "ppo_trainer")


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(EXP)))
def test_every_key_of_a_shipped_file_exists(path: Path, verl: dict[str, object]) -> None:
    seal = recipe._plain(EXP, "SEAL")
    package = recipe._verl_package()
    assert known_keys.unknown(plain(path), verl, seal, package) == []


def test_nothing_of_ours_hides_a_key_of_verls(verl: dict[str, object]) -> None:
    assert set(known_keys.OWN) & set(known_keys.names(verl)) == set()


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("algorithm: {adv_estimatr: grpo}", "'algorithm.adv_estimatr'.*algorithm.adv_estimator"),
        ("algorithm: {gamma: {x: 1}}", "'algorithm.gamma.x'"),
        ("trainer: {experiment_nam: x}", "'trainer.experiment_nam'.*trainer.experiment_name"),
        ("trainer: {env_failure: {max_shar: 1}}", "'trainer.env_failure.max_shar'"),
        ("seal: {weights: {w_mim: 1}}", "'seal.weights.w_mim'.*seal.weights.w_min"),
        ("env_service: {tool_formt: hermes}", "'env_service.tool_formt'.*env_service.tool_format"),
        ("launcher: {stall_timeout: 9}", "'launcher.stall_timeout'.*launcher.stall_timeout_s"),
        ("actor_rollout_ref: {rollout: {enable_sleep_mod: 1}}", "rollout.enable_sleep_mod"),
        ("agent: {num_workers: 1}", "'agent'.*actor_rollout_ref.rollout.agent"),
        ("weigths: 1", "'weigths'"),
    ],
)
def test_a_misspelt_key_in_a_file_is_refused(tmp_path: Path, text: str, named: str) -> None:
    (tmp_path / "mine.yaml").write_text(f"defaults: [SEAL, _self_]\n{text}\n")
    with pytest.raises(RecipeError, match=rf"mine\.yaml: unknown key .*{named}"):
        load_recipe(tmp_path / "mine.yaml", [])


def test_a_misspelt_key_of_a_chosen_group_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("defaults: [SEAL, _self_]\n")
    (tmp_path / "backbone").mkdir()
    group = "# @package _global_\ndefaults: [qwen2.5-7b]\nenv_service: {stop_token: [x]}\n"
    (tmp_path / "backbone" / "mine.yaml").write_text(group)
    assert load_recipe(tmp_path / "mine.yaml", []).env_service.tool_format == "hermes"
    with pytest.raises(RecipeError, match=r"'env_service.stop_token'.*env_service.stop_tokens"):
        load_recipe(tmp_path / "mine.yaml", ["backbone=mine"])


OPEN_SECTIONS = """
launcher: {environment: {A: b}}
ray_kwargs: {ray_init: {anything: 1}}
seal:
  start_gate: {suite: fixed, min_pass_rate: 0.1, min_mixed_group_share: 0.1}
  weights: {utilities: {empty_turn_model_response: 1.5}}
data: {apply_chat_template_kwargs: {enable_thinking: false}}
actor_rollout_ref:
  model: {override_config: {a: {b: 1}}}
  rollout: {engine_kwargs: {vllm: {anything: 1}}, enable_sleep_mode: false}
"""


def test_sections_that_are_handed_on_take_any_key(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(f"defaults: [SEAL, _self_]\n{OPEN_SECTIONS}")
    loaded = load_recipe(tmp_path / "mine.yaml", ["+my.own=1", "++trainer.my.own=2"])
    assert loaded.actor_rollout_ref.rollout.engine_kwargs.vllm.anything == 1
    assert (loaded.my.own, loaded.trainer.my.own) == (1, 2)


def test_what_is_added_to_the_command_line_excuses_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("defaults: [SEAL, _self_]\ntrainer: {mine: 1}\n")
    with pytest.raises(RecipeError, match=r"'trainer\.mine'"):
        load_recipe(tmp_path / "mine.yaml", ["+trainer.min=1"])


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("backbone=qwen3", "no backbone/qwen3; there are: qwen2.5-3b, qwen2.5-7b"),
        ("+backbone=qwen2.5-3b", "backbone is chosen already"),
        ("machine=quickstart", r"use \+machine=quickstart"),
        ("bakbone=qwen2.5-3b", "unknown key 'bakbone'"),
    ],
)
def test_a_group_that_cannot_be_chosen_says_why(override: str, said: str) -> None:
    with pytest.raises(RecipeError, match=said):
        load_recipe(EXP / "SEAL.yaml", [override])
