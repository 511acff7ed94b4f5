"""Whether a model may be trained on packed sequences; asked before the first worker starts.

Packed (`actor_rollout_ref.model.use_remove_padding`), several dialogues are one row. Attention is
told apart by positions, with flash-attn and with torch's own (sdpa) alike. A layer of linear
attention carries a state from token to token and has to be told where a dialogue begins: verl 0.9.1
hands that on, flash-linear-attention's kernels obey, and the plain torch function that transformers
takes in their place ignores it. A dialogue would then begin in the state of the one before, without
an error.
"""

from importlib.util import find_spec

from omegaconf import DictConfig
from transformers import AutoConfig
from verl.utils.fs import copy_to_local

STATELESS = frozenset({"full_attention", "sliding_attention", "chunked_attention"})
"""Kinds of layers, in transformers' words, that see other tokens through attention alone."""


class PackingError(Exception):
    """The model's sequences would leak into each other: the recipe is to be changed."""


def check_packing(config: DictConfig) -> None:
    """Refuse to pack where sequences would not stay apart.

    Args:
        config: Resolved recipe.

    Raises:
        PackingError: The recipe packs, the model has layers with a state, and
            flash-linear-attention is not installed.
        OSError: The model's configuration cannot be read.
    """
    model = config.actor_rollout_ref.model
    if not model.use_remove_padding or find_spec("fla") is not None:
        return
    described = AutoConfig.from_pretrained(
        copy_to_local(model.path), trust_remote_code=model.trust_remote_code
    )
    kinds = {*(getattr(described.get_text_config(), "layer_types", None) or ())} - STATELESS
    if kinds:
        raise PackingError(
            f"{model.path} has layers that carry a state ({', '.join(sorted(kinds))}), and without "
            "flash-linear-attention one dialogue would leak into the next of a packed batch; set "
            "actor_rollout_ref.model.use_remove_padding=false (the group qwen3.5-4b does), or "
            "install flash-linear-attention"
        )
