"""The packages for GPUs: imports, engines, and vLLM's configuration of every backbone.

scripts/test_cuda_set.sh runs these in an environment of their own.
"""

import importlib
import pkgutil
from pathlib import Path

import pytest
import rollout_command
import torch
from omegaconf import DictConfig
from rollout_command import BACKBONES
from verl.trainer.ppo.utils import need_reference_policy
from verl.utils.config import omega_conf_to_dataclass, validate_config
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.usage.usage_lib import UsageContext

import seal.train
from seal.launch.recipe import EXP, load_recipe

pytestmark = [pytest.mark.cuda, pytest.mark.filterwarnings("ignore")]
TUNINGS = sorted(path.stem for path in (EXP / "tuning").glob("*.yaml"))


def recipe(backbone: str, *overrides: str) -> DictConfig:
    return load_recipe(EXP / "SEAL.yaml", [f"backbone={backbone}", *overrides])


def test_these_are_the_packages_for_gpus() -> None:
    assert torch.version.cuda is not None and not torch.cuda.is_available()


def test_every_module_of_the_trainer_imports() -> None:
    found = [one.name for one in pkgutil.iter_modules(seal.train.__path__)]
    for name in found:
        importlib.import_module(f"seal.train.{name}")
    importlib.import_module("verl.trainer.main_ppo")
    importlib.import_module("verl.workers.engine_workers")


@pytest.mark.parametrize("gpus", [1, 2, 4, 8])
@pytest.mark.parametrize("backbone", BACKBONES)
def test_verl_accepts_every_recipe(backbone: str, gpus: int) -> None:
    for tuning in ([], *([f"+tuning={name}"] for name in TUNINGS)):
        made = recipe(backbone, f"+machine=gpus_{gpus}", *tuning)
        validate_config(made, need_reference_policy(made), False)
        # A worker makes the reference policy's part anew, from the actor's.
        for part in ("actor", "rollout"):
            omega_conf_to_dataclass(made.actor_rollout_ref[part])


@pytest.mark.parametrize("backbone", BACKBONES)
def test_vllm_configures_its_engine(
    backbone: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local = [f"actor_rollout_ref.model.path={rollout_command.folder(backbone, tmp_path)}"]
    made = recipe(backbone, *local, *rollout_command.SHORT.get(backbone, []))
    asked = rollout_command.asked(made, monkeypatch)
    config = AsyncEngineArgs.from_cli_args(asked).create_engine_config(
        usage_context=UsageContext.OPENAI_API_SERVER
    )
    linear = backbone == "qwen3.5-4b"
    assert config.model_config.dtype is torch.bfloat16
    assert config.model_config.is_hybrid is linear
    assert config.cache_config.enable_prefix_caching is not linear
    assert config.scheduler_config.enable_chunked_prefill
    if linear:
        assert config.additional_config["gdn_prefill_backend"] == "triton"
