"""Launches the missing runs of a study, one after the other or several at a time.

In: a study. Out: runs on the disk, as the launcher leaves them, and a line for each launch in the
study's own log. A run that has begun is resumed. If a launch fails, that is noted and the next one
begins. On Ctrl-C the running launches end as the launcher ends them; the same command goes on.
Runs of one seed are compared with each other, so all of them compute in the same type. A run that
this processor is too slow for is left out.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from seal.launch.listening import free_port
from seal.records.checkpoint_folder import latest_complete
from seal.records.json_lines import BadLine, LineReader, json_lines
from seal.records.log_archive import ARCHIVE, archive_of, pack, unpack
from seal.records.loop_log import ROUNDS
from seal.study.comparable import composed, types_of_the_seed
from seal.study.definition import Study, StudyError
from seal.study.launch_log import (
    INTERRUPTED_CODE,
    LAUNCHES,
    note_launch,
    read_launches,
    run_minutes,
)
from seal.study.logs import FINISHED, RunLogs, keep, read_run


@dataclass
class _Launch:
    """A launch that is running."""

    name: str
    """Of the run."""
    shown: str
    """Recipe and seed, for the progress."""
    process: subprocess.Popen[bytes]
    place: str | None
    """Address of the Ray cluster; None: this machine."""
    started: float


def study_folder(root: Path, study: Study) -> Path:
    """Folder of the study's own files: log, report, plots."""
    return root / "experiments" / "study" / study.name


def report_folder(logs: Path, study: Study) -> Path:
    """Where the report goes: to the study's own files, or beside the archive that holds the logs.

    Raises:
        BadArchive: It is not clear which logs are meant.
    """
    archive = archive_of(logs)
    return archive.parent if archive else study_folder(logs, study)


def read_runs(root: Path, study: Study) -> dict[tuple[str, int], RunLogs]:
    """All of the study's runs as they are on the disk, by recipe and seed."""
    return {run: read_run(root, study.run_name(*run)) for run in study.runs()}


def keep_study(root: Path, study: Study, to: Path) -> None:
    """Put the files that the report is made of into the archive of another folder.

    Runs that an earlier archive there has, and `root` has not, stay in it.

    Raises:
        BadArchive: The earlier archive cannot be used.
        StudyError: A log holds half a line, e.g. of a run that is under way; or the folder is the
            one that holds the logs.
    """
    if to.resolve() == root.resolve():
        raise StudyError(f"the logs are in {to} already: name another folder to copy them to")
    with tempfile.TemporaryDirectory(prefix="seal-logs-") as name:
        folder, archive = Path(name), to / ARCHIVE
        if archive.is_file():
            unpack(archive, folder)
        for run in [study.run_name(*pair) for pair in study.runs()]:
            if (root / "launcher_record" / run / "config.yaml").is_file():
                try:
                    keep(root, run, folder)
                except BadLine as error:
                    raise StudyError(f"the logs of {run} cannot be copied: {error}") from error
        _keep_launches(root, study, folder)
        to.mkdir(parents=True, exist_ok=True)
        pack(folder, archive)


def _keep_launches(root: Path, study: Study, to: Path) -> None:
    """Copy the log of launches. Addresses of clusters become "cluster 1", "cluster 2"."""
    lines = list(LineReader(study_folder(root, study) / LAUNCHES).new())
    clusters = list(dict.fromkeys(line["place"] for line in lines if line["place"]))
    if lines:
        for line in lines:
            line["place"] = line["place"] and f"cluster {clusters.index(line['place']) + 1}"
        kept = study_folder(to, study) / LAUNCHES
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(json_lines(lines), "utf-8")


def command(
    root: Path,
    study: Study,
    recipe: str,
    seed: int,
    place: str | None = None,
    more: Sequence[str] = (),
) -> list[str]:
    """The command that launches or resumes a run.

    `place` is a Ray cluster, None this machine. `more` are overrides besides the study's.
    """
    name = study.run_name(recipe, seed)
    options = [*study.options, *(["--resume"] if _goes_on(root, name) else [])]
    own = [f"trainer.experiment_name={name}"]
    if "--with-bfcl" in options and place is None:
        # Each launch has its own service, so that several may run at a time.
        own.append(f"env_service.env_url=http://127.0.0.1:{free_port()}")
    start = [sys.executable, "launcher.py", f"--conf={study.conf}", *options, "--"]
    return [*start, *study.run_overrides(recipe, seed), *more, *own]


def _goes_on(root: Path, name: str) -> bool:
    """Whether a launch of a run would go on with it, and not start it anew."""
    saved = latest_complete(root / "experiments" / name / "checkpoints")
    return saved is not None and (root / "launcher_record" / name / "config.yaml").is_file()


def _types(
    root: Path, study: Study, states: Mapping[tuple[str, int], RunLogs], console: Console
) -> dict[tuple[str, int], list[str]]:
    """The runs to launch, each with overrides that set its floating-point type.

    Runs that cannot be launched on this processor are left out, and the console says so.
    """
    compose = composed(study.conf)
    begun = {
        run: logs
        for run, logs in states.items()
        if logs.state == FINISHED or _goes_on(root, logs.name)
    }
    overrides = {}
    for run, logs in states.items():
        if logs.state != FINISHED:
            try:
                overrides[run] = types_of_the_seed(study, begun, run, compose)
            except StudyError as error:
                console.print(str(error), style="red")
    return overrides


def run_all(
    root: Path, study: Study, places: Sequence[str | None], console: Console
) -> dict[str, int]:
    """Launch the runs that have not finished, each at most once.

    Each place is a Ray cluster's address, for one run at a time; None is this machine.

    Returns:
        Exit codes of launches that failed, by name of the run.

    Raises:
        StudyError: The runs go to clusters whose nodes would not reach an environment service.
        KeyboardInterrupt: On Ctrl-C, after the running launches have ended.
    """
    reachable = any(override.startswith("env_service.env_url=") for override in study.overrides)
    if any(place is not None for place in places) and not reachable:
        raise StudyError(
            "on a cluster every node asks the environment service: start one that all of them "
            "reach, name it in the study's overrides (env_service.env_url=http://HOST:8082) and "
            "set options: []"
        )
    folder = study_folder(root, study)
    folder.mkdir(parents=True, exist_ok=True)
    states = read_runs(root, study)
    types = _types(root, study, states, console)
    waiting = list(types)
    finished = sum(logs.state == FINISHED for logs in states.values())
    free, under_way, failed = list(places), list[_Launch](), dict[str, int]()
    with _progress(console) as progress:
        bar = progress.add_task(study.name, total=len(states), status="")
        try:
            while waiting or under_way:
                while waiting and free:
                    run = waiting.pop(0)
                    under_way.append(_start(root, study, *run, free.pop(0), types[run]))
                time.sleep(1.0)
                for launch in [launch for launch in under_way if launch.process.poll() is not None]:
                    under_way.remove(launch)
                    free.append(launch.place)
                    code = _note(folder, launch)
                    if code == INTERRUPTED_CODE:
                        raise KeyboardInterrupt
                    if code == 0:
                        finished += 1
                    else:
                        failed[launch.name] = code
                        log = folder / f"{launch.name}.log"
                        console.print(f"{launch.name} failed, see {log}", style="red")
                left = (len(waiting) + len(under_way)) / len(places)
                steps = {launch.shown: _step(root, launch.name) for launch in under_way}
                status = _status(steps, run_minutes(read_launches(folder)) or study.minutes, left)
                progress.update(bar, completed=finished, status=status)
        finally:
            _end(folder, under_way)
    return failed


def _start(
    root: Path, study: Study, recipe: str, seed: int, place: str | None, more: Sequence[str]
) -> _Launch:
    name = study.run_name(recipe, seed)
    environment = {**os.environ, **({"RAY_ADDRESS": place} if place else {})}
    with (study_folder(root, study) / f"{name}.log").open("ab") as log:
        process = subprocess.Popen(
            command(root, study, recipe, seed, place, more),
            cwd=root,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            # It gets Ctrl-C from us, once, not also from the terminal.
            start_new_session=True,
        )
    return _Launch(name, f"{recipe} s{seed}", process, place, time.time())


def _note(folder: Path, launch: _Launch) -> int:
    """Note the end of a launch; returns its exit code."""
    code = launch.process.wait()
    note_launch(folder, launch.name, code, launch.started, launch.place)
    return code


def _end(folder: Path, under_way: Sequence[_Launch]) -> None:
    """Interrupt the running launches, and wait until they have ended all of their processes."""
    for launch in under_way:
        if launch.process.poll() is None:
            launch.process.send_signal(signal.SIGINT)
    for launch in under_way:
        _note(folder, launch)


def _status(steps: Mapping[str, int], minutes: float | None, left: float) -> str:
    """The running launches, and the time that is left."""
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
        TextColumn("{task.fields[status]}"),
        console=console,
        refresh_per_second=1,
    )
