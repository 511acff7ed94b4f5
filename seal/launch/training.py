"""The training process and what the launcher reads of it while it runs.

In: the recorded configuration. Out: calls of a `Watch` for every phase and round in the loop log,
and a sentence on why the training ended, if it failed. The training itself is `seal.train.main`, in
a process of its own.
"""

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from seal.launch import folders
from seal.launch.folders import RunError
from seal.launch.processes import Family, last_lines, tail
from seal.records.checkpoint_folder import abandon_after
from seal.records.loop_log import FAULT, PHASES, ROUNDS, LineReader, LoopLog

SERVICE_LOG = "service.log"
# What Ray puts before a line that a worker printed: colour, class, process id.
_RAY_PREFIX = re.compile(r"^(\x1b\[\d+m)?\([^)]*pid=\d+[^)]*\)(\x1b\[\d+m)? ?")


@dataclass
class Watch:
    """What the progress display is told: called with every new line of the loop log."""

    on_phase: Callable[[dict[str, Any]], None]
    on_round: Callable[[dict[str, Any]], None]


def ray_address(recipe: DictConfig) -> str | None:
    """The running Ray cluster that the training joins; None where it starts its own Ray."""
    address = os.environ.get("RAY_ADDRESS") or recipe.ray_kwargs.ray_init.get("address")
    return None if address in (None, "", "local") else str(address)


def prepare_resume(recipe: DictConfig, step: int) -> list[Path]:
    """Bring the run's checkpoints and logs to the state of a step, losing no metric.

    Args:
        recipe: Resolved recipe.
        step: Of the checkpoint. Rounds after it are made anew, so the loop log drops them, and
            later checkpoints must not be taken for the new ones.

    Returns:
        Where later checkpoints are now.
    """
    abandoned = abandon_after(folders.ROOT / str(recipe.trainer.default_local_dir), step)
    loop = folders.ROOT / recipe.seal.loop_dir
    # The trainer does this, too; before it starts, so that the progress bar sees new rounds only.
    LoopLog(loop).rewind(step)
    # verl empties the file that it logs to.
    metrics = loop.parent / "metrics.jsonl"
    if metrics.exists():
        number = 1
        while (kept := metrics.with_name(f"metrics.{number}.jsonl")).exists():
            number += 1
        metrics.rename(kept)
    return abandoned


def train(
    recipe: DictConfig,
    config: Path,
    family: Family,
    service: "subprocess.Popen[bytes] | None",
    watch: Watch,
) -> None:
    """Run the training process to its end.

    Args:
        recipe: Resolved recipe.
        config: The same as a file; the training process's log goes beside it.
        family: Where the process is started.
        service: The service of this launch, whose end ends the run; None for a foreign one.
        watch: Told of phases and rounds.

    Raises:
        RunError: It failed, the service or a rollout engine died under it, or it stayed in one
            phase for longer than `launcher.stall_timeout_s`.
    """
    log = config.with_name("train.log")
    loop = folders.ROOT / recipe.seal.loop_dir
    environment = {
        **{key: str(value) for key, value in recipe.launcher.environment.items()},
        "TENSORBOARD_DIR": str(loop.parent / "tensorboard"),
        "VERL_FILE_LOGGER_PATH": str(loop.parent / "metrics.jsonl"),
        "HYDRA_FULL_ERROR": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    loop.mkdir(parents=True, exist_ok=True)
    (loop / PHASES).unlink(missing_ok=True)
    command = [sys.executable, "-m", "seal.train.main", str(config)]
    trainer = family.start(command, log, environment, folders.ROOT)
    stall_s = float(recipe.launcher.stall_timeout_s)
    phases = LineReader(loop / PHASES)
    rounds = LineReader(loop / ROUNDS, from_end=True)
    phase, since, sampled = "start", time.monotonic(), 0.0
    while True:
        ended = trainer.poll() is not None
        for line in phases.new():
            if line["phase"] == FAULT:
                raise RunError(f"training failed: {line['said']}\n(log: {log})")
            phase, since = line["phase"], time.monotonic()
            watch.on_phase(line)
        for line in rounds.new():
            watch.on_round(line)
        if ended:
            break
        if service is not None and service.poll() is not None:
            raise RunError(
                f"the environment service ended during the run (exit code {service.returncode}); "
                f"nothing was rewarded for it:\n{tail(config.with_name(SERVICE_LOG), 5)}"
            )
        if time.monotonic() - since > stall_s:
            raise RunError(
                f"nothing happened for {stall_s:.0f} s in the phase {phase!r} "
                f"(launcher.stall_timeout_s); the training log may say why: {log}"
            )
        if time.monotonic() - sampled > 5.0:
            family.sample_memory()
            sampled = time.monotonic()
        time.sleep(0.5)
    if trainer.returncode != 0:
        raise RunError(f"training failed: {_reason(log)}\n(log: {log})")


def _reason(log: Path) -> str:
    """The last exception a training log names, without the traceback around it."""
    lines = [_RAY_PREFIX.sub("", line).strip() for line in last_lines(log)]
    for number, text in reversed(list(enumerate(lines))):
        name = text.split(":", 1)[0]
        if name.endswith(("Error", "Fault", "Exception", "Interrupt")) and " " not in name:
            return text + _whose(lines[number + 1 : number + 8])
    return "\n" + tail(log)


def _whose(lines: Sequence[str]) -> str:
    """Which process died, from the lines that Ray writes below its ActorDiedError; else nothing."""
    said = dict(line.split(": ", 1) for line in lines if ": " in line)
    if not said.keys() >= {"class_name", "pid", "ip"}:
        return ""
    role = said["class_name"].rsplit(".", 1)[-1]
    return (
        f" It is process {said['pid']} on {said['ip']} ({role}): killed, or crashed. The kernel "
        "kills a process where memory runs out; dmesg on that machine says so."
    )
