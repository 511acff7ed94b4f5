"""The tiny policy's first lesson: random tokens that come again."""

import pytest
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from seal.warm_up import copying

VOCABULARY = 256


def untrained() -> Qwen3ForCausalLM:
    torch.manual_seed(1)
    config = Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=96,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=3,
        num_key_value_heads=1,
        head_dim=32,
        tie_word_embeddings=True,
    )
    return Qwen3ForCausalLM(config)


@pytest.mark.slow
def test_a_model_learns_to_copy_from_repeated_random_tokens() -> None:
    model = untrained()
    assert copying.learn_to_copy(model, 450, 3e-3, seed=1) > 0.9
    # And from sequences that it was not trained on, the way dialogues are computed.
    ids, start = copying.repeated_tokens(VOCABULARY, torch.Generator().manual_seed(99))
    assert model.config._attn_implementation == "sdpa"
    with torch.no_grad():
        best = model.eval()(input_ids=ids).logits[:, start:-1].argmax(-1)
    assert float((best == ids[:, start + 1 :]).float().mean()) > 0.9


@pytest.mark.slow
def test_without_the_head_laid_out_it_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copying, "lay_out_induction_head", lambda model, generator: None)
    assert copying.learn_to_copy(untrained(), 450, 3e-3, seed=1) < 0.5


def test_a_sequence_comes_again_where_it_says() -> None:
    generator = torch.Generator().manual_seed(3)
    starts = set()
    for _ in range(50):
        ids, start = copying.repeated_tokens(VOCABULARY, generator)
        length = ids.shape[1] - start
        assert copying.LENGTHS[0] <= length < copying.LENGTHS[1]
        windows = ids[:, :start].unfold(1, length, 1)
        assert (windows == ids[:, None, start:]).all(-1).any(-1).all()
        starts.add(start)
    assert len(starts) > 20
