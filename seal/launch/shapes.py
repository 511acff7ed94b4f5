"""What the models of exp/backbone/ look like, without a model hub.

In: a model's path, as a recipe has it. Out: its configuration as the keys of a config.json that set
its size, either of the file in the path's folder or of the table below, and counts made of them.
Read by the memory plan (`seal.launch.memory`), by scripts/smoke_models.py and by tests of every
architecture.

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

_QWEN25 = {
    "model_type": "qwen2",
    "vocab_size": 151936,
    "max_position_embeddings": 32768,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1_000_000.0},
    "tie_word_embeddings": True,
}

CONFIGS: Mapping[str, Config] = {
    "Qwen/Qwen2.5-0.5B-Instruct": {
        **_QWEN25,
        "hidden_size": 896,
        "intermediate_size": 4864,
        "num_hidden_layers": 24,
        "num_attention_heads": 14,
        "num_key_value_heads": 2,
    },
    "Qwen/Qwen2.5-3B-Instruct": {
        **_QWEN25,
        "hidden_size": 2048,
        "intermediate_size": 11008,
        "num_hidden_layers": 36,
        "num_attention_heads": 16,
        "num_key_value_heads": 2,
    },
    "Qwen/Qwen2.5-7B-Instruct": {
        **_QWEN25,
        "vocab_size": 152064,
        "hidden_size": 3584,
        "intermediate_size": 18944,
        "num_hidden_layers": 28,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "tie_word_embeddings": False,
    },
    "Qwen/Qwen3.5-4B": {
        "model_type": "qwen3_5",
        "tie_word_embeddings": True,
        "text_config": {
            "model_type": "qwen3_5_text",
            "vocab_size": 248320,
            "hidden_size": 2560,
            "intermediate_size": 9216,
            "num_hidden_layers": 32,
            "num_attention_heads": 16,
            "num_key_value_heads": 4,
            "head_dim": 256,
            "linear_num_key_heads": 16,
            "linear_num_value_heads": 32,
            "linear_key_head_dim": 128,
            "linear_value_head_dim": 128,
            "linear_conv_kernel_dim": 4,
            "full_attention_interval": 4,
            "max_position_embeddings": 262144,
            "tie_word_embeddings": True,
        },
    },
    "models/smollm2-135m": {
        "model_type": "llama",
        "vocab_size": 49152,
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_hidden_layers": 30,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "max_position_embeddings": 8192,
        "tie_word_embeddings": True,
    },
    "Team-ACE/ToolACE-2-Llama-3.1-8B": {
        "model_type": "llama",
        "vocab_size": 128256,
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "max_position_embeddings": 131072,
        "tie_word_embeddings": False,
    },
}
"""By the path that a backbone group names."""

VISION_PARAMETERS = 453_650_672
"""Of the vision part of Qwen3.5-4B, in the sizes that transformers has by default."""


@dataclass(frozen=True)
class Shape:
    """What sets the memory of a model."""

    parameters: int
    """All of them; a shared embedding counts once."""
    layer_parameters: int
    """Of the largest layer."""
    layers: int
    hidden: int
    """Width of the residual stream."""
    intermediate: int
    """Width inside the MLP."""
    vocabulary: int
    tied: bool
    """The output head shares the embedding's weight."""
    cache_values: int
    """Keys and values that the rollout engine keeps for a token, in all layers together."""


def config_of(path: str, root: Path) -> Config | None:
    """Configuration of a model; None where its folder is not there and the table does not know it.

    Args:
        path: `actor_rollout_ref.model.path` of a recipe.
        root: What a relative path is relative to.
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
        # Queries come with a gate; queries and keys have norms.
        "qwen3_5": hidden * (3 * queries + 2 * keys) + 2 * head,
    }[kind]
    rest = 3 * hidden * inner + 2 * hidden
    sizes = [attention + rest] * layers
    if kind == "qwen3_5":
        every = text["full_attention_interval"]
        linear = _linear_attention(text) + rest
        sizes = [sizes[0] if (one + 1) % every == 0 else linear for one in range(layers)]
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
