"""Write a checkpoint of a run as a Hugging Face folder, and check what was written.

CHECKPOINT is a global_step_<n> folder, or an experiment (experiments/<name>), of which --which says
whether the best or the last checkpoint is meant. OUT must not exist; it appears complete or not at
all. It holds weights, config, tokenizer, chat template and generation config, and works wherever a
model of the hub does: vLLM, transformers, a run's actor_rollout_ref.model.path.

Training keeps its weights in float32; the rollouts of a GPU run are in bfloat16 (--dtype bfloat16,
half the size). LoRA adapters are merged.

The check: transformers loads the folder, every tensor is compared with the checkpoint's, and so are
the logits on a chat prompt, both computed in float32. That needs 8 bytes of memory a parameter.
Exit status: 0, or 1 with one sentence that says what is wrong.
"""

import argparse
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from accelerate import init_empty_weights  # type: ignore[import-untyped]
from tqdm import tqdm
from transformers import AutoConfig, AutoTokenizer, GenerationConfig
from verl.model_merger.base_model_merger import ModelMergerConfig
from verl.model_merger.fsdp_model_merger import FSDPModelMerger

from seal.train.checkpoints import CheckpointError, find
from seal.train.shards import ShardError, read_weights

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
ATTENTION = "sdpa"
"""How both sides of the comparison compute; runs on every machine."""
MAX_RELATIVE_DIFFERENCE = 1e-5
"""Of logits with equal weights, to the largest logit: the order of sums may differ, no more."""
MESSAGES = [
    {"role": "system", "content": "You can call tools. Answer when the task is done."},
    {"role": "user", "content": "Which files are in the folder 'reports', and how large are they?"},
]
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "ls",
            "description": "List the files of the current folder.",
            "parameters": {"type": "object", "properties": {"a": {"type": "boolean"}}},
        },
    }
]


class ExportError(Exception):
    """The folder cannot be written, or is not what it should be; the message says why."""


@dataclass(frozen=True)
class Check:
    """What the comparison of the written folder with the checkpoint found."""

    parameters: int
    tokens: int
    """Of the prompt."""
    difference: float
    """Largest difference of a logit, both sides with the weights as written."""
    rounding: float
    """Largest change of a logit that the change of dtype made; 0.0 without one."""


def export(checkpoint: Path, out: Path, dtype: str | None) -> Check:
    """Write `out` from a complete checkpoint, in the checkpoint's dtype or another one.

    Raises:
        ShardError: The weights cannot be read.
        ExportError: `out` is there, or the check failed; nothing is left of it then.
    """
    if out.exists():
        raise ExportError(f"{out} exists; name a folder that does not")
    source = checkpoint / "actor/huggingface"
    if not (source / "config.json").is_file():
        raise ExportError(f"{source} has no config.json; expected a checkpoint of a run's")
    out.parent.mkdir(parents=True, exist_ok=True)
    # In the same file system, so that it can be renamed.
    with tempfile.TemporaryDirectory(prefix=f"{out.name}.unfinished-", dir=out.parent) as parent:
        unfinished = Path(parent) / out.name
        unfinished.mkdir()
        model, auto_class = load_checkpoint(checkpoint)
        prompt = prompt_ids(source)
        before = logits(model, prompt) if dtype else None
        if dtype:
            cast(model, DTYPES[dtype])
        print(f"writing {out}")
        write(model, source, unfinished)
        cast(model, torch.float32)
        check = compare(model, before, unfinished, prompt, auto_class)
        unfinished.rename(out)
    return check


def load_checkpoint(checkpoint: Path) -> tuple[Any, Any]:
    """The checkpoint's model on the CPU in its own dtype, and the auto class that loads it.

    Raises:
        ShardError: The weights cannot be read.
        ExportError: They are not those of the model that config.json describes.
    """
    actor = checkpoint / "actor"
    source = actor / "huggingface"
    weights = read_weights(actor, lambda files: tqdm(files, desc="shards", unit="file"))
    config = AutoConfig.from_pretrained(source)
    merger = FSDPModelMerger(
        ModelMergerConfig("merge", "fsdp", local_dir=str(actor), hf_model_config_path=str(source))
    )
    try:
        auto_class = merger.get_transformers_auto_model_class()
    except (TypeError, NotImplementedError):
        raise ExportError(
            f"{source / 'config.json'} has architectures {config.architectures}; expected the name "
            "of a causal language model"
        ) from None
    # A run's override of how attention is computed is no property of the model.
    vars(config).pop("attn_implementation", None)
    with init_empty_weights():
        model = auto_class.from_config(config, attn_implementation=ATTENTION)
    try:
        _, unexpected = model.load_state_dict(weights, strict=False, assign=True)
    except RuntimeError as error:
        reason = " ".join(str(error).split())
        raise ExportError(f"the weights do not fit {source / 'config.json'}: {reason}") from None
    model.tie_weights()
    missing = [name for name, tensor in model.state_dict().items() if tensor.is_meta]
    if missing or unexpected:
        wrong = [f"no {name}" for name in missing] + [f"unknown {name}" for name in unexpected]
        raise ExportError(
            f"the weights are not those of {source / 'config.json'}: {', '.join(wrong[:3])}"
            f"{', ...' if len(wrong) > 3 else ''}"
        )
    if (source / "generation_config.json").is_file():
        model.generation_config = GenerationConfig.from_pretrained(source)
    return model.eval(), auto_class


def cast(model: Any, dtype: torch.dtype) -> None:
    """Change the dtype of parameters, and of nothing that the model computes from its config."""
    for parameter in model.parameters():
        parameter.data = parameter.data.to(dtype)


def write(model: Any, source: Path, folder: Path) -> None:
    """Weights and config from the model, everything else as the run saved it."""
    model.save_pretrained(folder)
    for path in source.iterdir():
        # A checkpoint may hold weights here, too (save_contents: hf_model), in another dtype.
        weights = path.suffix in (".safetensors", ".bin") or path.name.endswith(".index.json")
        if path.is_file() and path.name != "config.json" and not weights:
            shutil.copyfile(path, folder / path.name)
    for path in folder.iterdir():
        # safetensors makes its files unreadable for others.
        shutil.copymode(folder / "config.json", path)


def prompt_ids(folder: Path) -> torch.Tensor:
    """A chat prompt with a tool as token ids (1, tokens), by the run's own chat template.

    Raises:
        ExportError: There is no tokenizer with a chat template.
    """
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder)
        text = tokenizer.apply_chat_template(
            MESSAGES, tools=TOOLS, add_generation_prompt=True, tokenize=False
        )
        ids = tokenizer(text, add_special_tokens=False, return_tensors="pt")["input_ids"]
        if not ids.numel():
            raise ValueError("its tokenizer knows no token")
        return ids
    except (OSError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise ExportError(f"{folder} has no tokenizer with a chat template ({reason})") from error


def logits(model: Any, prompt: torch.Tensor) -> torch.Tensor:
    """Logits of every position (tokens, vocabulary), computed in float32."""
    with torch.inference_mode():
        return model(input_ids=prompt).logits[0].float()


def compare(
    model: Any, before: torch.Tensor | None, folder: Path, prompt: torch.Tensor, auto_class: Any
) -> Check:
    """Load what was written and hold it against the checkpoint's model, both in float32.

    Args:
        model: The checkpoint's, rounded to the written dtype.
        before: Its logits before that; None where nothing was rounded.
        folder: What was written.
        prompt: Token ids (1, tokens).
        auto_class: Loads the folder.

    Raises:
        ExportError: They differ.
    """
    print("checking")
    written = auto_class.from_pretrained(
        folder, dtype=torch.float32, attn_implementation=ATTENTION
    ).eval()
    if not torch.equal(prompt_ids(folder), prompt):
        raise ExportError("the written tokenizer makes other tokens of a prompt than the run's")
    expected, found = model.state_dict(), written.state_dict()
    for name in expected.keys() | found.keys():
        if (
            name not in expected
            or name not in found
            or not torch.equal(expected[name], found[name])
        ):
            raise ExportError(f"{name} is not in the written folder what it is in the checkpoint")
    wanted, got = logits(model, prompt), logits(written, prompt)
    difference = float((wanted - got).abs().max())
    if not difference <= MAX_RELATIVE_DIFFERENCE * float(wanted.abs().max()):
        raise ExportError(f"the written model's logits differ by up to {difference:.3g}")
    return Check(
        parameters=sum(one.numel() for one in written.parameters()),
        tokens=prompt.shape[1],
        difference=difference,
        rounding=0.0 if before is None else float((before - wanted).abs().max()),
    )


def report(check: Check, out: Path, dtype: str | None) -> Iterator[str]:
    """What the user is told."""
    size = sum(path.stat().st_size for path in out.iterdir())
    saved = dtype or "the checkpoint's dtype"
    yield f"{out}: {check.parameters:,} parameters in {saved}, {size / 1e9:.2f} GB"
    yield (
        f"loads; every tensor is equal, and the largest difference of a logit on a prompt of "
        f"{check.tokens} tokens is {check.difference:.3g}"
    )
    if dtype:
        yield f"rounding to {dtype} changed a logit by {check.rounding:.3g} at most"


def parse_arguments(argv: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkpoint", type=Path, metavar="CHECKPOINT", help="what to export")
    parser.add_argument("out", type=Path, metavar="OUT", help="folder to make")
    parser.add_argument(
        "--which",
        choices=("best", "last"),
        default="best",
        help="checkpoint of an experiment (default: %(default)s)",
    )
    parser.add_argument(
        "--dtype", choices=tuple(DTYPES), help="dtype of the weights (default: the checkpoint's)"
    )
    return parser.parse_args(argv)


def main(argv: list[str]) -> int:
    """Read the command line, write and check the folder; the exit code tells success."""
    args = parse_arguments(argv)
    try:
        checkpoint = find(args.checkpoint, args.which)
        print(f"reading {checkpoint}")
        check = export(checkpoint, args.out, args.dtype)
    except (CheckpointError, ShardError, ExportError, OSError) as error:
        print(f"export_hf: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"export_hf: interrupted; {args.out} was not written", file=sys.stderr)
        return 130
    for line in report(check, args.out, args.dtype):
        print(line)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
