"""What training changed in a model, as a small file: one bit a weight.

In: folders of one model before and after training. Out: a file with the sign of each weight's
change and, for each matrix, the mean absolute change. With the model before training it gives a
model that is close to the trained one (BitDelta, arXiv 2402.10193).

Every weight is one sum in float32, so the same file gives the same weights on every processor. A
warm-up that is repeated on another processor does not.
"""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from seal.records.whole_file import whole_file
from seal.warm_up.whole_folder import whole_folder

BASE = "base"
"""In the file's metadata: which weights the changes are to be added to."""
SIGNS, SIZE, CHANGE = ".signs", ".size", ".change"
"""Ends of names: bits and mean size of a matrix's change; the change of any other tensor."""

Weights = dict[str, torch.Tensor]


class DeltaError(Exception):
    """The file cannot be made or applied; the message says why and what to do."""


def make_delta(base: Path, trained: Path, out: Path) -> None:
    """Write to the file `out` what training changed, by the folders of both models.

    Raises:
        DeltaError: The folders are no models, or not of the same shape.
        OSError: The file cannot be written.
    """
    before, after = _weights(_load(base)), _weights(_load(trained))
    if _shapes(before) != _shapes(after):
        raise DeltaError(f"{trained} is no trained {base}: its weights have other names or shapes")
    kept: Weights = {}
    for name, weight in before.items():
        # A warm-up in bfloat16 rounds matrices that it does not train.
        if weight.ndim != 2 or not torch.equal(after[name].bfloat16(), weight.bfloat16()):
            kept.update(_packed(name, after[name] - weight))
    out.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(out) as path:
        save_file(kept, path, metadata={BASE: digest(before)})


def apply_delta(base: Path, delta: Path, out: Path) -> bool:
    """Make the folder `out` of the model that a file describes, with the tokenizer of `base`.

    Returns:
        Whether it was made; False: the folder holds this model already.

    Raises:
        DeltaError: The file is none of `make_delta`, or was made from another model, or `out` holds
            another model.
        OSError: The folder cannot be written.
    """
    try:
        with safe_open(delta, "pt") as file:
            made_from = (file.metadata() or {})[BASE]
            kept = {name: file.get_tensor(name) for name in file.keys()}
    except (SafetensorError, FileNotFoundError, KeyError) as error:
        raise DeltaError(f"{delta} is no file of changed weights: {error}") from error
    model = _load(base)
    weights = _weights(model)
    if made_from != digest(weights):
        raise DeltaError(f"{delta} was made from other weights than those of {base}")
    for name, weight in weights.items():
        if name + CHANGE in kept:
            weight += kept[name + CHANGE]
        elif name + SIGNS in kept:
            weight += _unpacked(kept[name + SIGNS], kept[name + SIZE])[:, : weight.shape[1]]
    if out.exists():
        if digest(_weights(_load(out))) != digest(weights):
            raise DeltaError(f"{out} holds another model; delete it, or name another folder")
        return False
    with whole_folder(out) as folder:
        model.save_pretrained(folder)
        AutoTokenizer.from_pretrained(base).save_pretrained(folder)
    return True


def digest(weights: Weights) -> str:
    """SHA-256 of all weights in the order of their names."""
    hasher = hashlib.sha256()
    for name in sorted(weights):
        hasher.update(name.encode())
        hasher.update(weights[name].contiguous().numpy().data)
    return hasher.hexdigest()


def _load(folder: Path) -> Any:
    if not (folder / "config.json").is_file():
        raise DeltaError(f"{folder} is no model; for SmolLM2: scripts/get_smollm2.py")
    try:
        return AutoModelForCausalLM.from_pretrained(str(folder), dtype=torch.float32)
    except (SafetensorError, ValueError, OSError) as error:
        raise DeltaError(f"the model in {folder} cannot be read: {error}") from error


def _weights(model: Any) -> Weights:
    """A model's own weights by name; weights with two names, as tied embeddings, once."""
    return {name: weight.detach() for name, weight in model.named_parameters()}


def _shapes(weights: Weights) -> dict[str, torch.Size]:
    return {name: weight.shape for name, weight in weights.items()}


def _packed(name: str, change: torch.Tensor) -> Weights:
    if change.ndim != 2:
        return {name + CHANGE: change}
    # Of all sizes the mean absolute one is the closest to the matrix, in squares.
    bits = np.packbits((change > 0).numpy(), axis=1)
    return {name + SIGNS: torch.from_numpy(bits), name + SIZE: change.abs().mean()}


def _unpacked(bits: torch.Tensor, size: torch.Tensor) -> torch.Tensor:
    """Changes of shape [rows, columns], the columns rounded up to whole bytes."""
    positive = torch.from_numpy(np.unpackbits(bits.numpy(), axis=1)).bool()
    return torch.where(positive, size, -size)
