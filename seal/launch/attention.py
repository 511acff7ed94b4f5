"""Which attention the trainer computes, for recipes: the resolver `attention`.

flash-attn is a package that has to fit Python, torch and CUDA, so machines without it are common.
With torch's own attention ("sdpa") nothing else changes: sequences stay packed
(tests/train/test_packing.py), and log probabilities do not need flash-attn
(`seal.train.log_probs`).
"""

from importlib.util import find_spec


def attention() -> str:
    """In transformers' words: "flash_attention_2" where flash-attn is installed, else "sdpa"."""
    return "sdpa" if find_spec("flash_attn") is None else "flash_attention_2"
