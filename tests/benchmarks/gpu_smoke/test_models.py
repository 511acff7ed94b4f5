from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from benchmarks.gpu_smoke import models


@pytest.mark.parametrize(
    ("size", "weights", "heads"),
    # Published: 0.49, 3.09 and 7.61 billion parameters.
    [("0.5b", 494_032_768, 64), ("3b", 3_085_938_688, 128), ("7b", 7_615_616_512, 128)],
)
def test_shapes_are_those_of_the_real_models(size: str, weights: int, heads: int) -> None:
    described = models.model_config(size)
    assert described.hidden_size // described.num_attention_heads == heads
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(described)
    assert sum(parameter.numel() for parameter in model.parameters()) == weights


def test_a_built_model_loads_with_its_tokenizer(tmp_path: Path) -> None:
    out = tmp_path / "tiny"
    models.build("tiny", out)
    made = {path.name: path.stat().st_mtime_ns for path in out.iterdir()}
    models.build("tiny", out)
    assert {path.name: path.stat().st_mtime_ns for path in out.iterdir()} == made
    assert list(tmp_path.iterdir()) == [out]
    model = AutoModelForCausalLM.from_pretrained(out)
    tokenizer = AutoTokenizer.from_pretrained(out)
    assert len(tokenizer) == model.config.vocab_size == 8704
    assert model.config.eos_token_id == tokenizer.convert_tokens_to_ids("<|im_end|>")
    # Random weights emit every entry alike: each is text or an end mark, none is a hole.
    empty = [i for i in range(len(tokenizer)) if not tokenizer.decode([i])]
    assert empty == []
    tokens = tokenizer.encode('Book a flight.\n{"a": [1, 2]} \u00e9')
    assert tokenizer.decode(tokens) == 'Book a flight.\n{"a": [1, 2]} \u00e9'


def test_the_chat_template_only_ever_appends(tmp_path: Path) -> None:
    tokenizer = models.make_tokenizer(8704)
    docs = [{"function": {"name": "ls"}}, {"function": {"name": "cd"}}]
    dialogue = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "list"},
        {"role": "assistant", "content": "x"},
        {"role": "tool", "content": "[]"},
    ]

    def render(messages: list[dict[str, str]], **more: bool) -> str:
        text = tokenizer.apply_chat_template(messages, tools=docs, tokenize=False, **more)
        return str(text)

    for length in range(2, len(dialogue)):
        assert render(dialogue).startswith(render(dialogue[:length]))
    opening = render(dialogue[:2], add_generation_prompt=True)
    assert opening.startswith('<|im_start|>system\nBe brief.\n{"function": {"name": "ls"}}\n{"fun')
    assert opening.endswith("<|im_start|>assistant\n")
