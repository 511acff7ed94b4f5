"""A trained model as one bit a weight: what comes back, and from what it does not."""

from pathlib import Path

import model_delta
import numpy as np
import pytest
import real_tokenizers
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

from seal.warm_up.delta import _packed, _unpacked, apply_delta, digest, make_delta

CONFIG = LlamaConfig(
    # Rows of 20 and 36: no multiple of 8 bits.
    vocab_size=49,
    hidden_size=20,
    intermediate_size=36,
    num_hidden_layers=1,
    num_attention_heads=2,
    tie_word_embeddings=True,
)


def saved(folder: Path, model: LlamaForCausalLM) -> Path:
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(real_tokenizers.folder("smollm2")).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(1)
    return saved(tmp_path_factory.mktemp("base"), LlamaForCausalLM(CONFIG))


@pytest.fixture(scope="module")
def trained(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The base after a few steps of Adam on everything but the word embeddings."""
    model = LlamaForCausalLM.from_pretrained(base)
    model.get_input_embeddings().weight.requires_grad_(False)
    optimizer = torch.optim.Adam([one for one in model.parameters() if one.requires_grad], lr=3e-3)
    ids = torch.randint(0, 49, (4, 12), generator=torch.Generator().manual_seed(1))
    for _ in range(20):
        optimizer.zero_grad()
        model(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()
    # As a warm-up in bfloat16 leaves what it does not train.
    embeddings = model.get_input_embeddings().weight
    embeddings.data = embeddings.data.bfloat16().float()
    return saved(tmp_path_factory.mktemp("trained"), model)


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return dict(AutoModelForCausalLM.from_pretrained(folder).state_dict())


def run(what: str, base: Path, model: Path, delta: Path) -> int:
    return model_delta.main([what, f"--base={base}", f"--model={model}", f"--delta={delta}"])


def test_signs_and_the_mean_size_come_back(base: Path, trained: Path, tmp_path: Path) -> None:
    assert run("make", base, trained, tmp_path / "delta") == 0
    assert run("apply", base, tmp_path / "again", tmp_path / "delta") == 0
    before, after, again = weights(base), weights(trained), weights(tmp_path / "again")
    for name, weight in before.items():
        change, came_back = after[name] - weight, again[name] - weight
        assert change.any()
        if name in ("model.embed_tokens.weight", "lm_head.weight"):
            assert not came_back.any()
        elif change.ndim == 1:
            assert torch.allclose(came_back, change)
        else:
            moved = change.abs() > 1e-6
            assert torch.equal(came_back.sign()[moved], change.sign()[moved])
            wanted = change.abs().mean().expand_as(change)
            assert torch.allclose(came_back.abs(), wanted, atol=1e-6)
    names = {path.name for path in base.iterdir()}
    assert names == {path.name for path in (tmp_path / "again").iterdir()}


def test_a_vector_comes_back_however_little_it_changed(base: Path, tmp_path: Path) -> None:
    model = LlamaForCausalLM.from_pretrained(base)
    norm = model.model.norm.weight
    norm.data += 0.0015
    assert torch.equal(norm.bfloat16(), torch.ones(20).bfloat16())
    make_delta(base, saved(tmp_path / "trained", model), tmp_path / "delta")
    apply_delta(base, tmp_path / "delta", tmp_path / "again")
    assert torch.equal(weights(tmp_path / "again")["model.norm.weight"], norm)


def test_it_is_closer_to_the_trained_model(base: Path, trained: Path, tmp_path: Path) -> None:
    make_delta(base, trained, tmp_path / "delta")
    apply_delta(base, tmp_path / "delta", tmp_path / "again")
    ids = torch.randint(0, 49, (4, 12), generator=torch.Generator().manual_seed(1))
    losses = []
    for folder in (trained, tmp_path / "again", base):
        model = LlamaForCausalLM.from_pretrained(folder)
        losses.append(model(input_ids=ids, labels=ids).loss.item())
    assert losses[1] - losses[0] < (losses[2] - losses[0]) / 2


@given(
    arrays(
        np.float32,
        st.tuples(st.integers(1, 5), st.integers(1, 19)),
        elements=st.floats(-1, 1, width=32),
    )
)
def test_any_matrix_fits_into_bits(change: np.ndarray) -> None:
    tensor = torch.from_numpy(change)
    kept = _packed("one", tensor)
    assert kept["one.signs"].shape == (change.shape[0], -(-change.shape[1] // 8))
    again = _unpacked(kept["one.signs"], kept["one.size"])[:, : change.shape[1]]
    assert torch.equal(again > 0, (tensor > 0) & (kept["one.size"] > 0))
    # With these signs, no other size is closer.
    error = (tensor - again).pow(2).sum()
    for factor in (0.9, 1.1):
        assert (tensor - factor * again).pow(2).sum() >= error - 1e-5


def test_a_file_is_of_one_base(
    base: Path, trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_delta(base, trained, tmp_path / "delta")
    assert run("apply", trained, tmp_path / "again", tmp_path / "delta") == 1
    assert "was made from other weights" in capsys.readouterr().err
    assert not (tmp_path / "again").exists()


def test_what_is_no_model_or_no_file_is_one_sentence(
    base: Path, trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = saved(
        tmp_path / "other",
        LlamaForCausalLM(LlamaConfig(**{**CONFIG.to_dict(), "num_hidden_layers": 2})),
    )
    (tmp_path / "text").write_text("no tensors", "utf-8")
    damaged = saved(tmp_path / "damaged", LlamaForCausalLM(CONFIG))
    (damaged / "model.safetensors").write_bytes(b"cut off")
    capsys.readouterr()
    for arguments, said in (
        (("make", tmp_path, trained, tmp_path / "delta"), "is no model"),
        (("make", base, other, tmp_path / "delta"), "other names or shapes"),
        (("make", base, damaged, tmp_path / "delta"), "cannot be read"),
        (("apply", base, tmp_path / "again", tmp_path / "none"), "no file of changed weights"),
        (("apply", base, tmp_path / "again", tmp_path / "text"), "no file of changed weights"),
        (("apply", base, tmp_path / "again", base / "model.safetensors"), "no file of changed"),
    ):
        assert run(*arguments) == 1
        # Before it, transformers shows bars.
        error = capsys.readouterr().err.splitlines()[-1]
        assert error.startswith("model_delta: ")
        assert said in error
    assert not (tmp_path / "delta").exists()
    assert not (tmp_path / "again").exists()


def test_what_is_there_is_not_made_again(
    base: Path, trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_delta(base, trained, tmp_path / "delta")
    assert apply_delta(base, tmp_path / "delta", tmp_path / "again")
    assert run("apply", base, tmp_path / "again", tmp_path / "delta") == 0
    assert "made already" in capsys.readouterr().out
    assert run("apply", base, trained, tmp_path / "delta") == 1
    assert "holds another model" in capsys.readouterr().err


def test_a_digest_is_of_names_and_weights() -> None:
    one = {"a": torch.zeros(2), "b": torch.ones(2)}
    assert digest(one) == digest(dict(reversed(one.items())))
    assert digest(one) != digest({"a": torch.zeros(2), "b": torch.zeros(2)})
    assert digest(one) != digest({"a": torch.zeros(2), "c": torch.ones(2)})
