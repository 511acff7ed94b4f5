"""The tokenizers that other tests rest on: equal to tiktoken on the published ranks."""

import base64
import random
from typing import Any

import pytest
import real_tokenizers as real
import tiktoken
from hypothesis import given, settings
from hypothesis import strategies as st

RANKS = {
    "qwen2.5": (real.PACKAGES / "dashscope/resources/qwen.tiktoken", real.QWEN_PATTERN),
    "llama3.1": (real.PACKAGES / "llama_models/llama3/tokenizer.model", real.LLAMA_PATTERN),
}
TEXT = (real.ROOT / "README.md").read_text("utf-8") + (real.ROOT / "LICENSE").read_text("utf-8")
WORDS = TEXT.split() + ["\u4f60\u597d", "caf\u00e9", "\U0001f600", "12345", "\r\n\r\n", "   ", "'S"]


@pytest.fixture(scope="module", params=RANKS)
def pair(request: pytest.FixtureRequest) -> tuple[tiktoken.Encoding, Any]:
    path, pattern = RANKS[request.param]
    ranks = {
        base64.b64decode(token): int(rank)
        for token, rank in (line.split() for line in path.read_bytes().splitlines() if line)
    }
    published = tiktoken.Encoding(
        request.param, pat_str=pattern, mergeable_ranks=ranks, special_tokens={}
    )
    return published, real.load(request.param)


def test_tokens_are_those_of_the_published_ranks(pair: tuple[tiktoken.Encoding, Any]) -> None:
    published, ours = pair
    rng = random.Random(1)
    texts = [TEXT, *(rng.choice(["", " "]).join(rng.choices(WORDS, k=40)) for _ in range(200))]
    for text in texts:
        assert ours.encode(text, add_special_tokens=False) == published.encode_ordinary(text)


# Qwen's puts letters and their accents together (NFC).
_EXACT = [real.load(name) for name in ("llama3.1", "smollm2")]


@settings(max_examples=200, deadline=None)
@given(st.text(st.characters(codec="utf-8", categories=["L", "N", "P", "Zs"])))
def test_any_text_is_decoded_as_it_was(text: str) -> None:
    for tokenizer in _EXACT:
        assert tokenizer.decode(tokenizer.encode(text, add_special_tokens=False)) == text


def test_special_tokens_have_their_published_numbers() -> None:
    numbers = {
        "qwen2.5": {"<|endoftext|>": 151643, "<|im_end|>": 151645, "</tool_call>": 151658},
        "llama3.1": {"<|begin_of_text|>": 128000, "<|eot_id|>": 128009, "<|python_tag|>": 128010},
        "smollm2": {"<|endoftext|>": 0, "<|im_start|>": 1, "<|im_end|>": 2},
    }
    for name, expected in numbers.items():
        tokenizer = real.load(name)
        assert {one: tokenizer.convert_tokens_to_ids(one) for one in expected} == expected
        for token, number in expected.items():
            assert tokenizer.encode(token, add_special_tokens=False) == [number]
    assert len(real.load("qwen2.5")) == 151665
    assert len(real.load("llama3.1")) == 128256
    assert len(real.load("smollm2")) == 49152


def test_decoding_a_message_keeps_its_calls() -> None:
    tokenizer = real.load("qwen2.5")
    ids = tokenizer.encode("<tool_call>\n{}\n</tool_call><|im_end|>", add_special_tokens=False)
    assert tokenizer.decode(ids, skip_special_tokens=True) == "<tool_call>\n{}\n</tool_call>"
    assert len(ids) == 5
