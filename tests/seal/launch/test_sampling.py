"""Settings of verl's sampling: those that act are taken, the others are refused by name."""

import pytest

from seal.launch.recipe import EXP, RecipeError, load_recipe
from seal.launch.sampling import refused_settings

SEAL = EXP / "SEAL.yaml"
FILTER = "algorithm.filter_groups"
SAMPLER = "trainer.v1.sampler"
ON = f"{FILTER}.enable=true"


def test_no_shipped_recipe_has_a_setting_that_does_not_act() -> None:
    """Values of verl's that are refused if they differ are the ones that verl has."""
    for path in EXP.glob("*.yaml"):
        assert list(refused_settings(load_recipe(path, []))) == []


def test_the_filter_is_taken_with_a_bound() -> None:
    recipe = load_recipe(
        SEAL, [ON, f"{FILTER}.max_num_gen_batches=2", f"{FILTER}.max_inflight_gen_batches=2"]
    )
    assert recipe.algorithm.filter_groups.enable


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        ([ON], f"{FILTER}.max_num_gen_batches=0: .* set 2 or more"),
        ([ON, f"{FILTER}.max_num_gen_batches=1"], f"{FILTER}.max_num_gen_batches=1: "),
        (["+method=filter_groups", f"{FILTER}.metric=acc"], f"{FILTER}.metric=acc: .*at reward"),
        ([f"{FILTER}.metric=acc"], f"{FILTER}.metric=acc: .*leave it at reward"),
        ([f"{FILTER}.max_num_gen_batches=5"], "max_num_gen_batches=5 does not act without"),
        ([f"{FILTER}.max_inflight_gen_batches=2"], "max_inflight_gen_batches=2 does not act"),
        ([f"{SAMPLER}.sync_refill_failed_groups=false"], "=false does not act: .* at true"),
        ([f"{SAMPLER}.custom_sampler.path=pkg://mine"], "path=pkg://mine does not .*at null"),
        ([f"{SAMPLER}.custom_sampler.name=Mine"], "name=Mine does not act"),
        ([f"+{SAMPLER}.sampler_kwargs.share=1"], r"sampler_kwargs=\{'share': 1\} does not act"),
        ([f"{SAMPLER}.max_off_policy_threshold=2"], "threshold=2 does not .*leave it at 8"),
        ([f"{SAMPLER}.max_off_policy_strategy=wait"], "strategy=wait does not .*at drop"),
        (["data.gen_batch_size=8"], "data.gen_batch_size=8 does not act: .*at null"),
    ],
)
def test_a_setting_that_does_not_act_is_refused(overrides: list[str], said: str) -> None:
    with pytest.raises(RecipeError, match=said) as refused:
        load_recipe(SEAL, overrides)
    assert str(SEAL) in str(refused.value)
