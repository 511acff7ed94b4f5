"""Sizes of the models of exp/backbone/, without a model hub.

In: the path of a model, as in a recipe. Out: the keys of its config.json that set its size, from
the file if it exists or else from the table below; and counts computed from them.

The table has the values of the published config.json files. Those of Qwen3.5-4B could not be
compared with its file.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Config = Mapping[str, Any]
"""Keys of a Hugging Face config.json, `model_type` among them."""

_KEYS = (
    *("model_type", "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers"),
    *("num_attention_heads", "num_key_value_heads", "max_position_embeddings"),
    "tie_word_embeddings",
)
_ROWS = {
    "Qwen/Qwen2.5-0.5B-Instruct": ("qwen2", 151936, 896, 4864, 24, 14, 2, 32768, True),
    "Qwen/Qwen2.5-3B-Instruct": ("qwen2", 151936, 2048, 11008, 36, 16, 2, 32768, True),
    "Qwen/Qwen2.5-7B-Instruct": ("qwen2", 152064, 3584, 18944, 28, 28, 4, 32768, False),
    "Qwen/Qwen3.5-4B": ("qwen3_5_text", 248320, 2560, 9216, 32, 16, 4, 262144, True),
    "models/smollm2-135m": ("llama", 49152, 576, 1536, 30, 9, 3, 8192, True),
    "Team-ACE/ToolACE-2-Llama-3.1-8B": ("llama", 128256, 4096, 14336, 32, 32, 8, 131072, False),
}
"""Values of _KEYS."""


def _published(path: str) -> Config:
    config = dict(zip(_KEYS, _ROWS[path], strict=True))
    if config["model_type"] == "qwen2":
        return config | {"rope_parameters": {"rope_type": "default", "rope_theta": 1_000_000.0}}
    if config["model_type"] == "llama":
        return config
    linear_attention = {
        "head_dim": 256,
        "linear_num_key_heads": 16,
        "linear_num_value_heads": 32,
        "linear_key_head_dim": 128,
        "linear_value_head_dim": 128,
        "linear_conv_kernel_dim": 4,
        "full_attention_interval": 4,
    }
    text = config | linear_attention
    return {"model_type": "qwen3_5", "tie_word_embeddings": True, "text_config": text}


CONFIGS: Mapping[str, Config] = {path: _published(path) for path in _ROWS}
"""Configurations by the path that a backbone group names."""

VISION_PARAMETERS = 453_650_672
"""Parameters of the vision part of Qwen3.5-4B, in the default sizes of transformers."""


@dataclass(frozen=True)
class Shape:
    """Sizes that the memory of a model depends on."""

    parameters: int
    """Number of parameters; a shared embedding counts once."""
    layer_parameters: int
    """Parameters of the largest layer."""
    layers: int
    hidden: int
    """Width of the residual stream."""
    intermediate: int
    """Width inside the MLP."""
    vocabulary: int
    tied: bool
    """Whether the output head shares the embedding's weight."""
    cache_values: int
    """Numbers in the rollout engine's cache for one token: keys and values of all layers."""


def config_of(path: str, root: Path) -> Config | None:
    """Configuration of a recipe's model; None if it has no folder and is not in the table.

    A relative path starts from `root`.
    """
    file = root / path / "config.json"
    if file.is_file():
        read: Config = json.loads(file.read_text("utf-8"))
        return read
    return CONFIGS.get(path)


def shape_of(config: Config) -> Shape:
    """Sizes of a model with the keys of a Qwen2, Llama or Qwen3.5 config.json.

    >>> shape_of(CONFIGS["Qwen/Qwen2.5-7B-Instruct"]).parameters
    7615616512

    Raises:
        KeyError: The configuration is of another kind.
    """
    text = config.get("text_config", config)
    hidden, inner, layers = (
        text[key] for key in ("hidden_size", "intermediate_size", "num_hidden_layers")
    )
    heads, kv_heads = text["num_attention_heads"], text["num_key_value_heads"]
    head = text.get("head_dim") or hidden // heads
    queries, keys = heads * head, kv_heads * head
    kind = config["model_type"]
    attention = {
        "llama": 2 * hidden * (queries + keys),
        "qwen2": 2 * hidden * (queries + keys) + queries + 2 * keys,
        # Each query has a gate; queries and keys have norms.
        "qwen3_5": hidden * (3 * queries + 2 * keys) + 2 * head,
    }[kind]
    rest = 3 * hidden * inner + 2 * hidden
    sizes = [attention + rest] * layers
    if kind == "qwen3_5":
        every = text["full_attention_interval"]
        linear = _linear_attention(text) + rest
        sizes = [sizes[0] if (layer + 1) % every == 0 else linear for layer in range(layers)]
    attending = sum(size == attention + rest for size in sizes)
    tied = bool(text["tie_word_embeddings"])
    vocabulary = text["vocab_size"]
    outside = (1 if tied else 2) * vocabulary * hidden + hidden
    vision = VISION_PARAMETERS if kind == "qwen3_5" else 0
    return Shape(
        parameters=sum(sizes) + outside + vision,
        layer_parameters=max(sizes),
        layers=layers,
        hidden=hidden,
        intermediate=inner,
        vocabulary=vocabulary,
        tied=tied,
        cache_values=2 * keys * attending,
    )


def _linear_attention(text: Config) -> int:
    keys = text["linear_num_key_heads"] * text["linear_key_head_dim"]
    heads = text["linear_num_value_heads"]
    values = heads * text["linear_value_head_dim"]
    hidden, mixed = text["hidden_size"], 2 * keys + values
    projections = hidden * (mixed + values + 2 * heads) + values * hidden
    convolution = mixed * text["linear_conv_kernel_dim"]
    return int(projections + convolution + 2 * heads + text["linear_value_head_dim"])
