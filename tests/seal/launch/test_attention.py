"""Which attention recipes ask for, with and without flash-attn."""

from importlib.util import find_spec

import pytest

from seal.launch import recipe
from seal.launch.recipe import EXP, load_recipe


@pytest.mark.parametrize(
    ("installed", "expected"), [(None, "sdpa"), (object(), "flash_attention_2")]
)
def test_flash_attention_where_it_is_installed(
    installed: object, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        recipe, "find_spec", lambda name: installed if name == "flash_attn" else find_spec(name)
    )
    for name, overrides, chosen in (
        ("SEAL", [], expected),
        ("vanilla", ["backbone=toolace-2-8b"], expected),
        ("SEAL", ["actor_rollout_ref.model.override_config.attn_implementation=eager"], "eager"),
        # The processor has no other.
        ("quickstart", [], "sdpa"),
    ):
        model = load_recipe(EXP / f"{name}.yaml", overrides).actor_rollout_ref.model
        assert model.override_config.attn_implementation == chosen
