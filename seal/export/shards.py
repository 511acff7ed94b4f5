"""The weights of a checkpoint, put together from the shards that FSDP's processes saved.

In: the `actor` folder of a checkpoint by verl (`model_world_size_<n>_rank_<r>.pt`, the part of one
process of every tensor, and `fsdp_config.json`). Out: whole tensors by the names of a Hugging Face
model, in the dtype in which they were saved (verl's own merger converts all of them to bfloat16).

Not covered: Megatron's checkpoints, and models sharded by tensor parallelism.
"""

import json
import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch.distributed.tensor import DTensor, Replicate, Shard
from verl.model_merger.fsdp_model_merger import merge_non_dtensor_shards

PEFT_PREFIX = "base_model.model."
"""Prefix that peft adds to the names of a model with LoRA adapters."""


class ExportError(Exception):
    """A checkpoint cannot be exported; the message says why."""


def read_weights(
    actor: Path,
    progress: Callable[[list[Path]], AbstractContextManager[Iterable[Path]]] = nullcontext,
) -> dict[str, torch.Tensor]:
    """Every tensor of the model, whole, on the CPU; LoRA adapters are merged into it.

    `progress` wraps the files while they are read, e.g. tqdm.

    Raises:
        ExportError: Shards are missing or damaged, or hold only a LoRA adapter.
    """
    with progress(_files(actor)) as files:
        shards = [_read(path) for path in files]
    for rank, shard in enumerate(shards):
        if shard.keys() != shards[0].keys():
            raise ExportError(f"{actor}: the shards of ranks 0 and {rank} hold different tensors")
    weights = {name: _whole(name, [shard[name] for shard in shards]) for name in shards[0]}
    return _merged(weights, actor)


def _files(actor: Path) -> list[Path]:
    """The shards by rank."""
    config = actor / "fsdp_config.json"
    try:
        size = int(json.loads(config.read_text("utf-8"))["world_size"])
    except FileNotFoundError:
        raise ExportError(
            f"{actor} has no fsdp_config.json; expected the actor folder of a complete FSDP "
            "checkpoint"
        ) from None
    except (ValueError, KeyError, TypeError):
        raise ExportError(
            f"{config} cannot be read; expected a JSON object with world_size"
        ) from None
    files = [actor / f"model_world_size_{size}_rank_{rank}.pt" for rank in range(size)]
    missing = [path.name for path in files if not path.is_file()]
    if missing:
        raise ExportError(
            f"{actor} lacks {len(missing)} of {size} shards ({', '.join(missing[:3])}"
            f"{', ...' if len(missing) > 3 else ''}); copy them from the nodes that saved them"
        )
    return files


def _read(path: Path) -> dict[str, torch.Tensor]:
    # It warns that torch.compile cannot use a device mesh without processes.
    mesh_log = logging.getLogger("torch.distributed.device_mesh")
    level = mesh_log.level
    mesh_log.setLevel(logging.ERROR)
    try:
        # Not weights_only, which does not know DTensor. The checkpoint is as trusted as its run.
        shard = torch.load(path, map_location="cpu", weights_only=False, mmap=True)
    except (OSError, RuntimeError, EOFError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise ExportError(f"{path} cannot be read ({reason}); is it damaged?") from error
    finally:
        mesh_log.setLevel(level)
    return dict(shard)


def _whole(name: str, parts: list[torch.Tensor]) -> torch.Tensor:
    """One tensor from the parts of all ranks."""
    first = parts[0]
    if not isinstance(first, DTensor):
        try:
            return merge_non_dtensor_shards(name, parts)
        except ValueError as error:
            raise ExportError(str(error)) from None
    *outer, inner = first.placements
    if not all(isinstance(placement, Replicate) for placement in outer):
        raise ExportError(f"{name} is sharded over {first.placements}; expected FSDP's alone")
    # Of several replicas of the sharded model, the first one is used.
    ranks = first.device_mesh.mesh.reshape(-1, first.device_mesh.mesh.shape[-1])[0].tolist()
    local = [parts[rank].to_local() for rank in ranks]
    if isinstance(inner, Replicate):
        whole = local[0]
    elif isinstance(inner, Shard):
        whole = torch.cat(local, dim=inner.dim)
    else:
        raise ExportError(f"{name} is placed as {inner}; expected a shard or a replica")
    if whole.shape != first.shape:
        raise ExportError(f"{name} is {tuple(whole.shape)}, expected {tuple(first.shape)}")
    return whole


# ---- LoRA --------------------------------------------------------------------------------------


def _merged(weights: dict[str, torch.Tensor], actor: Path) -> dict[str, torch.Tensor]:
    """The weights; with LoRA adapters W + (alpha / r) B A, under the names of the base model."""
    adapters = [name for name in weights if ".lora_A." in name]
    if not adapters:
        return weights
    if all(".lora_" in name for name in weights):
        raise ExportError(
            f"{actor} holds a LoRA adapter without its base model; to export, train with "
            "actor_rollout_ref.actor.checkpoint.save_lora_only=false"
        )
    scale = _lora_scale(actor)
    merged = {}
    for name, weight in weights.items():
        if ".lora_" in name:
            continue
        stem, is_base, kind = name.rpartition(".base_layer.")
        if is_base and kind == "weight" and f"{stem}.lora_A.default.weight" in weights:
            a = weights[f"{stem}.lora_A.default.weight"].float()
            b = weights[f"{stem}.lora_B.default.weight"].float()
            weight = (weight.float() + scale * (b @ a)).to(weight.dtype)
        merged[name.replace(".base_layer.", ".").removeprefix(PEFT_PREFIX)] = weight
    return merged


def _lora_scale(actor: Path) -> float:
    path = actor / "lora_train_meta.json"
    try:
        meta: Mapping[str, Any] = json.loads(path.read_text("utf-8"))
        return float(meta["lora_alpha"]) / float(meta["r"])
    except (OSError, ValueError, KeyError, TypeError, ZeroDivisionError):
        raise ExportError(
            f"the checkpoint has LoRA adapters, but {path} does not say their rank r and lora_alpha"
        ) from None
