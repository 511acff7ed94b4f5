"""The facts about a recipe's model, read once from its folder; weights are not loaded.

In: the recipe. Out: `Model`: where the model is, its config.json, how many parameters it has, and
what its folder lacks.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from huggingface_hub import try_to_load_from_cache
from omegaconf import DictConfig

from seal.launch import folders
from seal.launch.shapes import CONFIGS, shape_of

STATELESS = frozenset({"full_attention", "sliding_attention", "chunked_attention"})
"""Kinds of layers, in transformers' words, that see other tokens through attention alone."""
_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}
_INDICES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
_WHOLE = ("model.safetensors", "pytorch_model.bin")


@dataclass(frozen=True)
class Model:
    """A recipe's model as far as this machine has it."""

    path: str
    """actor_rollout_ref.model.path."""
    folder: Path | None
    """Where it is; None where it is not on this machine."""
    made_by: tuple[str, ...] = ()
    """The recipe's commands that make it (launcher.build_policy)."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """Its config.json, or what `seal.launch.shapes` knows of a model that is not here."""
    parameters: int | None = None
    """By the size of its weights, or that configuration; None where neither is known."""
    lacks: tuple[str, ...] = ()
    """What a run needs and the folder does not have, a sentence each."""
    lacks_generation_config: bool = False

    @classmethod
    def read(cls, recipe: DictConfig) -> "Model":
        """Read the facts."""
        settings = recipe.actor_rollout_ref.model
        path, said = str(settings.path), recipe.launcher.build_policy
        made_by = () if not said else (said,) if isinstance(said, str) else tuple(said)
        folder = _place(path)
        if folder is None:
            known = CONFIGS.get(path, {})
            parameters = shape_of(known).parameters if known else None
            return cls(path, None, made_by, known, parameters)
        config, lacks = _config(folder)
        lacks += _missing_weights(folder)
        words = folder if settings.tokenizer_path is None else _place(str(settings.tokenizer_path))
        if words is not None:
            lacks += _missing_words(words, settings.custom_chat_template is not None)
        return cls(
            path,
            folder,
            made_by,
            config,
            None if _missing_weights(folder) else _parameters(folder, config),
            tuple(lacks),
            not (folder / "generation_config.json").is_file(),
        )

    @property
    def on_hub(self) -> bool:
        """Whether the path is a name such as Qwen/Qwen2.5-7B-Instruct, for the hub to resolve."""
        return is_hub_name(self.path)

    @property
    def language_config(self) -> Mapping[str, Any]:
        """The part of config.json on the language model, which stands apart beside vision."""
        inner: Mapping[str, Any] = self.config.get("text_config") or self.config
        return inner

    @property
    def linear_attention(self) -> bool:
        """Whether layers of it carry a state from token to token (Qwen3.5: linear attention).

        By its name where it is not here.
        """
        if self.config:
            text = self.language_config
            kinds = {*text.get("layer_types", ())} - STATELESS
            return bool(kinds) or "full_attention_interval" in text
        return "qwen3.5" in self.path.lower()


def is_hub_name(path: str) -> bool:
    """Whether a path has the form of a name on the model hub.

    >>> is_hub_name("Qwen/Qwen2.5-7B-Instruct"), is_hub_name("models/qwen2.5-7b")
    (True, False)
    """
    return path.count("/") == 1 and not path.startswith((".", "/", "experiments/", "models/"))


def _place(path: str) -> Path | None:
    folder = folders.ROOT / path
    if folder.is_dir():
        return folder
    # transformers and vLLM take what the hub's cache holds.
    cached = try_to_load_from_cache(path, "config.json") if is_hub_name(path) else None
    return Path(cached).parent if isinstance(cached, str) else None


def _config(folder: Path) -> tuple[dict[str, Any], list[str]]:
    try:
        read = json.loads((folder / "config.json").read_text("utf-8"))
    except FileNotFoundError:
        return {}, ["config.json is not there"]
    except ValueError as error:
        return {}, [f"config.json is no JSON ({error})"]
    if not isinstance(read, dict) or "model_type" not in read:
        return {}, ["config.json names no model_type"]
    return read, []


def _index(folder: Path) -> dict[str, Any] | None:
    """The list of weight files; None where the weights are in one file, or it cannot be read."""
    for name in _INDICES:
        if (folder / name).is_file():
            try:
                read = json.loads((folder / name).read_text("utf-8"))
            except ValueError:
                return {}
            return read if isinstance(read, dict) else {}
    return None


def _missing_weights(folder: Path) -> list[str]:
    if any((folder / name).is_file() for name in _WHOLE):
        return []
    index = _index(folder)
    if index is None:
        return [f"the weights are not there ({_WHOLE[0]}, or several with {_INDICES[0]})"]
    shards = sorted(set(index.get("weight_map", {}).values()))
    if not shards:
        return ["the index of the weights cannot be read, or names no file"]
    missing = [name for name in shards if not (folder / name).is_file()]
    if not missing:
        return []
    return [f"{len(missing)} of {len(shards)} files of weights are missing: {_few(missing)}"]


def _missing_words(folder: Path, has_template: bool) -> list[str]:
    """What the tokenizer lacks."""
    lacks = []
    names = ("tokenizer.json", "tokenizer.model", "vocab.json")
    if not any((folder / name).is_file() for name in names):
        lacks.append(f"there is no tokenizer ({', '.join(names)})")
    try:
        settings = json.loads((folder / "tokenizer_config.json").read_text("utf-8"))
    except (OSError, ValueError):
        settings = {}
    apart = ("chat_template.jinja", "chat_template.json")
    if not (
        has_template
        or settings.get("chat_template")
        or any((folder / name).is_file() for name in apart)
    ):
        lacks.append(
            "the tokenizer has no chat template: a base model? Name an instruct model, or set "
            "actor_rollout_ref.model.custom_chat_template"
        )
    return lacks


def _parameters(folder: Path, config: Mapping[str, Any]) -> int:
    """From the bytes of the weights and their type, which config.json names."""
    dtype = config.get("dtype") or config.get("torch_dtype")
    inner = config.get("text_config") or {}
    dtype = dtype or inner.get("dtype") or inner.get("torch_dtype")
    # transformers' own default, too.
    width = _BYTES.get(str(dtype), _BYTES["float32"])
    total = ((_index(folder) or {}).get("metadata") or {}).get("total_size")
    if total is None:
        names = [name for name in _WHOLE if (folder / name).is_file()][:1]
        names = names or sorted(set((_index(folder) or {})["weight_map"].values()))
        total = sum((folder / name).stat().st_size for name in names)
    return int(total) // width


def _few(names: Sequence[str], most: int = 3) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
