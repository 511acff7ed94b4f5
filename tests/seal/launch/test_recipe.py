from pathlib import Path

import pytest

from seal.addresses import url_list
from seal.launch.recipe import RecipeError, load_recipe

EXP = Path(__file__).resolve().parents[3] / "exp"
RECIPES = sorted(EXP.glob("*.yaml"))


@pytest.mark.parametrize(
    "path", [p for p in RECIPES if p.stem != "agent_loop"], ids=lambda p: p.stem
)
def test_every_shipped_recipe_composes(path: Path) -> None:
    recipe = load_recipe(path, [])
    assert recipe.trainer.v1.trainer_mode == "seal"
    assert recipe.actor_rollout_ref.actor.use_kl_loss is True


def test_overrides_win_and_reach_what_refers_to_them() -> None:
    recipe = load_recipe(EXP / "SEAL.yaml", ["trainer.experiment_name=mine", "seed=7"])
    assert recipe.seal.loop_dir == "experiments/mine/loop"
    assert recipe.data.seed == 7


def test_one_address_or_a_list_of_them_composes() -> None:
    assert url_list(load_recipe(EXP / "SEAL.yaml", []).env_service.env_url) == (
        "http://127.0.0.1:8080",
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
    with pytest.raises(RecipeError, match=r"SEAL\.yaml"):
        load_recipe(EXP / "SEEL.yaml", [])


@pytest.mark.parametrize("override", ["trainer.total_epochs", "=3", "a b=1", "trainer.a=[1"])
def test_an_override_that_is_no_override_is_refused(override: str) -> None:
    with pytest.raises(RecipeError):
        load_recipe(EXP / "SEAL.yaml", [override])


@pytest.mark.parametrize("text", ["a: [1", "a: 1\na: 2\n", "defaults: [nothing_there]\n", "a: 1\n"])
def test_a_file_that_is_no_recipe_is_refused_in_a_sentence(tmp_path: Path, text: str) -> None:
    (tmp_path / "mine.yaml").write_text(text)
    with pytest.raises(RecipeError, match=r"mine\.yaml"):
        load_recipe(tmp_path / "mine.yaml", [])


def test_quickstart_differs_from_the_full_recipe_by_model_sizes_and_machine_only() -> None:
    full, quick = (load_recipe(EXP / name, []) for name in ("SEAL.yaml", "quickstart.yaml"))
    assert quick.seal.weights == full.seal.weights
    assert quick.seal.interface == full.seal.interface
    assert quick.algorithm == full.algorithm
    for key in ("clip_ratio", "use_kl_loss", "kl_loss_coef", "kl_loss_type", "loss_agg_mode"):
        assert quick.actor_rollout_ref.actor[key] == full.actor_rollout_ref.actor[key]
