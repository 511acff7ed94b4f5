import functools
from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig, ListConfig, OmegaConf

from seal.client.addresses import url_list
from seal.coevolution.evolution import InterfaceConfig
from seal.coevolution.exposure import Exposure
from seal.coevolution.shaping import RewardShaping
from seal.coevolution.utilities import UtilityConfig
from seal.coevolution.weights import UTILITIES
from seal.launch.recipe import RecipeError, load_recipe
from seal.settings.sections import read_settings
from seal.train.state import loop_config

EXP = Path(__file__).resolve().parents[3] / "exp"
RECIPES = sorted(EXP.glob("*.yaml"))


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_every_shipped_recipe_composes(path: Path) -> None:
    recipe = load_recipe(path, [])
    assert recipe.trainer.v1.trainer_mode == "seal"
    # SmolLM2's leaves the reference policy out, which takes a third of an update there.
    assert recipe.actor_rollout_ref.actor.use_kl_loss is (path.stem != "smollm2")


def test_overrides_win_and_reach_what_refers_to_them() -> None:
    recipe = load_recipe(EXP / "SEAL.yaml", ["trainer.experiment_name=mine", "seed=7"])
    assert recipe.seal.loop_dir == "experiments/mine/loop"
    assert recipe.data.seed == 7


def test_one_address_or_a_list_of_them_composes() -> None:
    assert url_list(load_recipe(EXP / "SEAL.yaml", []).env_service.env_url) == (
        "http://127.0.0.1:8082",
    )
    overrides = ["env_service.env_url=[http://a:1,http://b:2]", "env_service.token_file=my/token"]
    settings = load_recipe(EXP / "SEAL.yaml", overrides).env_service
    urls = url_list(settings.env_url)
    assert urls == ("http://a:1", "http://b:2")
    assert {type(url) for url in urls} == {str}
    assert settings.token_file == "my/token"


def test_a_misspelt_key_names_the_nearest() -> None:
    with pytest.raises(RecipeError, match=r"trainer\.total_epoch'.*trainer\.total_epochs"):
        load_recipe(EXP / "SEAL.yaml", ["trainer.total_epoch=1"])


def test_a_missing_recipe_names_those_there_are() -> None:
    with pytest.raises(RecipeError) as refused:
        load_recipe(EXP / "SEEL.yaml", [])
    named = str(refused.value).partition(f"recipes in {EXP}: ")[2].split(", ")
    assert named == [str(path) for path in RECIPES]


def test_the_agent_loop_that_verl_is_told_of_is_there() -> None:
    agent = load_recipe(EXP / "SEAL.yaml", []).actor_rollout_ref.rollout.agent
    known = OmegaConf.load(EXP.parent / agent.agent_loop_config_path)
    assert isinstance(known, ListConfig)
    assert [one.name for one in known] == [agent.default_agent_loop]
    module, _, name = known[0]._target_.rpartition(".")
    source = EXP.parent / f"{module.replace('.', '/')}.py"
    assert f"class {name}(" in source.read_text("utf-8")


@pytest.mark.parametrize("override", ["trainer.total_epochs", "=3", "a b=1", "trainer.a=[1"])
def test_an_override_that_is_no_override_is_refused(override: str) -> None:
    with pytest.raises(RecipeError):
        load_recipe(EXP / "SEAL.yaml", [override])


@pytest.mark.parametrize("text", ["a: [1", "a: 1\na: 2\n", "defaults: [nothing_there]\n", "a: 1\n"])
def test_a_file_that_is_no_recipe_is_refused_in_a_sentence(tmp_path: Path, text: str) -> None:
    (tmp_path / "mine.yaml").write_text(text)
    with pytest.raises(RecipeError, match=r"mine\.yaml"):
        load_recipe(tmp_path / "mine.yaml", [])


def flat(node: Any, prefix: str = "") -> dict[str, Any]:
    if isinstance(node, DictConfig):
        node = OmegaConf.to_container(node)
    if not isinstance(node, dict) or prefix.endswith("apply_chat_template_kwargs"):
        return {prefix: node}
    return {k: v for key, one in node.items() for k, v in flat(one, f"{prefix}.{key}").items()}


@functools.cache
def composed(recipe: str, *overrides: str) -> DictConfig:
    """A recipe; not to be changed."""
    return load_recipe(EXP / f"{recipe}.yaml", overrides)


MODEL = ".actor_rollout_ref.model.path"
ABLATIONS: dict[str, dict[str, Any]] = {
    "vanilla": {
        ".seal.weights.w_min": 1.0,
        ".seal.weights.w_max": 1.0,
        ".seal.interface.schema_cues": False,
        ".seal.interface.recovery_feedback": False,
        ".seal.interface.guidelines": False,
    },
    "ablation_no_interface": {
        ".seal.interface.schema_cues": False,
        ".seal.interface.recovery_feedback": False,
        ".seal.interface.guidelines": False,
    },
    "ablation_no_reweighting": {".seal.weights.w_min": 1.0, ".seal.weights.w_max": 1.0},
    "ablation_no_closed_loop": {".seal.profile.frozen_after": 1},
    "published": {
        ".env_service.tool_format": "qwen3_coder",
        ".env_service.unreadable_message": "retry",
        ".data.apply_chat_template_kwargs": {"enable_thinking": False},
        ".seal.weights.dynamic.enabled": True,
        ".seal.weights.failures_in_passes": "as_failure",
        ".seal.interface.schema_cues": False,
        ".seal.interface.static_schema_cues": True,
        ".seal.interface.recovery_feedback": False,
        ".seal.interface.guidelines": False,
        ".seal.reward.mode": "capped",
        ".seal.profile.window_rounds": 12,
        ".seal.profile.window": "tumbling",
        ".actor_rollout_ref.model.path": "Qwen/Qwen3.5-4B",
        ".actor_rollout_ref.model.use_remove_padding": False,
        ".actor_rollout_ref.actor.use_remove_padding": False,
        ".actor_rollout_ref.model.exclude_modules": ".*visual.*",
        ".actor_rollout_ref.rollout.gpu_memory_utilization": 0.4,
        ".actor_rollout_ref.rollout.enable_prefix_caching": False,
    },
}


METHODS: dict[str, dict[str, Any]] = {
    "shuffled_labels": {".seal.weights.assignment": "shuffled"},
    "constant_weight": {".seal.weights.assignment": "mean"},
    "fixed_interface": {".seal.interface.choice": "all"},
    "random_interface": {".seal.interface.choice": "random"},
    "turn_weights": {".seal.weights.scope": "turn"},
    "normalized_weights": {".seal.weights.normalize": "group"},
    "balanced_weights": {".seal.weights.normalize": "balanced"},
    "positive_weights": {".seal.weights.applies_to": "positive"},
    "negative_weights": {".seal.weights.applies_to": "negative"},
    "shared_interface": {".seal.exposure.share": 0.5},
    "fading_interface": {".seal.exposure.gone_at": 12},
    "absolute_rates": {".seal.interface.prevalence_over": "turns"},
    "steadier_interface": {".seal.interface.hysteresis": 0.2},
    "first_failures": {".seal.cascade_share": 0.0},
    "t3rl_reward": {".seal.reward.mode": "t3rl"},
    "token_mean": {
        ".actor_rollout_ref.actor.loss_agg_mode": "token-mean",
        # verl's default is the actor's; there is no critic.
        ".critic.loss_agg_mode": "token-mean",
    },
    "filter_groups": {
        ".algorithm.filter_groups.enable": True,
        ".algorithm.filter_groups.max_num_gen_batches": 10,
    },
}


def test_every_method_is_a_recipe_or_is_tested_here() -> None:
    ablations = {name.removeprefix("ablation_") for name in ABLATIONS} - {"published"}
    there = {path.stem for path in (EXP / "method").glob("*.yaml")}
    assert there == ablations | METHODS.keys()


@pytest.mark.parametrize(
    ("name", "recipe"),
    [*((name, "SEAL") for name in METHODS), ("turn_weights", "quickstart"), ("vanilla", "smollm2")],
)
def test_a_method_changes_what_it_says_in_any_recipe(name: str, recipe: str) -> None:
    changed = composed(recipe, f"+method={name}")
    before, after = flat(composed(recipe)), flat(changed)
    expected = METHODS.get(name) or ABLATIONS[name]
    assert {key: after[key] for key in before if after[key] != before[key]} == expected
    seal = read_settings(changed).seal
    loop_config(seal)
    assert seal.interface == InterfaceConfig(**changed.seal.interface)
    assert seal.exposure == Exposure(**changed.seal.exposure)
    assert seal.reward == RewardShaping(**changed.seal.reward)


def test_the_clean_protocol_chooses_on_the_development_set() -> None:
    clean, published = flat(composed("SEAL", "+protocol=clean")), flat(composed("SEAL"))
    assert {key: clean[key] for key in clean if clean[key] != published[key]} == {
        ".data.train_files": "data/bfcl_clean_train.parquet",
        ".data.val_files": "data/bfcl_clean_eval.parquet",
        ".seal.best_metric": "val-seal/development/category_average",
    }


@pytest.fixture(scope="module", params=[[], ["+machine=quickstart"]], ids=["gpu", "cpu_twin"])
def full(request: pytest.FixtureRequest) -> tuple[list[str], dict[str, Any]]:
    return request.param, flat(load_recipe(EXP / "SEAL.yaml", request.param))


@pytest.mark.parametrize("name", ABLATIONS)
def test_an_ablation_differs_by_what_it_says(
    name: str, full: tuple[list[str], dict[str, Any]]
) -> None:
    overrides, seal = full
    ablated = flat(load_recipe(EXP / f"{name}.yaml", overrides))
    # The backbone of the published file needs a setting that the other has no key for.
    prefill = ablated.pop(".actor_rollout_ref.rollout.engine_kwargs.vllm.gdn_prefill_backend", None)
    assert prefill == ("triton" if name == "published" else None)
    assert ablated.keys() == seal.keys()
    changed = {
        key: value
        for key, value in ablated.items()
        if value != seal[key] and name not in str(value)  # folders and the name itself
    }
    expected = ABLATIONS[name]
    if overrides:  # the tiny policy, its format, memory and window come with the machine
        own = (".actor_rollout_ref", ".env_service.tool_format", ".seal.profile.window_rounds")
        expected = {k: v for k, v in expected.items() if not k.startswith(own)}
    else:  # what refers to the model's path follows it
        changed = {k: v for k, v in changed.items() if k in expected or v != ablated[MODEL]}
    assert changed == expected


def test_a_recipe_is_read_as_the_trainer_reads_it() -> None:
    for path in RECIPES:
        recipe = load_recipe(path, [])
        settings, seal = recipe.seal, read_settings(recipe).seal
        assert seal.interface == InterfaceConfig(**settings.interface)
        assert seal.reward == RewardShaping(**settings.reward)
        assert seal.weights.dynamic == UtilityConfig(**settings.weights.dynamic)


def test_the_recipe_has_the_utilities_of_the_code() -> None:
    utilities = load_recipe(EXP / "SEAL.yaml", []).seal.weights.utilities
    assert utilities == {label.value: rho for label, rho in UTILITIES.items()}


def test_quickstart_differs_from_the_full_recipe_by_model_sizes_and_machine_only() -> None:
    full, quick = (load_recipe(EXP / name, []) for name in ("SEAL.yaml", "quickstart.yaml"))
    assert quick.seal.weights == full.seal.weights
    assert quick.seal.interface == full.seal.interface
    # With equal weights and precision it is no matter whose log probabilities the old ones are.
    assert quick.algorithm.rollout_correction.bypass_mode
    quick.algorithm.rollout_correction.bypass_mode = False
    assert quick.algorithm == full.algorithm
    for key in ("clip_ratio", "use_kl_loss", "kl_loss_coef", "kl_loss_type", "loss_agg_mode"):
        assert quick.actor_rollout_ref.actor[key] == full.actor_rollout_ref.actor[key]
