"""One run from composed recipe to final table: start, watch, end.

In: the resolved recipe. Out: a `Finished` record, or a `RunError` whose text says what failed, what
to do and where the log is. The training itself happens in a process of its own
(`seal.train.main`); this module reads its loop log for progress and as a watchdog.
"""

import asyncio
import re
import shlex
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil
from omegaconf import DictConfig, ListConfig, OmegaConf

from seal.access_token import TokenError, read_token
from seal.addresses import url_list
from seal.client import EnvironmentClient, EnvironmentFault
from seal.launch.processes import Family, tail
from seal.loop_log import PHASES, ROUNDS, LineReader

ROOT = Path(__file__).resolve().parents[2]
SERVICE_PYTHON = ROOT / ".venv-bfcl/bin/python"
SERVICE_START_S = 60.0
FREE_DISK_BYTES = 2 * 1024**3
# What Ray puts before a line that a worker printed: colour, class, process id.
_RAY_PREFIX = re.compile(r"^(\x1b\[\d+m)?\([^)]*pid=\d+[^)]*\)(\x1b\[\d+m)? ?")


class RunError(Exception):
    """The run cannot start or has failed."""


@dataclass(frozen=True)
class Finished:
    """What was measured around a finished run."""

    wall_s: float
    """From launch to the end of training."""
    policy_s: float
    """Of that, building the policy; 0.0 where it was there."""
    first_step_s: float | None
    """From the policy being there to the end of the first training step."""
    service_cpu_s: float | None
    """Processor time of the service; None where the launcher did not start it."""
    peak_bytes: int
    """Largest private memory of all processes of the run together."""


@dataclass
class Watch:
    """What the progress display is told: called with every new line of the loop log."""

    on_phase: Callable[[dict[str, Any]], None]
    on_round: Callable[[dict[str, Any]], None]


def record_run(recipe: DictConfig, overrides: list[str], launch_id: str) -> Path:
    """Write the resolved configuration to `launcher_record/<name>/` and return its path.

    The run's id gets the launch's: a service that outlives a run must not take the next one of
    the same name for it.
    """
    recipe.seal.run_id = f"{recipe.seal.run_id}-{launch_id[:8]}"
    folder = log_folder(recipe)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "overrides.txt").write_text("\n".join(overrides) + "\n", "utf-8")
    path = folder / "config.yaml"
    OmegaConf.save(recipe, path)
    return path


def set_earlier_outputs_aside(recipe: DictConfig) -> None:
    """Move the outputs of an earlier run of the same name away, unless this one resumes it."""
    if recipe.trainer.resume_mode != "disable":
        return
    name = recipe.trainer.experiment_name
    for folder in (Path("experiments") / name, Path("experiments/tech_synthetic") / name):
        old = ROOT / folder
        if old.exists():
            number = 1
            while (aside := old.with_name(f"{old.name}.{number}")).exists():
                number += 1
            old.rename(aside)


def check_inputs(recipe: DictConfig) -> None:
    """Refuse to start what cannot work.

    Raises:
        RunError: The name is no folder's name, an address or the token is none, a data file is
            missing, or the disk is nearly full.
    """
    name = str(recipe.trainer.experiment_name)
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", name):
        raise RunError(
            f"trainer.experiment_name={name!r} names folders: use letters, digits, '.', '_' and "
            "'-', a letter or digit first, at most 100"
        )
    _urls(recipe)
    _token(recipe)
    for key in ("train_files", "val_files"):
        if not (ROOT / str(recipe.data[key])).is_file():
            raise RunError(
                f"data.{key}={recipe.data[key]} does not exist; make the data files with: "
                ".venv/bin/python scripts/prepare_bfcl.py"
            )
    free = shutil.disk_usage(ROOT).free
    if free < FREE_DISK_BYTES:
        raise RunError(
            f"{free / 1024**3:.1f} GiB free on the disk of {ROOT.name}/, a run needs at least "
            f"{FREE_DISK_BYTES / 1024**3:.0f} GiB for checkpoints and logs; free some space"
        )


def prepare_policy(recipe: DictConfig) -> float:
    """Build the policy if the recipe says how and it is not there; returns the seconds it took.

    Raises:
        RunError: The model's path leads nowhere, or building it failed.
    """
    path = str(recipe.actor_rollout_ref.model.path)
    if (ROOT / path).is_dir():
        if not (ROOT / path / "config.json").is_file():
            raise RunError(f"actor_rollout_ref.model.path={path} is a folder without config.json")
        return 0.0
    if recipe.launcher.build_policy is None:
        # A name such as Qwen/Qwen2.5-7B-Instruct is for the model hub to resolve.
        if path.count("/") == 1 and not path.startswith((".", "experiments/")):
            return 0.0
        raise RunError(f"actor_rollout_ref.model.path={path} does not exist")
    started = time.monotonic()
    command = shlex.split(recipe.launcher.build_policy)
    # In the foreground: it shows its own progress, and Ctrl-C reaches it.
    built = subprocess.run([sys.executable, *command], cwd=ROOT, check=False)
    if built.returncode != 0 or not (ROOT / path / "config.json").is_file():
        raise RunError(f"building the policy failed: {' '.join(command)}")
    return time.monotonic() - started


def log_folder(recipe: DictConfig) -> Path:
    """Where the logs of the run's processes go."""
    return ROOT / "launcher_record" / str(recipe.trainer.experiment_name)


def start_service(recipe: DictConfig, family: Family) -> "subprocess.Popen[bytes]":
    """Start the environment service at `env_service.env_url` and wait until it is healthy.

    Raises:
        RunError: There are several addresses, its environment is missing, the port is taken, or it
            does not become healthy.
    """
    urls = _urls(recipe)
    if len(urls) > 1:
        raise RunError(
            f"--with-bfcl starts one service, and env_service.env_url has {len(urls)} addresses "
            f"({', '.join(urls)}); start those yourself and leave --with-bfcl out, or name one"
        )
    host, port = _host_and_port(urls[0])
    if not SERVICE_PYTHON.exists():
        raise RunError("the service's environment .venv-bfcl is missing; run: bash install.sh")
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise RunError(
                f"cannot use {host}:{port} for the environment service ({error.strerror}); end "
                "what runs there, or choose another: -- env_service.env_url=http://127.0.0.1:PORT"
            ) from error
    log = log_folder(recipe) / "service.log"
    log.unlink(missing_ok=True)
    command = [str(SERVICE_PYTHON), "-m", "env_service", "--host", host, "--port", str(port)]
    command += ["--env", str(recipe.env_service.env_type)]
    token_file = _token_file(recipe)
    if token_file is not None:
        command += ["--token-file", str(token_file)]
    service = family.start(command, log, {}, ROOT)
    deadline = time.monotonic() + SERVICE_START_S
    while True:
        if service.poll() is not None:
            raise RunError(f"the environment service did not start:\n{tail(log)}\n(log: {log})")
        try:
            check_service(recipe, attempts=1)
            return service
        except EnvironmentFault as fault:
            if time.monotonic() > deadline:
                raise RunError(f"the environment service is not healthy: {fault}") from fault
        time.sleep(0.2)


def _urls(recipe: DictConfig) -> tuple[str, ...]:
    value = recipe.env_service.env_url
    urls = url_list(map(str, value) if isinstance(value, ListConfig) else [str(value)])
    if not urls:
        raise RunError("env_service.env_url=[] has no address like http://127.0.0.1:8080")
    for url in urls:
        _host_and_port(url)
    return urls


def _host_and_port(url: str) -> tuple[str, int]:
    try:
        address = urlsplit(url)
        if address.scheme == "http" and address.hostname and address.port:
            return address.hostname, address.port
    except ValueError:
        pass  # not a port; the sentence below says what is expected
    raise RunError(f"env_service.env_url={url!r} is no address like http://127.0.0.1:8080")


def _token_file(recipe: DictConfig) -> Path | None:
    """Where the token is, whatever folder the launcher was called from."""
    name = recipe.env_service.token_file
    return None if name is None else ROOT / str(name)


def _token(recipe: DictConfig) -> str | None:
    try:
        return read_token(_token_file(recipe))
    except TokenError as error:
        raise RunError(str(error)) from error


def check_service(recipe: DictConfig, attempts: int = 3) -> None:
    """Raise EnvironmentFault unless every service is healthy and speaks our protocol."""

    async def check() -> None:
        async with EnvironmentClient(
            _urls(recipe),
            recipe.env_service.env_type,
            token=_token(recipe),
            attempts=attempts,
            timeout_s=10.0,
        ) as client:
            await client.health()

    asyncio.run(check())


def train(
    recipe: DictConfig,
    config: Path,
    family: Family,
    service: "subprocess.Popen[bytes] | None",
    watch: Watch,
) -> None:
    """Run the training process to its end.

    Raises:
        RunError: It failed, the service died under it, or it stayed in one phase for longer than
            `launcher.stall_timeout_s`.
    """
    log = log_folder(recipe) / "train.log"
    log.unlink(missing_ok=True)
    loop = ROOT / recipe.seal.loop_dir
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
    trainer = family.start(command, log, environment, ROOT)
    stall_s = float(recipe.launcher.stall_timeout_s)
    phases = LineReader(loop / PHASES)
    rounds = LineReader(loop / ROUNDS, from_end=True)
    phase, since, sampled = "start", time.monotonic(), 0.0
    while True:
        ended = trainer.poll() is not None
        for line in phases.new():
            phase, since = line["phase"], time.monotonic()
            watch.on_phase(line)
        for line in rounds.new():
            watch.on_round(line)
        if ended:
            break
        if service is not None and service.poll() is not None:
            raise RunError(
                f"the environment service ended during the run (exit code {service.returncode}); "
                f"nothing was rewarded for it:\n{tail(log_folder(recipe) / 'service.log', 5)}"
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


def service_cpu_s(service: "subprocess.Popen[bytes] | None") -> float | None:
    """User and system time of the service's processes so far."""
    if service is None or service.poll() is not None:
        return None
    process = psutil.Process(service.pid)
    times = [process.cpu_times(), *(child.cpu_times() for child in process.children(True))]
    return float(sum(item.user + item.system for item in times))


def _reason(log: Path) -> str:
    """The last exception a training log names, without the traceback around it."""
    lines = log.read_text("utf-8", "replace").splitlines() if log.exists() else []
    for line in reversed(lines):
        text = _RAY_PREFIX.sub("", line).strip()
        name = text.split(":", 1)[0]
        if name.endswith(("Error", "Fault", "Exception", "Interrupt")) and " " not in name:
            return text
    return "\n" + tail(log)
