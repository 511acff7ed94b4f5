"""Behaviour cloning of demonstrations, in a few processes of one thread each.

In: a causal model's folder and batches of dialogues as tokens. Out: its weights, a line of
loss.jsonl a step, and every few minutes a state to go on from.

There are several processes of one thread, and not one process of several threads: if other work
runs on the machine, two threads that meet at thousands of barriers a step become four times slower
than one. The processes meet once a step, to add up their gradients (gloo). If the processor
multiplies bfloat16, the model computes in it; the optimiser changes float32 weights that are kept
beside it.
"""

import contextlib
import math
import random
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing
from tqdm import tqdm
from transformers import AutoModelForCausalLM

from seal.launch.listening import free_port
from seal.records.json_lines import append_json_lines
from seal.records.whole_file import whole_file
from seal.warm_up.supervised import TokenizedDialogue, summed_loss

LOSSES = "loss.jsonl"
STATE = "state.pt"
WEIGHTS = "weights"
SAVED_EVERY_S = 300.0
WARMING_STEPS = 10
"""Steps in which the learning rate rises."""
LEAST_RATE = 0.02
"""The last learning rate, as a share of the peak."""


Steps = tuple[tuple[TokenizedDialogue, ...], ...]


@dataclass(frozen=True)
class Training:
    """What is trained on what, and where the results are written."""

    model: str
    """Folder of the causal model."""
    steps: Steps
    """Dialogues of each optimiser step."""
    folder: Path
    """Where losses, state and weights are written."""
    dtype: str
    """The type to compute in: bfloat16 or float32."""
    learning_rate: float
    """At its peak."""
    seed: int


def in_steps(dialogues: Sequence[TokenizedDialogue], batch: int, seed: int) -> Steps:
    """Optimiser steps of `batch` dialogues in random order."""
    order = random.Random(seed).sample(dialogues, len(dialogues))
    return tuple(tuple(order[start : start + batch]) for start in range(0, len(order), batch))


def run(training: Training, processes: int) -> None:
    """Train in so many processes, and wait for them.

    Raises:
        KeyboardInterrupt: Ctrl-C; the state was saved.
        Exception: A process failed.
    """
    stop = multiprocessing.get_context("spawn").Event()
    with _ignoring_interrupts():
        running = multiprocessing.start_processes(
            train,
            args=(processes, free_port(), training, stop),
            nprocs=processes,
            join=False,
            start_method="spawn",
        )
    ended = False
    while not ended:
        try:
            ended = running.join(timeout=1.0)
        except KeyboardInterrupt:
            tqdm.write("warm_up: keeping what was learnt", file=sys.stderr)
            stop.set()
    if stop.is_set():
        raise KeyboardInterrupt


@contextlib.contextmanager
def _ignoring_interrupts() -> Iterator[None]:
    """Processes started inside do not see the terminal's Ctrl-C: the parent tells them to stop."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def train(rank: int, processes: int, port: int, training: Training, stop: Event) -> None:
    """What each process does; at the end of the training, weights are in `training.folder`/weights.

    The processes meet at a port of 127.0.0.1. Once `stop` is set, the state is saved and the
    training ends early.
    """
    torch.set_num_threads(1)
    torch.manual_seed(training.seed)
    store = dist.TCPStore("127.0.0.1", port, processes, rank == 0)
    dist.init_process_group(
        "gloo", store=store, rank=rank, world_size=processes, timeout=timedelta(minutes=10)
    )
    try:
        _Worker(rank, processes, training).run(stop)
    finally:
        dist.destroy_process_group()


def rate(step: int, steps: int, peak: float) -> float:
    """The learning rate of a step: a short rise, then a cosine."""
    fallen = 0.5 * (1 + math.cos(math.pi * step / steps))
    return peak * min(1.0, (step + 1) / WARMING_STEPS) * max(LEAST_RATE, fallen)


def shares(batch: Sequence[TokenizedDialogue], processes: int) -> list[list[TokenizedDialogue]]:
    """A batch's dialogues for each process, with about the same number of tokens."""
    parts: list[list[TokenizedDialogue]] = [[] for _ in range(processes)]
    for longest in sorted(batch, key=lambda dialogue: -len(dialogue.ids)):
        min(parts, key=lambda part: sum(len(dialogue.ids) for dialogue in part)).append(longest)
    return parts


class _Worker:
    def __init__(self, rank: int, processes: int, training: Training) -> None:
        self.rank, self.processes, self.training = rank, processes, training
        dtype = getattr(torch, training.dtype)
        self.model: Any = AutoModelForCausalLM.from_pretrained(training.model, dtype=dtype)
        self.model.train()
        # The word embeddings, a fifth of a small model, need not change.
        self.model.get_input_embeddings().weight.requires_grad_(False)
        self.trained = [
            parameter for parameter in self.model.parameters() if parameter.requires_grad
        ]
        self.weights = [parameter.detach().float().clone() for parameter in self.trained]
        self.optimizer = torch.optim.AdamW(
            self.weights,
            lr=training.learning_rate,
            betas=(0.9, 0.97),
            weight_decay=0.01,
            fused=True,
        )
        self.sizes = [parameter.numel() for parameter in self.trained]
        self.gradient = torch.zeros(sum(self.sizes))
        self.step = self._restored()

    def run(self, stop: Event) -> None:
        """Train to the end, or until `stop` is set; write weights or a state."""
        training, saved = self.training, time.monotonic()
        bar = tqdm(
            training.steps,
            "warming up",
            initial=self.step,
            disable=self.rank != 0,
            unit="step",
            mininterval=5.0,
        )
        while self.step < len(training.steps):
            line = self._step(training.steps[self.step])
            self.step += 1
            if self.rank == 0:
                append_json_lines(training.folder / LOSSES, line)
                bar.set_postfix(loss=f"{line['loss']:.3f}", refresh=False)
                bar.update()
            stopped = self._agreed(stop.is_set())
            if self.rank == 0 and (stopped or time.monotonic() - saved > SAVED_EVERY_S):
                self._save()
                saved = time.monotonic()
            if stopped:
                return
        bar.close()
        if self.rank == 0:
            for parameter, weight in zip(self.trained, self.weights, strict=True):
                parameter.data = weight
            self.model.float().save_pretrained(training.folder / WEIGHTS)

    def _step(self, batch: Sequence[TokenizedDialogue]) -> dict[str, Any]:
        started = time.monotonic()
        learnt = sum(sum(dialogue.learn) for dialogue in batch)
        total = torch.zeros(1)
        for dialogue in shares(batch, self.processes)[self.rank]:
            loss, _ = summed_loss(self.model, [dialogue], pad=0)
            (loss / learnt).backward()
            total += loss.detach() / learnt
        gradients = [parameter.grad for parameter in self.trained]
        for part, gradient in zip(self.gradient.split(self.sizes), gradients, strict=True):
            # A process that gets no dialogue of a small batch has no gradients.
            part.zero_() if gradient is None else part.copy_(gradient.reshape(-1))
        dist.all_reduce(self.gradient)
        dist.all_reduce(total)
        norm = float(self.gradient.norm())
        self.gradient.mul_(min(1.0, 1.0 / (norm + 1e-6)))
        learning_rate = rate(self.step, len(self.training.steps), self.training.learning_rate)
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate
        parts = self.gradient.split(self.sizes)
        for weight, part in zip(self.weights, parts, strict=True):
            weight.grad = part.view_as(weight)
        self.optimizer.step()
        for parameter, weight in zip(self.trained, self.weights, strict=True):
            parameter.data.copy_(weight)
            parameter.grad = None
        return {
            "step": self.step + 1,
            "loss": float(total),
            "gradient_norm": norm,
            "learning_rate": learning_rate,
            "tokens": sum(len(dialogue.ids) for dialogue in batch),
            "learnt_tokens": learnt,
            "seconds": time.monotonic() - started,
        }

    def _agreed(self, wanted: bool) -> bool:
        """Whether any of the processes is to stop; the answer is the same in all."""
        votes = torch.tensor([float(wanted)])
        dist.all_reduce(votes)
        return bool(votes > 0)

    def _restored(self) -> int:
        """Load the saved state, if there is one; returns the number of steps done."""
        path, step = self.training.folder / STATE, 0
        if path.exists():
            state = torch.load(path, weights_only=True)
            for weight, parameter, kept in zip(
                self.weights, self.trained, state["weights"], strict=True
            ):
                weight.copy_(kept)
                parameter.data.copy_(kept)
            self.optimizer.load_state_dict(state["optimizer"])
            step = int(state["step"])
        losses = self.training.folder / LOSSES
        if self.rank == 0 and losses.exists():
            # Steps after the saved state are taken again.
            done = losses.read_text("utf-8").splitlines(keepends=True)[:step]
            losses.write_text("".join(done), "utf-8")
        return step

    def _save(self) -> None:
        state = {
            "step": self.step,
            "weights": self.weights,
            "optimizer": self.optimizer.state_dict(),
        }
        with whole_file(self.training.folder / STATE) as path:
            torch.save(state, path)
