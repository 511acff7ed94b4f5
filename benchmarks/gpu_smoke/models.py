"""Models with random weights and real shapes: they cost the time and memory of the real models.

In: a size. Out: a Hugging Face folder with weights drawn at random, a tokenizer and a chat
template, all made here, so no model hub is needed. Such a model has learned nothing: it is for
measuring speed and memory, never scores.
"""

import json
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from string import ascii_lowercase
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

from seal import ROOT
from seal.launch.shapes import CONFIGS, Config
from seal.warm_up.whole_folder import whole_folder

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
LEARNED = 8192
"""Entries learned from the project's own text and the tool docs; made-up words are the others."""
CORPUS = (
    "README.md",
    "docs/*.md",
    "seal/**/*.py",
    "env_service/**/*.py",
    "scripts/*.py",
    ".venv-bfcl/lib/python3*/site-packages/bfcl_eval/data/multi_turn_func_doc/*.json",
)

CHAT_TEMPLATE = """\
{%- set opening = messages[0].content if messages and messages[0].role == 'system' else '' -%}
{%- if opening or tools -%}
<|im_start|>system
{{ opening }}
{%- for tool in tools or [] -%}
{{ '\\n' }}{{ tool | tojson }}
{%- endfor -%}
<|im_end|>
{{ '' }}
{%- endif -%}
{%- for message in messages -%}
{%- if not (loop.first and message.role == 'system') -%}
<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{{ '' }}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
<|im_start|>assistant
{{ '' }}
{%- endif -%}
"""
"""Tool docs are JSON in the system message, one a line. What follows a message does not change how
it is rendered: the agent loop appends to a dialogue and never renders it anew."""

MODELS = {
    "0.5b": "Qwen/Qwen2.5-0.5B-Instruct",
    "3b": "Qwen/Qwen2.5-3B-Instruct",
    "7b": "Qwen/Qwen2.5-7B-Instruct",
}
"""The model whose shape a size has (`seal.launch.shapes`)."""
TINY: Config = {
    **CONFIGS[MODELS["0.5b"]],
    "vocab_size": 8704,
    "hidden_size": 128,
    "intermediate_size": 384,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
}
"""The shape of no real model: for trying the script on a machine without a GPU."""


def described(size: str) -> Config:
    """The model's sizes, with the keys of a config.json."""
    return TINY if size == "tiny" else CONFIGS[MODELS[size]]


def model_config(size: str) -> Any:
    """The model's configuration; ids of the special tokens are those of `make_tokenizer`."""
    sizes = dict(described(size))
    return AutoConfig.for_model(
        sizes.pop("model_type"),
        **sizes,
        bos_token_id=SPECIAL.index("<|endoftext|>"),
        eos_token_id=SPECIAL.index("<|im_end|>"),
        pad_token_id=SPECIAL.index("<|endoftext|>"),
    )


def make_tokenizer(vocabulary: int) -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer with exactly `vocabulary` entries.

    A model with random weights generates every entry with about the same probability, so every
    entry must decode to something. English and JSON are cut into pieces of about four characters,
    as the real tokenizer does.
    """
    learner = Tokenizer(models.BPE())
    learner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    learner.decoder = decoders.ByteLevel()
    learner.train_from_iterator(
        _corpus(),
        trainers.BpeTrainer(
            vocab_size=LEARNED,
            special_tokens=SPECIAL,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    entries: dict[str, int] = learner.get_vocab()
    words = ("".join(letters) for letters in product(ascii_lowercase, repeat=4))
    while len(entries) < vocabulary:
        entries.setdefault(next(words), len(entries))
    described = json.loads(learner.to_str())
    described["model"]["vocab"] = entries
    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(json.dumps(described)),
        chat_template=CHAT_TEMPLATE,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        clean_up_tokenization_spaces=False,
    )


def build(size: str, out: Path) -> None:
    """Make the model's folder, unless it exists; an interrupted build starts anew.

    Raises:
        OSError: The disk is full, or the folder cannot be written.
    """
    if (out / "config.json").is_file():
        return
    torch.manual_seed(1)
    with whole_folder(out) as folder:
        make_tokenizer(model_config(size).vocab_size).save_pretrained(folder)
        model = AutoModelForCausalLM.from_config(model_config(size), dtype=torch.bfloat16)
        model.save_pretrained(folder)


def _corpus() -> Iterator[str]:
    for pattern in CORPUS:
        for path in sorted(ROOT.glob(pattern)):
            yield from path.read_text("utf-8").splitlines(keepends=True)
