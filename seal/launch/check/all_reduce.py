"""An all-reduce over the GPUs of this machine: `python -m seal.launch.check.all_reduce COUNT`.

In: the number of GPUs. Out: a sentence on standard output, or an exception. Every update sums
gradients over the GPUs in this way. If their links, NCCL or shared memory are broken, it fails or
hangs; this check finds out before a model is loaded.
"""

import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

VALUES = 2**24
"""Numbers of each rank, in float32: 64 MiB."""


def rank_sum(rank: int, count: int, meeting: str, device: str) -> None:
    """The work of one rank: join the others, sum up, check the sum.

    The ranks find each other by the file `meeting`, which does not exist yet.

    Raises:
        RuntimeError: The sum is wrong.
    """
    place = torch.device(device, rank) if device == "cuda" else torch.device(device)
    if device == "cuda":
        torch.cuda.set_device(place)
    dist.init_process_group(
        "nccl" if device == "cuda" else "gloo",
        init_method=f"file://{meeting}",
        rank=rank,
        world_size=count,
    )
    try:
        values = torch.full((VALUES,), float(rank + 1), device=place)
        dist.all_reduce(values)
        wrong = int((values != count * (count + 1) / 2).sum())
        if wrong:
            raise RuntimeError(f"{wrong} of {VALUES} sums are wrong on rank {rank}")
    finally:
        dist.destroy_process_group()


def all_reduce(count: int, device: str) -> float:
    """Start the ranks and wait for them; returns the seconds, including the start.

    Raises:
        torch.multiprocessing.ProcessRaisedException: A rank failed.
    """
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        meeting = str(Path(folder, "meeting"))
        mp.spawn(rank_sum, (count, meeting, device), nprocs=count)
    return time.monotonic() - started


if __name__ == "__main__":
    number = int(sys.argv[1])
    seconds = all_reduce(number, "cuda")
    sys.stdout.write(f"{number} GPUs add up {VALUES * 4 // 2**20} MiB each ({seconds:.0f} s)\n")
