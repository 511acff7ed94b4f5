"""Log probability and entropy of tokens, from logits: plain torch, on any device.

With logits x and temperature T, for the next token y:

    log p(y) = x_y / T - logsumexp(x / T)
    H        = -sum_v p(v) log p(v)

and their gradients, with p = softmax(x / T), in one pass over the same rows:

    d log p(y) / dx_v = (1[v = y] - p_v) / T
    d H / dx_v        = -p_v (log p_v + H) / T

verl 0.9.1 uses a kernel of flash-attn for the first formula, and without flash-attn a loop over
tokens (`verl.utils.torch_functional.logprobs_from_logits_v2`).
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.autograd.function import once_differentiable

CHUNK_BYTES = 2**26
"""Size of one intermediate tensor. Only a few of them exist at a time, for any number of rows."""


def token_log_probs(
    logits: torch.Tensor,
    labels: torch.Tensor,
    temperature: torch.Tensor,
    *,
    entropy: bool = False,
    chunk_bytes: int = CHUNK_BYTES,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Log probability of each label and entropy of each row.

    All computations and results are at least in float32, for logits of any type, so bfloat16 logits
    lose no further precision. (verl's loop rounds every result to bfloat16, by about 0.03 at a log
    probability of -10; flash-attn's kernel computes as this function.)

    Args:
        logits: Shape (rows, vocabulary). **The backward pass overwrites them with their gradient**,
            so that one tensor of this size is enough. A caller that needs them later keeps a copy;
            torch refuses a second backward pass.
        labels: Shape (rows,), token ids.
        temperature: Shape (rows,), above 0.
        entropy: Whether it is computed; if not, zeros are returned.
        chunk_bytes: Largest size of an intermediate tensor, unless one row is larger.

    Returns:
        Two tensors of shape (rows,).
    """
    results: tuple[torch.Tensor, torch.Tensor] = _TokenLogProbs.apply(
        logits, labels, temperature, entropy, chunk_bytes
    )
    return results


def give_head_rows(
    model: torch.nn.Module, wanted: Callable[[], torch.Tensor | None]
) -> torch.nn.Module:
    """Let the output head of a model use only some of the hidden states; returns the model.

    The model's own argument `logits_to_keep` takes columns and not single tokens, and the forward
    pass that verl gives to Qwen3.5 does not have it.

    Args:
        model: A causal language model of transformers.
        wanted: Called in each forward pass; gives rows of the flattened hidden states (rows x
            columns of the input, in this order), or None for all.
    """

    def choose(_head: torch.nn.Module, given: tuple[torch.Tensor]) -> Any:
        rows = wanted()
        if rows is None:
            return None
        (hidden,) = given
        return (hidden.flatten(0, 1).index_select(0, rows).unsqueeze(0),)

    head: Any = model.get_output_embeddings()
    head.register_forward_pre_hook(choose)
    return model


class _TokenLogProbs(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        logits: torch.Tensor,
        labels: torch.Tensor,
        temperature: torch.Tensor,
        with_entropy: bool,
        chunk_bytes: int,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        exact = torch.promote_types(logits.dtype, torch.float32)
        log_probs, entropy, norm = (logits.new_zeros(len(labels), dtype=exact) for _ in range(3))
        for part in _chunks(logits, exact, chunk_bytes):
            log_shares = logits[part].to(exact) / temperature[part, None]
            norm[part] = torch.logsumexp(log_shares, dim=-1)
            log_shares.sub_(norm[part, None])
            log_probs[part] = log_shares.gather(-1, labels[part, None])[:, 0]
            if with_entropy:
                entropy[part] = log_shares.exp().mul_(log_shares).sum(dim=-1).neg_()
        ctx.save_for_backward(logits, labels, temperature, norm, entropy)
        ctx.with_entropy, ctx.chunk_bytes = with_entropy, chunk_bytes
        return log_probs, entropy

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, of_log_probs: torch.Tensor, of_entropy: torch.Tensor
    ) -> tuple[torch.Tensor, None, None, None, None]:
        logits, labels, temperature, norm, entropy = ctx.saved_tensors
        for part in _chunks(logits, norm.dtype, ctx.chunk_bytes):
            log_shares = logits[part].to(norm.dtype) / temperature[part, None]
            log_shares.sub_(norm[part, None])
            shares = log_shares.exp()
            factor = -of_log_probs[part, None]
            if ctx.with_entropy:
                factor = factor - of_entropy[part, None] * log_shares.add_(entropy[part, None])
            gradient = shares.mul_(factor)
            gradient.scatter_add_(-1, labels[part, None], of_log_probs[part, None])
            logits[part] = gradient.div_(temperature[part, None]).to(logits.dtype)
        return logits, None, None, None, None


def _chunks(logits: torch.Tensor, exact: torch.dtype, chunk_bytes: int) -> Iterator[slice]:
    rows, vocabulary = logits.shape
    step = max(1, chunk_bytes // (vocabulary * exact.itemsize))
    return (slice(start, start + step) for start in range(0, rows, step))
