"""The facts about a recipe's model, read once from its folder; weights are not loaded.

In: the recipe. Out: `Model`: the model's folder, its config.json, its number of parameters, and the
files that it lacks.
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
from seal.settings.sections import read_settings

STATELESS = frozenset({"full_attention", "sliding_attention", "chunked_attention"})
"""Kinds of layers, as transformers names them, without a state from token to token."""
_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}
_INDICES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
_WHOLE = ("model.safetensors", "pytorch_model.bin")


@dataclass(frozen=True)
class Model:
    """A recipe's model, as far as it is known on this machine."""

    path: str
    """actor_rollout_ref.model.path."""
    folder: Path | None
    """Its folder; None if it is not on this machine."""
    made_by: tuple[str, ...] = ()
    """The recipe's commands that make the model (launcher.build_policy)."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """Its config.json, or the entry in `seal.launch.shapes` if it is not on this machine."""
    parameters: int | None = None
    """Its number of parameters, from the size of the weight files, or from `config` if it is not on
    this machine; None if neither is known."""
    lacks: tuple[str, ...] = ()
    """What a run needs and the folder lacks, a sentence each."""
    lacks_generation_config: bool = False

    @classmethod
    def read(cls, recipe: DictConfig) -> "Model":
        """Read the facts."""
        settings = recipe.actor_rollout_ref.model
        path, made_by = str(settings.path), read_settings(recipe).launcher.build_policy
        folder = _place(path)
        if folder is None:
            known = CONFIGS.get(path, {})
            parameters = shape_of(known).parameters if known else None
            return cls(path, None, made_by, known, parameters)
        config, lacks = _config(folder)
        weights = _missing_weights(folder)
        lacks += weights
        named = settings.tokenizer_path
        tokenizer = folder if named is None else _place(str(named))
        if tokenizer is not None:
            lacks += _missing_of_tokenizer(tokenizer, settings.custom_chat_template is not None)
        return cls(
            path,
            folder,
            made_by,
            config,
            None if weights else _parameters(folder, config),
            tuple(lacks),
            not (folder / "generation_config.json").is_file(),
        )

    @property
    def on_hub(self) -> bool:
        """Whether the path is a name on the model hub, such as Qwen/Qwen2.5-7B-Instruct."""
        return is_hub_name(self.path)

    @property
    def language_config(self) -> Mapping[str, Any]:
        """The part of config.json about the language model; with a vision part it is a section."""
        inner: Mapping[str, Any] = self.config.get("text_config") or self.config
        return inner

    @property
    def linear_attention(self) -> bool:
        """Whether its layers carry a state from token to token (Qwen3.5: linear attention).

        The model's name decides if its configuration is not known.
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
    local = (".", "/", "data/", "experiments/", "models/")
    return path.count("/") == 1 and not path.startswith(local)


def _place(path: str) -> Path | None:
    folder = folders.ROOT / path
    if folder.is_dir():
        return folder
    # transformers and vLLM use the cache of the hub.
    cached = try_to_load_from_cache(path, "config.json") if is_hub_name(path) else None
    return Path(cached).parent if isinstance(cached, str) else None


def _config(folder: Path) -> tuple[dict[str, Any], list[str]]:
    try:
        read = json.loads((folder / "config.json").read_text("utf-8"))
    except FileNotFoundError:
        return {}, ["config.json does not exist"]
    except ValueError as error:
        return {}, [f"config.json is not JSON ({error})"]
    if not isinstance(read, dict) or "model_type" not in read:
        return {}, ["config.json has no model_type"]
    return read, []


def _json_object(path: Path) -> dict[str, Any]:
    """A JSON object; empty if the file does not exist or holds something else."""
    try:
        read = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return read if isinstance(read, dict) else {}


def _first_file(folder: Path, names: Sequence[str]) -> Path | None:
    return next((folder / name for name in names if (folder / name).is_file()), None)


def _shards(index: Path) -> list[str]:
    """Names of the weight files in an index; none if it cannot be read."""
    return sorted(set(_json_object(index).get("weight_map", {}).values()))


def _missing_weights(folder: Path) -> list[str]:
    if _first_file(folder, _WHOLE):
        return []
    index = _first_file(folder, _INDICES)
    if index is None:
        return [f"there are no weights ({_WHOLE[0]}, or several files with {_INDICES[0]})"]
    shards = _shards(index)
    if not shards:
        return ["the index of the weights cannot be read, or names no file"]
    missing = [name for name in shards if not (folder / name).is_file()]
    if not missing:
        return []
    return [f"{len(missing)} of {len(shards)} files of weights are missing: {_few(missing)}"]


def _missing_of_tokenizer(folder: Path, has_template: bool) -> list[str]:
    lacks = []
    names = ("tokenizer.json", "tokenizer.model", "vocab.json")
    if not _first_file(folder, names):
        lacks.append(f"there is no tokenizer ({', '.join(names)})")
    if not (
        has_template
        or _json_object(folder / "tokenizer_config.json").get("chat_template")
        or _first_file(folder, ("chat_template.jinja", "chat_template.json"))
    ):
        lacks.append(
            "the tokenizer has no chat template: a base model? Name an instruct model, or set "
            "actor_rollout_ref.model.custom_chat_template"
        )
    return lacks


def _parameters(folder: Path, config: Mapping[str, Any]) -> int:
    """Number of parameters, from the size of the weights and the type that config.json names."""
    sections = (config, config.get("text_config") or {})
    dtypes = [section.get(key) for section in sections for key in ("dtype", "torch_dtype")]
    # float32 is the default of transformers too.
    width = _BYTES.get(str(next(filter(None, dtypes), None)), _BYTES["float32"])
    index, whole = _first_file(folder, _INDICES), _first_file(folder, _WHOLE)
    total = (_json_object(index).get("metadata") or {}).get("total_size") if index else None
    if total is None:
        files = [whole] if whole else [folder / name for name in _shards(index)] if index else []
        total = sum(file.stat().st_size for file in files)
    return int(total) // width


def _few(names: Sequence[str], most: int = 3) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
