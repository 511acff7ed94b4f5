"""A few rounds of exp/quickstart.yaml."""

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from seal.launch.listening import free_port
from seal.launch.processes import Family
from seal.records.json_lines import LineReader

ROOT = Path(__file__).resolve().parents[1]
ROLLOUTS = 32
CORRELATION = "training/rollout_actor_probs_pearson_corr"


def read_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


@dataclass(frozen=True)
class Finished:
    """A launcher process that has ended, and what it left behind."""

    name: str
    port: int
    """Of its service."""
    code: int
    output: str

    @property
    def folder(self) -> Path:
        return ROOT / "experiments" / self.name

    def rounds(self) -> list[dict[str, Any]]:
        return read_lines(self.folder / "loop/rounds.jsonl")

    def correlations(self) -> list[float]:
        metrics = [line["data"] for line in read_lines(self.folder / "metrics.jsonl")]
        return [line[CORRELATION] for line in metrics if CORRELATION in line]

    def validation(self, step: int) -> list[dict[str, Any]]:
        log = ROOT / "experiments/tech_synthetic" / self.name / "validation_log" / f"{step}.jsonl"
        return read_lines(log)


@dataclass
class ShortRun:
    """A launcher process.

    Example: `ShortRun("mine", ["trainer.save_freq=1"], steps=2).wait()`.
    """

    name: str
    overrides: Sequence[str]
    steps: int
    options: Sequence[str] = ()
    port: int = field(default_factory=free_port)

    def __post_init__(self) -> None:
        command = [
            *(sys.executable, "launcher.py", "--conf=exp/quickstart.yaml", "--with-bfcl"),
            *(*self.options, "--"),
            f"trainer.experiment_name={self.name}",
            f"env_service.env_url=http://127.0.0.1:{self.port}",
            f"trainer.total_training_steps={self.steps}",
            # The policy has to move, not to become better.
            "seal.start_gate=null",
            "actor_rollout_ref.actor.optim.lr=1e-3",
            "actor_rollout_ref.actor.entropy_coeff=0.01",
            "env_service.max_tokens_per_step=96",
            # Has verl compute the actor's own probabilities, too, and compare.
            "algorithm.rollout_correction.bypass_mode=false",
            f"data.train_batch_size={ROLLOUTS // 8}",
            *self.overrides,
        ]
        self._log = ROOT / f"experiments/{self.name}.output"
        self._log.parent.mkdir(exist_ok=True)
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT / "tests/e2e")},
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def is_over(self) -> bool:
        return self._process.poll() is not None

    def wait(self) -> Finished:
        """Wait for its end."""
        code = self._process.wait()
        return Finished(self.name, self.port, code, self._log.read_text("utf-8"))

    def wait_for_phase(self, name: str, step: int) -> None:
        """Wait until the trainer begins something, e.g. the rollouts of step 3."""
        phases = ROOT / "experiments" / self.name / "loop/phases.jsonl"
        begun = {"phase": name, "step": step}
        while not self.is_over():
            if any(begun.items() <= line.items() for line in LineReader(phases).new()):
                return
            time.sleep(0.2)
        raise AssertionError(self.wait().output)

    def processes(self, title: str) -> list[psutil.Process]:
        """Its processes whose command line has `title` in it."""
        lock = ROOT / f"launcher_record/{self.name}.lock"
        members = Family(json.loads(lock.read_text("utf-8"))["launch_id"]).members()
        return [member for member in members if title in " ".join(words(member))]

    def kill(self, title: str) -> None:
        """Kill one of its processes whose command line has `title` in it."""
        self.processes(title)[-1].kill()

    def kill_workers(self, killed: list[int]) -> None:
        """From now on, every two seconds, kill a worker process of its service."""
        threading.Thread(target=self._kill_workers, args=(killed,), daemon=True).start()

    def _kill_workers(self, killed: list[int]) -> None:
        while not self.is_over():
            for process in psutil.process_iter():
                line = words(process)
                if "env_service" in line and str(self.port) in line:
                    with contextlib.suppress(psutil.Error, IndexError):
                        worker = process.children()[0]
                        worker.kill()
                        killed.append(worker.pid)
            time.sleep(2.0)


def words(process: psutil.Process) -> list[str]:
    """A process's command line; empty where it has ended."""
    try:
        return list(process.cmdline())
    except psutil.Error:
        return []
