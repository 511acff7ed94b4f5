"""What verl asks of vLLM for a recipe, up to the point where the engine would start."""

import argparse
import asyncio
import json
import shutil
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import real_tokenizers
from omegaconf import DictConfig
from transformers import AutoConfig

from seal.launch.recipe import EXP, load_recipe
from seal.launch.shapes import CONFIGS

with warnings.catch_warnings():
    # What vLLM warns of while it is imported is not our affair.
    warnings.simplefilter("ignore")
    from verl.workers.rollout.replica import RolloutMode
    from verl.workers.rollout.vllm_rollout import vllm_async_server

BACKBONES = sorted(path.stem for path in (EXP / "backbone").glob("*.yaml"))
ARCHITECTURES = {
    "qwen2": "Qwen2ForCausalLM",
    "llama": "LlamaForCausalLM",
    "qwen3_5": "Qwen3_5ForConditionalGeneration",
}
TOKENIZERS = {"smollm2-135m": "smollm2", "toolace-2-8b": "llama3.1"}
"""Of the others: Qwen2.5's."""
SHORT = {"smollm2-135m": ["actor_rollout_ref.rollout.max_model_len=8192"]}
"""Models that cannot read the 16,384 tokens of exp/SEAL.yaml."""

SHOWN = (
    *("model", "max_model_len", "enable_sleep_mode"),
    *("enable_prefix_caching", "gdn_prefill_backend"),
)


class Server(vllm_async_server.vLLMHttpServer):
    """verl's server up to the point where it would start the engine."""

    async def run_server(self, args: argparse.Namespace) -> None:
        self.asked = args


def folder(backbone: str, parent: Path) -> Path:
    """The backbone's configuration in its real size and a real tokenizer; no weights."""
    path = load_recipe(EXP / "SEAL.yaml", [f"backbone={backbone}"]).actor_rollout_ref.model.path
    known = dict(CONFIGS[path])
    kind = known.pop("model_type")
    made = parent / backbone
    shutil.copytree(real_tokenizers.folder(TOKENIZERS.get(backbone, "qwen2.5")), made)
    AutoConfig.for_model(kind, **known, architectures=[ARCHITECTURES[kind]]).save_pretrained(made)
    return made


def asked(recipe: DictConfig, monkeypatch: pytest.MonkeyPatch) -> argparse.Namespace:
    """What verl asks of `vllm serve`, as vLLM's parser reads it."""
    job = type("Context", (), {"get_job_id": staticmethod(lambda: "1")})
    monkeypatch.setattr(vllm_async_server.ray, "get_runtime_context", lambda: job)
    monkeypatch.setattr(vllm_async_server.ray.util, "get_node_ip_address", lambda: "127.0.0.1")
    for name in ("VERL_REPLICA_RANK", "VERL_RAY_JOB_ID", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.setenv(name, "")
    policy = recipe.actor_rollout_ref
    made: Any = Server(
        config=policy.rollout,
        model_config=policy.model,
        rollout_mode=RolloutMode.HYBRID,
        workers=[None] * int(policy.rollout.tensor_model_parallel_size),
        replica_rank=0,
        node_rank=0,
        gpus_per_node=1,
        nnodes=1,
        cuda_visible_devices="0",
    )
    asyncio.run(made.launch_server())
    read: argparse.Namespace = made.asked
    return read


def main(parent: Path) -> None:
    """Print some of what is asked for each backbone, as JSON by its name.

    A process of its own: what verl and vLLM do to logging while they are imported stays in it.
    """
    found = {}
    for backbone in BACKBONES:
        local = [f"actor_rollout_ref.model.path={folder(backbone, parent)}"]
        local += [f"backbone={backbone}", *SHORT.get(backbone, [])]
        with pytest.MonkeyPatch.context() as patch:
            said = asked(load_recipe(EXP / "SEAL.yaml", local), patch)
        found[backbone] = {name: getattr(said, name) for name in SHOWN}
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
