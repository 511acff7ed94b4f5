"""An update on recorded dialogues with torch and transformers alone: `gpu_smoke.py --trainer-only`.

In: a size of `models`, a device, `data/recorded_batch.json`. Out: seconds, tokens a second and peak
memory of forward and backward passes and of the optimizer's step, beside the memory plan, and how
far bfloat16 is from float32. It needs neither verl nor vLLM nor Ray. It uses FSDP2 on one rank,
float32 weights that are computed with in bfloat16, gradient checkpointing, and the project's log
probabilities of the policy's own tokens. It measures nothing of a rollout.
"""

import contextlib
import json
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from transformers import AutoModelForCausalLM

from benchmarks.gpu_smoke import models
from benchmarks.gpu_smoke.kept import SmokeError, once, same_settings
from benchmarks.gpu_smoke.sampling import NoGpuError
from benchmarks.output import figure, markdown
from seal import ROOT
from seal.launch.memory import ASIDE_BYTES, Settings, plan
from seal.launch.recipe import attention
from seal.launch.shapes import shape_of
from seal.train.log_probs import give_head_rows, token_log_probs

ROWS = (
    ("device", "device", ""),
    ("torch", "torch", ""),
    ("model's shape, weights drawn at random", "size", ""),
    ("attention", "attention", ""),
    ("dialogues of an update, one a micro-batch", "dialogues", ""),
    ("their tokens", "tokens", ","),
    ("of these, the policy's", "own_tokens", ","),
    ("forward and backward of all, s (mean after the first update)", "passes_s", ".2f"),
    ("optimizer, s", "optimizer_s", ".3f"),
    ("tokens a second of forward and backward", "tokens_s", ".0f"),
    ("peak of torch's allocator, GB", "peak_gb", ".1f"),
    ("the same by the memory plan, GB", "planned_gb", ".1f"),
    ("log probability in bfloat16 against float32: mean distance, nats", "rounding", ".5f"),
    ("the largest of them", "rounding_max", ".4f"),
    ("loss, summed over updates", "loss", ".4f"),
)
"""Title, key, format."""
RECORDED = ROOT / "data/recorded_batch.json"


@dataclass(frozen=True)
class Updates:
    """What is measured."""

    size: str
    """Of `models`."""
    device: str
    """Either "cuda" or "cpu"."""
    dialogues: int
    """Of an update."""
    number: int
    """Updates that are measured, after one that warms up."""


@dataclass(frozen=True)
class RecordedDialogue:
    """Tokens of a rollout, drawn at random, in a recorded layout."""

    ids: torch.Tensor
    """Shape (tokens,)."""
    own: torch.Tensor
    """Positions whose next token is the policy's; ascending."""


def recorded(number: int, vocabulary: int, device: str) -> list[RecordedDialogue]:
    """The first dialogues of the recorded batch.

    Token ids are drawn below `vocabulary`.
    """
    layouts: list[list[int]] = json.loads(RECORDED.read_text("utf-8"))["dialogues"]
    draw = torch.Generator().manual_seed(1)
    dialogues = []
    for lengths in layouts[:number]:
        own: list[int] = []
        start = 0
        for place, length in enumerate(lengths):
            if place % 2:
                own += range(start - 1, start + length - 1)
            start += length
        ids = torch.randint(3, vocabulary, (start,), generator=draw)
        dialogues.append(RecordedDialogue(ids.to(device), torch.tensor(own, device=device)))
    return dialogues


def measure(wanted: Updates, say: Callable[[str], None]) -> dict[str, Any]:
    """Run a few updates; returns what was measured, by the keys in `ROWS`.

    Raises:
        NoGpuError: torch sees no GPU.
        SmokeError: The GPU is too small.
    """
    if wanted.device == "cuda" and not torch.cuda.is_available():
        raise NoGpuError("torch sees no GPU; on a machine without one try: --cpu")
    try:
        return _measure(wanted, say)
    except torch.OutOfMemoryError as error:
        raise SmokeError(f"{wanted.size} does not fit this GPU: {error}") from error


def _measure(wanted: Updates, say: Callable[[str], None]) -> dict[str, Any]:
    device = wanted.device
    config = models.model_config(wanted.size)
    kind = attention() if device == "cuda" else "sdpa"
    say(f"{wanted.size}: a model of random weights, {kind}")
    torch.manual_seed(1)
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(
            config, dtype=torch.float32, attn_implementation=kind
        )
    batch = recorded(wanted.dialogues, config.vocab_size, device)
    chosen: list[torch.Tensor | None] = [None]
    give_head_rows(model, lambda: chosen[0])
    with torch.no_grad():
        exact = _log_probs(model, batch[0], chosen)
    with _one_rank(device):
        _shard(model, device)
        model.gradient_checkpointing_enable({"use_reentrant": False})
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6, foreach=True)
        with torch.no_grad():
            away = (_log_probs(model, batch[0], chosen) - exact).abs()
        model.train()
        passes, steps, loss = [], [], 0.0
        for number in range(wanted.number + 1):
            if number == 1 and device == "cuda":
                torch.cuda.reset_peak_memory_stats()
            begun = _now(device)
            loss += _forward_and_backward(model, batch, chosen)
            passed = _now(device)
            optimizer.step()
            optimizer.zero_grad()
            passes.append(passed - begun)
            steps.append(_now(device) - passed)
            say(f"  update {number}: {passes[-1]:.2f} s")
    tokens = sum(len(dialogue.ids) for dialogue in batch)
    return {
        "device": torch.cuda.get_device_name() if device == "cuda" else "processor",
        "torch": torch.__version__,
        "size": wanted.size,
        "attention": kind,
        "dialogues": len(batch),
        "tokens": tokens,
        "own_tokens": sum(len(dialogue.own) for dialogue in batch),
        "passes_s": fmean(passes[1:]),
        "optimizer_s": fmean(steps[1:]),
        "tokens_s": tokens / fmean(passes[1:]),
        "peak_gb": torch.cuda.max_memory_allocated() / 1e9 if device == "cuda" else None,
        "planned_gb": planned(wanted.size, batch) / 1e9,
        "rounding": float(away.mean()),
        "rounding_max": float(away.max()),
        "loss": loss,
    }


def _forward_and_backward(
    model: Any, batch: Sequence[RecordedDialogue], chosen: list[torch.Tensor | None]
) -> float:
    """Passes of an update; returns the loss. Advantages are 1 and -1 by turns."""
    loss = 0.0
    for place, dialogue in enumerate(batch):
        log_probs = _log_probs(model, dialogue, chosen)
        # The old log probabilities are the new ones.
        ratio = (log_probs - log_probs.detach()).exp()
        part = -ratio.mean() * (1.0 if place % 2 else -1.0) / len(batch)
        part.backward()
        loss += float(part.detach())
    return loss


def report(wanted: Updates, out: Path, say: Callable[[str], None]) -> str:
    """Measure, and write `update.json` and `update.md`; what was measured already is read.

    Returns:
        The page in `update.md`.

    Raises:
        SmokeError: As `measure`, or the folder holds another measurement.
    """
    out.mkdir(parents=True, exist_ok=True)
    same_settings(out / "settings.json", list(map(str, vars(wanted).values())))
    figures = once(out / "update.json", lambda: measure(wanted, say))
    text = page(figures)
    (out / "update.md").write_text(text, "utf-8")
    return text


def page(figures: Mapping[str, Any]) -> str:
    """The figures as a Markdown page."""
    rows = ((name, figure(figures[key], style)) for name, key, style in ROWS)
    lines = ["# An update on recorded dialogues, torch alone", "", *markdown(["", ""], rows)]
    return "\n".join(lines) + "\n"


def planned(size: str, batch: Sequence[RecordedDialogue]) -> int:
    """Bytes of an update by the closed form, for the longest dialogue."""
    longest = max(batch, key=lambda dialogue: len(dialogue.ids))
    settings = Settings(
        gpus=1,
        tokens=len(longest.ids),
        own=max(len(dialogue.own) for dialogue in batch),
        offload="none",
        utilization=0.0,
        tensor_parallel=1,
        bucket_bytes=0,
        dialogue=len(longest.ids),
    )
    return plan(shape_of(models.described(size)), settings).update - ASIDE_BYTES


def _log_probs(
    model: Any, dialogue: RecordedDialogue, chosen: list[torch.Tensor | None]
) -> torch.Tensor:
    """Log probabilities of the policy's tokens, shape (own,)."""
    chosen[0] = dialogue.own
    logits = model(input_ids=dialogue.ids[None], use_cache=False).logits[0]
    labels = dialogue.ids[dialogue.own + 1]
    log_probs, _ = token_log_probs(logits, labels, torch.ones(len(labels), device=labels.device))
    return log_probs


def _shard(model: Any, device: str) -> None:
    """Shard the model as verl's FSDP2 engine does: layer by layer, then the rest."""
    mesh = init_device_mesh(device, (1,))
    precision = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh, mp_policy=precision)
    fully_shard(model, mesh=mesh, mp_policy=precision)


@contextlib.contextmanager
def _one_rank(device: str) -> Iterator[None]:
    """A process group of this process alone."""
    with tempfile.TemporaryDirectory() as folder:
        backend = "nccl" if device == "cuda" else "gloo"
        dist.init_process_group(backend, init_method=f"file://{folder}/store", rank=0, world_size=1)
        try:
            yield
        finally:
            dist.destroy_process_group()


def _now(device: str) -> float:
    if device == "cuda":
        torch.cuda.synchronize()
    return time.monotonic()
