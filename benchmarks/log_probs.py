r"""Log probabilities without flash-attn: verl's loop over tokens against the project's chunks.

    .venv/bin/python -m benchmarks.log_probs           # --device, --tokens, --own, ...

Both take the logits of the same packed row and go forward and back. Without flash-attn, verl's
fallback takes the logits of all tokens, one token after the other; the project's function
(`seal.train.log_probs`) takes those of the policy's own tokens, in chunks. `--own` is the share of
these tokens. Printed are seconds, medians of the rounds (the two take turns), and the ratio of the
medians with its smallest and largest value over the rounds; with `--own 1` the ratio is that of the
algorithms alone. What the output head saves by making fewer logits is not counted. A GPU spends
some microseconds on each operation, however small, so the table has their number, too.
"""

import json
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
from rich.console import Console
from torch.utils._python_dispatch import TorchDispatchMode
from verl.utils.torch_functional import entropy_from_logits, logprobs_from_logits_v2

from benchmarks.output import command_line, figures_table
from seal.train.log_probs import token_log_probs

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def by_verl(logits: torch.Tensor, labels: torch.Tensor, entropy: bool) -> torch.Tensor:
    """Sum of verl's log probabilities (and entropies)."""
    total = logprobs_from_logits_v2(logits, labels).sum()
    return total + entropy_from_logits(logits).sum() if entropy else total


def by_project(logits: torch.Tensor, labels: torch.Tensor, entropy: bool) -> torch.Tensor:
    """Sum of the project's log probabilities (and entropies)."""
    ones = torch.ones(len(labels), device=logits.device)
    log_probs, entropies = token_log_probs(logits, labels, ones, entropy=entropy)
    return log_probs.sum() + entropies.sum()


def seconds(
    compute: Callable[[torch.Tensor, torch.Tensor, bool], torch.Tensor],
    logits: torch.Tensor,
    labels: torch.Tensor,
    entropy: bool,
) -> float:
    """Time of forward and backward, from the logits to their gradient."""
    leaf = logits.clone().requires_grad_()
    given = leaf.view_as(leaf)
    _wait(logits.device)
    started = time.perf_counter()
    torch.autograd.grad(compute(given, labels, entropy), given)
    _wait(logits.device)
    return time.perf_counter() - started


class Operations(TorchDispatchMode):
    """Counts what torch is asked to do, forward and backward."""

    count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """One operation."""
        self.count += 1
        return func(*args, **(kwargs or {}))


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def main() -> int:
    """Read the command line, measure, print a table."""
    parser = command_line("benchmarks.log_probs", __doc__)
    usual = "cuda" if torch.cuda.is_available() else "cpu"
    parser.add_argument("--device", default=usual, help=f"here {usual}")
    parser.add_argument("--tokens", type=int, default=2048, help="of the packed row (2048)")
    parser.add_argument("--own", type=float, default=0.2, help="share that the policy wrote (0.2)")
    parser.add_argument("--vocabulary", type=int, default=152064, help="Qwen2.5-7B's: 152064")
    parser.add_argument("--dtype", choices=DTYPES, default="bfloat16", help="of the logits")
    parser.add_argument("--entropy", action="store_true", help="entropies, too")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, help="write the figures")
    args = parser.parse_args()
    torch.manual_seed(1)
    logits = torch.empty(args.tokens, args.vocabulary, dtype=DTYPES[args.dtype]).normal_(std=3.0)
    logits, labels = logits.to(args.device), torch.randint(args.vocabulary, (args.tokens,))
    labels = labels.to(args.device)
    own = max(1, round(args.own * args.tokens))
    sides = {
        "verl": (by_verl, logits, labels, args.entropy),
        "project": (by_project, logits[:own], labels[:own], args.entropy),
    }
    operations = {}
    for name, side in sides.items():  # this warms both up, too
        with Operations() as counted:
            seconds(*side)
        operations[name] = counted.count
    taken: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(args.rounds):
        for name, side in sides.items():
            taken[name].append(seconds(*side))
    theirs, ours = (median(times) for times in taken.values())
    ratios = sorted(a / b for a, b in zip(*taken.values(), strict=True))
    device = torch.cuda.get_device_name() if args.device == "cuda" else "processor, not a GPU"
    title = f"{device}: {platform.machine()}, {torch.get_num_threads()} threads"
    head = ("tokens", "the policy's", "logits", "verl, s", "project, s", "ratio", "operations")
    counts = " to ".join(map(str, operations.values()))
    ratio = f"{theirs / ours:.1f} ({ratios[0]:.1f} to {ratios[-1]:.1f})"
    cells = (args.tokens, own, args.dtype, f"{theirs:.3f}", f"{ours:.3f}", ratio, counts)
    Console(width=100).print(figures_table(head, [cells], title))
    if args.json:
        settings = {key: str(value) for key, value in vars(args).items()}
        figures = {**settings, "device": device, "seconds": taken, "operations": operations}
        args.json.write_text(json.dumps(figures) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
