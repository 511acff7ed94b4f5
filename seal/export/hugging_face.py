"""A checkpoint as a Hugging Face folder that was compared with what it was made of.

In: a `global_step_<n>` folder of a run. Out: weights, config, tokenizer, chat template and
generation config in one folder, which appears complete or not at all; and what the comparison found
(`Check`).

transformers loads the written folder. Then every tensor is compared with the checkpoint's, and so
are the logits on a chat prompt, both computed in float32. That takes 8 bytes of memory a parameter.
"""

import shutil
import tempfile
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from accelerate import init_empty_weights  # type: ignore[import-untyped]
from transformers import AutoConfig, AutoTokenizer, GenerationConfig
from verl.model_merger.base_model_merger import ModelMergerConfig
from verl.model_merger.fsdp_model_merger import FSDPModelMerger

from seal.export.shards import ExportError, read_weights

Progress = Callable[[list[Path]], AbstractContextManager[Iterable[Path]]]
"""Wraps files while they are read, e.g. tqdm."""

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
ATTENTION = "sdpa"
"""How both sides of the comparison compute attention; it runs on every machine."""
MAX_RELATIVE_DIFFERENCE = 1e-5
"""Of logits with equal weights, to the largest logit: only the order of sums may differ."""
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


@dataclass(frozen=True)
class Check:
    """What the comparison of the written folder with the checkpoint found."""

    parameters: int
    tokens: int
    """Of the prompt."""
    difference: float
    """Largest difference of a logit, both sides with the weights as written."""
    rounding: float
    """Largest change of a logit by the change of dtype; 0.0 if the dtype is the checkpoint's."""


def export(
    checkpoint: Path, out: Path, dtype: str | None, progress: Progress, say: Callable[[str], None]
) -> Check:
    """Write `out` from a complete checkpoint.

    Args:
        checkpoint: The folder of a step.
        out: The folder to make.
        dtype: One of `DTYPES`; None: the checkpoint's.
        progress: Wraps the shards while they are read.
        say: Called with what is being done.

    Raises:
        ExportError: The weights cannot be read, `out` exists, or the check failed; then nothing is
            left of it.
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
        model, auto_class = load_checkpoint(checkpoint, progress)
        prompt = prompt_ids(source)
        before = None
        if dtype:
            cast(model, torch.float32)
            before = logits(model, prompt)
            cast(model, DTYPES[dtype])
        say(f"writing {out}")
        write(model, source, unfinished)
        cast(model, torch.float32)
        say("checking")
        check = compare(model, before, unfinished, prompt, auto_class)
        unfinished.rename(out)
    return check


def load_checkpoint(checkpoint: Path, progress: Progress) -> tuple[Any, Any]:
    """The checkpoint's model on the CPU in its own dtype, and the auto class that loads it.

    Raises:
        ExportError: The weights cannot be read, or are not those of the model that config.json
            describes.
    """
    actor = checkpoint / "actor"
    source = actor / "huggingface"
    weights = read_weights(actor, progress)
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
    # How a run computed attention is no property of the model.
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
    """Change the dtype of the parameters, but not of what the model computes from its config."""
    for parameter in model.parameters():
        parameter.data = parameter.data.to(dtype)


def write(model: Any, source: Path, folder: Path) -> None:
    """Write weights and config from the model, and copy every other file that the run saved."""
    model.save_pretrained(folder)
    for path in source.iterdir():
        # A checkpoint may hold weights here, too (save_contents: hf_model), in another dtype.
        weights = path.suffix in (".safetensors", ".bin") or path.name.endswith(".index.json")
        if path.is_file() and path.name != "config.json" and not weights:
            shutil.copyfile(path, folder / path.name)
    for path in folder.iterdir():
        # safetensors makes its files unreadable for other users.
        shutil.copymode(folder / "config.json", path)


def prompt_ids(folder: Path) -> torch.Tensor:
    """A chat prompt with a tool as token ids, shape (1, tokens), by the folder's chat template.

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
    """Logits of every position in float32, shape (tokens, vocabulary)."""
    with torch.inference_mode():
        return model(input_ids=prompt).logits[0].float()


def compare(
    model: Any, before: torch.Tensor | None, folder: Path, prompt: torch.Tensor, auto_class: Any
) -> Check:
    """Load what was written and compare it with the checkpoint's model, both in float32.

    The model's weights have been rounded to the written dtype. `before` are its logits before that;
    None: nothing was rounded.

    Raises:
        ExportError: They differ.
    """
    written = auto_class.from_pretrained(
        folder, dtype=torch.float32, attn_implementation=ATTENTION
    ).eval()
    if not torch.equal(prompt_ids(folder), prompt):
        raise ExportError("the written tokenizer makes other tokens of a prompt than the run's")
    expected, loaded = model.state_dict(), written.state_dict()
    for name in expected.keys() | loaded.keys():
        both = name in expected and name in loaded
        if not both or not torch.equal(expected[name], loaded[name]):
            raise ExportError(f"{name} is not in the written folder what it is in the checkpoint")
    wanted, got = logits(model, prompt), logits(written, prompt)
    difference = float((wanted - got).abs().max())
    if not difference <= MAX_RELATIVE_DIFFERENCE * float(wanted.abs().max()):
        raise ExportError(f"the written model's logits differ by up to {difference:.3g}")
    return Check(
        parameters=sum(weight.numel() for weight in written.parameters()),
        tokens=prompt.shape[1],
        difference=difference,
        rounding=0.0 if before is None else float((before - wanted).abs().max()),
    )
