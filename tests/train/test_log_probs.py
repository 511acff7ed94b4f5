"""Log probabilities and entropy against verl's functions and against autograd."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode
from verl.utils.torch_functional import entropy_from_logits, logprobs_from_logits_v2

from seal.train.log_probs import token_log_probs


def drawn(rows: int, vocabulary: int, seed: int, dtype: torch.dtype, scale: float = 3.0) -> Any:
    """Logits, labels, temperatures, and the factors of both results in a loss."""
    draw = torch.Generator().manual_seed(seed)
    logits = (scale * torch.randn(rows, vocabulary, generator=draw)).to(dtype)
    labels = torch.randint(0, vocabulary, (rows,), generator=draw)
    temperature = 0.3 + 2 * torch.rand(rows, generator=draw)
    return logits, labels, temperature, torch.randn(2, rows, generator=draw)


def gradients(compute: Any, logits: torch.Tensor, factors: torch.Tensor) -> Any:
    """What `compute` gives for the logits, and the gradient of a loss of it, in float64."""
    leaf = logits.clone().requires_grad_()
    # Not the leaf itself: what is handed over is overwritten.
    found = torch.stack(compute(leaf * 1.0))
    (found * factors).sum().backward()
    return found.detach().double(), leaf.grad.double()


@settings(max_examples=60, deadline=None)
@given(
    rows=st.integers(1, 30),
    vocabulary=st.integers(2, 200),
    scale=st.sampled_from([0.1, 1.0, 3.0]),
    chunk_bytes=st.sampled_from([1, 1000, 10**6]),
    seed=st.integers(0, 2**31),
)
def test_values_and_gradients_are_those_of_verls_loop(
    rows: int, vocabulary: int, scale: float, chunk_bytes: int, seed: int
) -> None:
    logits, labels, temperature, factors = drawn(rows, vocabulary, seed, torch.float32, scale)

    def mine(given: torch.Tensor) -> Any:
        return token_log_probs(given, labels, temperature, entropy=True, chunk_bytes=chunk_bytes)

    def verls(given: torch.Tensor) -> Any:
        scaled = given / temperature[:, None]
        return logprobs_from_logits_v2(scaled, labels), entropy_from_logits(scaled)

    for one, other in zip(*(gradients(c, logits, factors) for c in (mine, verls)), strict=True):
        # In float32 verl's gradients differ from those in float64 by up to 1e-5.
        assert torch.allclose(one, other, rtol=1e-5, atol=5e-5)


@settings(max_examples=60, deadline=None)
@given(scale=st.sampled_from([0.1, 3.0, 300.0]), seed=st.integers(0, 2**31))
def test_they_are_those_of_the_formulas(scale: float, seed: int) -> None:
    logits, labels, temperature, factors = drawn(8, 50, seed, torch.float64, scale)
    temperature, factors = temperature.double(), factors.double()

    def formulas(given: torch.Tensor) -> Any:
        log_shares = torch.log_softmax(given / temperature[:, None], dim=-1)
        chosen = log_shares.gather(-1, labels[:, None])[:, 0]
        return chosen, -(log_shares.exp() * log_shares).sum(dim=-1)

    def mine(given: torch.Tensor) -> Any:
        return token_log_probs(given, labels, temperature, entropy=True, chunk_bytes=1000)

    for one, other in zip(*(gradients(c, logits, factors) for c in (mine, formulas)), strict=True):
        assert torch.allclose(one, other, rtol=1e-9, atol=1e-9)


def test_without_entropy_there_is_none() -> None:
    logits, labels, temperature, factors = drawn(8, 50, 2, torch.float32)
    with_it = token_log_probs(logits.clone(), labels, temperature, entropy=True)
    without = token_log_probs(logits.clone(), labels, temperature)
    assert torch.equal(with_it[0], without[0])
    assert with_it[1].min() > 0 and without[1].abs().max() == 0


def test_bfloat16_logits_are_summed_in_float32() -> None:
    logits, labels, temperature, factors = drawn(40, 500, 4, torch.bfloat16)

    def mine(given: torch.Tensor) -> Any:
        precision = torch.promote_types(given.dtype, torch.float32)
        return token_log_probs(given, labels, temperature.to(precision), entropy=True)

    truth, true_gradient = gradients(mine, logits.double(), factors.double())
    found, gradient = gradients(mine, logits, factors)
    assert mine(logits)[0].dtype == torch.float32
    assert torch.allclose(found, truth, rtol=1e-5, atol=1e-5)
    # The gradient is one of bfloat16 logits: eight bits.
    assert torch.allclose(gradient, true_gradient, rtol=2**-8, atol=1e-6)
    # verl's loop rounds its results, too.
    loop = [logprobs_from_logits_v2(given, labels).double() for given in (logits, logits.double())]
    assert (loop[0] - loop[1]).abs().max() > 1e-3


class Largest(TorchDispatchMode):
    """The largest tensor that any operation makes, in bytes; views do not count."""

    nbytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        known = {one.untyped_storage().data_ptr() for one in args if isinstance(one, torch.Tensor)}
        if isinstance(made, torch.Tensor) and made.untyped_storage().data_ptr() not in known:
            self.nbytes = max(self.nbytes, made.untyped_storage().nbytes())
        return made


def test_no_tensor_is_larger_than_a_chunk() -> None:
    logits, labels, temperature, factors = drawn(1000, 100, 5, torch.bfloat16)
    given = logits.requires_grad_() * 1.0
    with Largest() as largest:
        found = token_log_probs(given, labels, temperature, entropy=True, chunk_bytes=20_000)
        torch.autograd.grad(found, given, list(factors))
    # The results are 4,000 bytes each, the logits 200,000.
    assert 4_000 < largest.nbytes <= 20_000


def test_logits_are_given_away() -> None:
    logits, labels, temperature, _ = drawn(4, 9, 6, torch.float32)
    leaf = logits.requires_grad_()
    given = leaf * 1.0
    log_probs, _ = token_log_probs(given, labels, temperature)
    log_probs.sum().backward(retain_graph=True)
    assert torch.equal(given.detach(), leaf.grad)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        log_probs.sum().backward()
