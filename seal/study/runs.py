"""A study's launches: each missing run is started or gone on with, one after the other or abreast.

In: a study. Out: runs on the disk, as the launcher leaves them, and a line a launch in the study's
own log. A launch that fails is noted and the next one begins. On Ctrl-C the launches under way end
as the launcher ends them, and the same command goes on.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from seal.evaluation.local_model import free_port
from seal.records.checkpoint_folder import latest_whole
from seal.records.loop_log import ROUNDS
from seal.study.definition import Study, StudyError
from seal.study.launches import (
    INTERRUPTED_CODE,
    LAUNCHES,
    note_launch,
    read_launches,
    run_minutes,
)
from seal.study.logs import ABSENT, FINISHED, RunLogs, keep, read_run


@dataclass
class _Launch:
    """A launch under way."""

    recipe: str
    seed: int
    process: "subprocess.Popen[bytes]"
    place: str | None
    """Address of the Ray cluster; None: this machine."""
    started: float


def study_folder(root: Path, study: Study) -> Path:
    """Where the study's own files go: log, report, figures."""
    return root / "experiments" / "study" / study.name


def read_runs(root: Path, study: Study) -> dict[tuple[str, int], RunLogs]:
    """All of the study's runs as they lie on the disk, by recipe and seed."""
    return {run: read_run(root, study.run_name(*run)) for run in study.runs()}


def keep_study(root: Path, study: Study, to: Path) -> None:
    """Copy what the report is made of below another folder."""
    for run, logs in read_runs(root, study).items():
        if logs.state != ABSENT:
            keep(root, study.run_name(*run), to)
    launches = study_folder(root, study) / LAUNCHES
    if launches.is_file():
        kept = study_folder(to, study) / LAUNCHES
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_bytes(launches.read_bytes())


def command(
    root: Path, study: Study, recipe: str, seed: int, place: str | None = None
) -> list[str]:
    """The launch of a run: a new one, or one that goes on with what there is.

    Args:
        root: The project's folder.
        study: What is compared.
        recipe: One of its recipes.
        seed: One of its seeds.
        place: Address of a Ray cluster; None: this machine.
    """
    name = study.run_name(recipe, seed)
    saved = latest_whole(root / "experiments" / name / "checkpoints")
    recorded = (root / "launcher_record" / name / "config.yaml").is_file()
    options = [*study.options, *(["--resume"] if saved is not None and recorded else [])]
    own = [f"trainer.experiment_name={name}"]
    if "--with-bfcl" in options and place is None:
        # A service of its own, so that launches may run abreast.
        own.append(f"env_service.env_url=http://127.0.0.1:{free_port()}")
    start = [sys.executable, "launcher.py", f"--conf={study.conf}", *options, "--"]
    return [*start, *study.run_overrides(recipe, seed), *own]


def run_all(
    root: Path, study: Study, places: Sequence[str | None], console: Console
) -> dict[str, int]:
    """Launch what has not finished, each run at most once.

    Args:
        root: The project's folder.
        study: What to run.
        places: Addresses of Ray clusters, each of which takes a run at a time; None: this machine.
        console: For the progress.

    Returns:
        Exit codes of launches that failed, by name of the run.

    Raises:
        StudyError: On clusters, without a service that their nodes reach.
        KeyboardInterrupt: The launches under way have ended before.
    """
    reachable = any(one.startswith("env_service.env_url=") for one in study.overrides)
    if any(place is not None for place in places) and not reachable:
        raise StudyError(
            "on a cluster every node asks the environment service: start one that all of them "
            "reach, name it in the study's overrides (env_service.env_url=http://HOST:8082) and "
            "set options: []"
        )
    folder = study_folder(root, study)
    folder.mkdir(parents=True, exist_ok=True)
    states = read_runs(root, study)
    waiting = [run for run, logs in states.items() if logs.state != FINISHED]
    free, under_way, failed = list(places), list[_Launch](), dict[str, int]()
    with _progress(console) as progress:
        bar = progress.add_task(study.name, total=len(states), said="")
        try:
            while waiting or under_way:
                while waiting and free:
                    under_way.append(_start(root, study, *waiting.pop(0), free.pop(0)))
                time.sleep(1.0)
                for launch in [one for one in under_way if one.process.poll() is not None]:
                    under_way.remove(launch)
                    free.append(launch.place)
                    code = _note(folder, study, launch)
                    if code == INTERRUPTED_CODE:
                        raise KeyboardInterrupt
                    if code != 0:
                        name = study.run_name(launch.recipe, launch.seed)
                        failed[name] = code
                        console.print(f"{name} failed, see {folder / f'{name}.log'}", style="red")
                finished = len(states) - len(waiting) - len(under_way) - len(failed)
                left = (len(waiting) + len(under_way)) / len(places)
                steps = {
                    f"{one.recipe} s{one.seed}": _step(root, study.run_name(one.recipe, one.seed))
                    for one in under_way
                }
                said = _said(steps, run_minutes(read_launches(folder)) or study.minutes, left)
                progress.update(bar, completed=finished, said=said)
        finally:
            _end(folder, study, under_way)
    return failed


def _start(root: Path, study: Study, recipe: str, seed: int, place: str | None) -> _Launch:
    name = study.run_name(recipe, seed)
    environment = {**os.environ, **({"RAY_ADDRESS": place} if place else {})}
    with (study_folder(root, study) / f"{name}.log").open("ab") as log:
        process = subprocess.Popen(
            command(root, study, recipe, seed, place),
            cwd=root,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            # Ctrl-C reaches it through us, once.
            start_new_session=True,
        )
    return _Launch(recipe, seed, process, place, time.time())


def _note(folder: Path, study: Study, launch: _Launch) -> int:
    """Write down how a launch ended; returns its exit code."""
    code = launch.process.wait()
    name = study.run_name(launch.recipe, launch.seed)
    note_launch(folder, name, code, launch.started, launch.place)
    return code


def _end(folder: Path, study: Study, under_way: Sequence[_Launch]) -> None:
    """Interrupt what runs, and wait until it has ended all of its processes."""
    for launch in under_way:
        if launch.process.poll() is None:
            launch.process.send_signal(signal.SIGINT)
    for launch in under_way:
        _note(folder, study, launch)


def _said(steps: Mapping[str, int], minutes: float | None, left: float) -> str:
    """What runs now, and the time that is left."""
    now = ", ".join(f"{run} step {step}" for run, step in steps.items())
    return now if minutes is None else f"{now}; about {left * minutes / 60:.1f} h left"


def _step(root: Path, name: str) -> int:
    """Training steps that a run has done."""
    path = root / "experiments" / name / "loop" / ROUNDS
    return len(path.read_bytes().splitlines()) if path.is_file() else 0


def _progress(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[said]}"),
        console=console,
        refresh_per_second=1,
    )
