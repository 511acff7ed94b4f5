"""The tiny policy's tokenizer: a small byte-level BPE that lets the policy copy.

In: demonstrations. Out: a tokenizer with the tiny policy's chat template. A tool's whole signature,
and the frame of a call, are pieces of their own, so dialogues are short. Words, punctuation and
spaces are apart everywhere, so that a name has the same tokens in a request and in a call: with
" notes" in one and "notes" in the other there would be nothing to copy.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

CHAT_TEMPLATE = Path(__file__).with_name("tiny_policy_chat_template.jinja")
VOCABULARY = 2048
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MARKS = ["<tool_call>", "</tool_call>"]
"""No special tokens: skip_special_tokens=True must keep them, because the service parses them."""
PIECES = "|".join(
    (
        r" ?\w+\([^()\s]*\)",  # a tool's signature, as the chat template writes it
        r'\{"name": "',
        r'", "arguments": \{"?',
        r"\w+",
        r"[^\w\s]+(?: [^\w\s]+)*",  # punctuation, also around single spaces: ": "
        r"\s+",
    )
)
"""What a token can be a part of."""


def train_tokenizer(demonstrations: Sequence[dict[str, Any]]) -> PreTrainedTokenizerFast:
    """A byte-level BPE over the demonstrations as the chat template renders them."""
    tokenizer = Tokenizer(models.BPE())
    pieces = pre_tokenizers.Split(Regex(PIECES), "isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pieces, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY - len(MARKS),
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    untrained = _with_template(tokenizer)
    rendered = (
        untrained.apply_chat_template(demo["messages"], tools=demo["tools"], tokenize=False)
        for demo in demonstrations
    )
    marks = re.compile("|".join(map(re.escape, [*SPECIAL, *MARKS])))
    tokenizer.train_from_iterator((marks.sub("\n", text) for text in rendered), trainer)
    tokenizer.add_tokens([AddedToken(mark, normalized=False, special=False) for mark in MARKS])
    return _with_template(tokenizer)


def _with_template(tokenizer: Tokenizer) -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        chat_template=CHAT_TEMPLATE.read_text("utf-8"),
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        clean_up_tokenization_spaces=False,
    )
