"""The architectures of the backbones in small, and the sizes of models that tests build anew."""

from typing import Any

from transformers import AutoConfig

from seal.launch.recipe import EXP, load_recipe
from seal.launch.shapes import CONFIGS

TINY = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
}
"""Sizes for a configuration of Qwen or Llama."""
SMALL = {
    "vocab_size": 256,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 4,
    "max_position_embeddings": 128,
    # Layers that do more than pass on what they get.
    "initializer_range": 0.1,
}
SMALL_LINEAR = {
    "head_dim": 16,
    **dict.fromkeys(("linear_num_key_heads", "linear_num_value_heads"), 2),
    **dict.fromkeys(("linear_key_head_dim", "linear_value_head_dim"), 16),
}
SMALL_VISION = {
    "depth": 1,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_heads": 2,
    "out_hidden_size": 64,
    "num_position_embeddings": 64,
}


def small(backbone: str) -> Any:
    """The backbone's architecture, four layers of width 64."""
    path = load_recipe(EXP / "SEAL.yaml", [f"backbone={backbone}"]).actor_rollout_ref.model.path
    known = dict(CONFIGS[path])
    kind = known.pop("model_type")
    if text := known.pop("text_config", None):
        text = {**text, **SMALL, **SMALL_LINEAR}
        return AutoConfig.for_model(kind, **known, text_config=text, vision_config=SMALL_VISION)
    return AutoConfig.for_model(kind, **{**known, **SMALL})
