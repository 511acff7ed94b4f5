"""The training process, and what the launcher reads of it while it runs.

In: the recorded configuration. Out: a call of `Watch` for every phase and round in the loop log,
and an error with the reason if the training failed. The training itself is `seal.train.main`, in a
separate process.
"""

import itertools
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
from seal.launch.folders import RunError, checkpoint_folder, loop_folder
from seal.launch.processes import Family, last_lines, tail
from seal.records.checkpoint_folder import abandon_after
from seal.records.json_lines import LineReader
from seal.records.loop_log import FAULT, PHASES, ROUNDS, LoopLog
from seal.settings.sections import read_settings

SERVICE_LOG = "service.log"
# Ray puts this before a line that a worker printed: colour, class, process id.
_RAY_PREFIX = re.compile(r"^(\x1b\[\d+m)?\([^)]*pid=\d+[^)]*\)(\x1b\[\d+m)? ?")
_RAY_DEATH = re.compile(r"A worker died or was killed.* IP address: (\S+) .*Worker PID: (\d+)")


@dataclass
class Watch:
    """Functions of the progress display, called with every new line of the loop log."""

    on_phase: Callable[[dict[str, Any]], None]
    on_round: Callable[[dict[str, Any]], None]


def ray_address(recipe: DictConfig) -> str | None:
    """Address of the Ray cluster that the training joins; None if it starts its own Ray."""
    address = os.environ.get("RAY_ADDRESS") or recipe.ray_kwargs.ray_init.get("address")
    return None if address in (None, "", "local") else str(address)


def prepare_resume(recipe: DictConfig, step: int) -> list[Path]:
    """Return the run's checkpoints and logs to the state of a step; every metric is kept.

    Args:
        recipe: Resolved recipe.
        step: Step of the checkpoint to go on from. The run repeats the rounds after it, so they are
            removed from the loop log, and later checkpoints are renamed.

    Returns:
        The new paths of later checkpoints.
    """
    abandoned = abandon_after(checkpoint_folder(recipe), step)
    loop = loop_folder(recipe)
    # The trainer does this too. The launcher does it first, so that the progress bar shows new
    # rounds only.
    LoopLog(loop).rewind(step)
    # verl truncates the file that it logs to.
    metrics = loop.parent / "metrics.jsonl"
    if metrics.exists():
        names = (metrics.with_name(f"metrics.{number}.jsonl") for number in itertools.count(1))
        metrics.rename(next(path for path in names if not path.exists()))
    return abandoned


def model_environment(recipe: DictConfig) -> dict[str, str]:
    """Environment variables that the recipe sets for processes that train or serve the model."""
    return {**read_settings(recipe).launcher.environment}


def start_fork_server(recipe: DictConfig, family: Family, log: Path) -> str | None:
    """Start the process whose forks are Ray's workers on this machine; returns its address.

    None if there is none: with GPUs, or where workers run in a cluster that is there already.
    """
    if recipe.trainer.device != "cpu" or ray_address(recipe) is not None:
        return None
    address = f"seal-{family.launch_id}"
    command = [sys.executable, "-m", "seal.train.cpu.fork_server", address]
    family.start(command, log, model_environment(recipe), folders.ROOT)
    return address


def train(
    recipe: DictConfig,
    config: Path,
    family: Family,
    service: subprocess.Popen[bytes] | None,
    watch: Watch,
    fork_server: str | None = None,
) -> None:
    """Run the training process to its end.

    Args:
        recipe: Resolved recipe.
        config: File with the same recipe; the training log is written to its folder.
        family: Starts the process.
        service: The service that this launch started; if it ends, the run fails. None if the launch
            started no service.
        watch: Called for phases, progress in them, and rounds.
        fork_server: Address of the process whose forks Ray's workers are, if there is one.

    Raises:
        RunError: The training failed, the service or a rollout engine died, or nothing happened
            for `launcher.stall_timeout_s`.
    """
    log = config.with_name("train.log")
    loop = loop_folder(recipe)
    environment = {
        **model_environment(recipe),
        "TENSORBOARD_DIR": str(loop.parent / "tensorboard"),
        "VERL_FILE_LOGGER_PATH": str(loop.parent / "metrics.jsonl"),
        "HYDRA_FULL_ERROR": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    loop.mkdir(parents=True, exist_ok=True)
    (loop / PHASES).unlink(missing_ok=True)
    command = [sys.executable, "-m", "seal.train.main", str(config)]
    if fork_server is not None:
        command.append(f"--fork-server={fork_server}")
    trainer = family.start(command, log, environment, folders.ROOT)
    stall_s = read_settings(recipe).launcher.stall_timeout_s
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
                f"no reward was computed without it:\n{tail(config.with_name(SERVICE_LOG), 5)}"
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
    """The last exception in a training log, without its traceback; else the end of the log."""
    raw_lines = last_lines(log)
    lines = [_RAY_PREFIX.sub("", line).strip() for line in raw_lines]
    for number, text in reversed(list(enumerate(lines))):
        name = text.split(":", 1)[0]
        if name.endswith(("Error", "Fault", "Exception", "Interrupt")) and " " not in name:
            return text + _dead_process(lines[number + 1 : number + 8], raw_lines)
    return "\n" + tail(log)


def _dead_process(error: Sequence[str], log: Sequence[str]) -> str:
    """The process that died; "" if none did.

    Args:
        error: The lines that Ray writes below an ActorDiedError. A process that waited for the dead
            one may fail before Ray knows of its death: then the last error is another one.
        log: The training log, where Ray reports each death.
    """
    facts = dict(line.split(": ", 1) for line in error if ": " in line)
    if facts.keys() >= {"class_name", "pid", "ip"}:
        ip, pid, role = facts["ip"], facts["pid"], facts["class_name"].rsplit(".", 1)[-1]
    else:
        deaths = [death for line in log if (death := _RAY_DEATH.search(line))]
        if not deaths:
            return ""
        ip, pid = deaths[-1].groups()
        titles = [title[1] for line in log if (title := re.search(rf"\((\w+) pid={pid}\)", line))]
        role = titles[0] if titles else "of Ray"
    return (
        f" Process {pid} on {ip} ({role}) has died: it was killed, or it crashed. "
        "The kernel kills a process if the memory is full; dmesg on that machine shows it."
    )
