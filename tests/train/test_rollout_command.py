"""What vLLM is told for each backbone: verl's own command line, read by the installed vLLM."""

from pathlib import Path

import pytest
from rollout_command import BACKBONES, SHORT, asked, folder

from seal.launch.recipe import EXP, load_recipe


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("backbone", BACKBONES)
def test_vllm_reads_what_verl_asks_for(
    backbone: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = folder(backbone, tmp_path)
    local = [f"backbone={backbone}", f"actor_rollout_ref.model.path={path}"]
    local += SHORT.get(backbone, [])
    said = asked(load_recipe(EXP / "SEAL.yaml", local), monkeypatch)
    assert said.model == str(path) and said.enable_sleep_mode
    assert said.max_model_len == (8192 if backbone in SHORT else 16384)
    linear = backbone == "qwen3.5-4b"
    assert said.enable_prefix_caching is not linear
    assert said.gdn_prefill_backend == ("triton" if linear else None)
