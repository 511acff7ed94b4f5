"""Checkpoints as verl saves them: tiny models, sharded by FSDP2 over two processes on the CPU.

Run by test_export_hf.py: torchrun --nproc-per-node 2 fsdp_checkpoint.py FOLDER. Makes
FOLDER/<kind>/global_step_1 with verl's own checkpoint manager, and FOLDER/<kind>/logits.pt with
the logits that the sharded model gives for token ids.
"""

import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from omegaconf import OmegaConf
from peft import LoraConfig, get_peft_model
from small_models import TINY
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM
from verl.utils.checkpoint.fsdp_checkpoint_manager import FSDPCheckpointManager

IDS = torch.arange(20).unsqueeze(0)


def model(kind: str) -> Any:
    """The model of a kind: plain, tied or lora; the vocabulary does not divide by two."""
    torch.manual_seed(0)
    made: Any = Qwen3ForCausalLM(
        Qwen3Config(
            **{**TINY, "vocab_size": 131},
            architectures=["Qwen3ForCausalLM"],
            tie_word_embeddings=kind == "tied",
        )
    )
    if kind == "lora":
        made = get_peft_model(made, LoraConfig(r=4, lora_alpha=12, target_modules="all-linear"))
        for name, parameter in made.named_parameters():
            if ".lora_B." in name:  # zero at first: an adapter that does nothing
                torch.nn.init.normal_(parameter, std=0.2)
    return made.eval()


def main(folder: Path) -> None:
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("fsdp",))
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder / "tokenizer")
    for kind in ("plain", "tied", "lora"):
        sharded = model(kind)
        layers = (sharded.get_base_model() if kind == "lora" else sharded).model.layers
        for layer in layers:
            fully_shard(layer, mesh=mesh)
        fully_shard(sharded, mesh=mesh)
        manager = FSDPCheckpointManager(
            sharded,
            None,
            None,
            processing_class=tokenizer,
            checkpoint_config=OmegaConf.create({"save_contents": ["model", "extra"]}),
        )
        path = folder / kind / "global_step_1"
        manager.save_checkpoint(str(path / "actor"))
        with torch.no_grad():
            logits = sharded(input_ids=IDS).logits
        if dist.get_rank() == 0:
            torch.save(logits, folder / kind / "logits.pt")
            torch.save({}, path / "data.pt")
            (path / "seal_state.json").write_text("{}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
