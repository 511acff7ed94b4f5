"""The trainer's kind of attention; recipes use `attention` as a resolver.

The package flash-attn has to fit Python, torch and CUDA, so many machines do not have it. With
torch's own attention ("sdpa") nothing else changes: sequences stay packed
(tests/train/test_packing.py), and log probabilities do not need flash-attn
(`seal.train.log_probs`).
"""

from importlib.util import find_spec


def attention() -> str:
    """As transformers names it: "flash_attention_2" if flash-attn is installed, else "sdpa"."""
    return "sdpa" if find_spec("flash_attn") is None else "flash_attention_2"
