"""One run from composed recipe to final table: check, record, start, watch, report.

In: the resolved recipe and the options of the command line. Out: a trained policy and its logs, or
an error whose text says what failed, what to do and where the log is.
"""

import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from omegaconf import DictConfig
from rich.console import Console

from seal.launch import folders
from seal.launch.check.before_start import require
from seal.launch.folders import RunError, locked_name, run_name, set_earlier_outputs_aside
from seal.launch.interrupts import ignore_interrupts
from seal.launch.logview import start_logview
from seal.launch.processes import Family
from seal.launch.progress import RunProgress
from seal.launch.record import Launch, command_line, record_launch
from seal.launch.report import Finished, print_report
from seal.launch.resume import CONFIG, check_resume, is_validated, misses_last_validation
from seal.launch.service import start_service
from seal.launch.training import SERVICE_LOG, Watch, prepare_resume, ray_address, train
from seal.records.loop_log import DONE, FAILED, INTERRUPTED, LoopLog


@dataclass(frozen=True)
class Options:
    """The launcher's command line."""

    conf: Path
    """The recipe."""
    overrides: Sequence[str]
    """What followed --."""
    argv: Sequence[str]
    """All of it, without the program."""
    with_bfcl: bool = False
    """Start the environment service for the run."""
    with_logview: bool = False
    """Start the log viewer for the run."""
    resume: bool = False
    """Go on with the run of this name."""


@dataclass
class Launcher:
    """One launch.

    Example: `Launcher(Console(), recipe, options, Family()).run()`.
    """

    console: Console
    recipe: DictConfig
    options: Options
    family: Family
    """Every process that is started."""
    trains: bool = False
    """Whether the run's folders are this launch's."""
    left: list[int] = field(default_factory=list)
    """Processes that could not be ended: none, unless the kernel keeps them."""

    def run(self) -> None:
        """Run the recipe to its end; whatever happens, every process started has ended then.

        Raises:
            RunError: The run cannot start or has failed.
            EnvironmentFault: The service is not healthy, or is another one.
            KeyboardInterrupt: The user, or the system, wants it to end.
        """
        with locked_name(self.recipe, self.family.launch_id) as before:
            ended = FAILED
            try:
                self._end_leftovers(before)
                self._run()
                ended = DONE
            except KeyboardInterrupt:
                ended = INTERRUPTED
                self._say("\nending all processes of the run")
                raise
            finally:
                ignore_interrupts()
                self.left = self.family.end()
                self._note_end(ended)

    def _run(self) -> None:
        started = time.monotonic()
        for said in require(self.recipe, self.options.with_bfcl, self.options.resume):
            self._say(f"warning: {said}")
        step = check_resume(self.recipe) if self.options.resume else None
        policy_s = prepare_policy(self.recipe, self.family)
        folder = self._begin(step)
        service = self._start_service(folder)
        if self.options.with_logview:
            self._say(start_logview(self.family, folder / "logview.log"))
        if (address := ray_address(self.recipe)) is not None:
            self._say(f"joining the Ray cluster at {address}")
        first_step_s = self._train(folder, service)
        finished = Finished(
            wall_s=time.monotonic() - started,
            policy_s=policy_s,
            first_step_s=first_step_s,
            service_cpu_s=service_cpu_s(service),
            peak_bytes=self.family.peak_bytes,
        )
        print_report(self.console, self.recipe, finished)

    def _begin(self, step: int | None) -> Path:
        """Make the run's folders this launch's; returns where it is recorded."""
        if step is None:
            self._set_aside()
        else:
            abandoned = prepare_resume(self.recipe, step)
            self._say(f"going on from step {step}")
            if misses_last_validation(self.recipe, step):
                # verl validates what it has loaded, then finds that no step is left.
                self.recipe.trainer.val_before_train = True
                self._say("all steps are done: the last validation, which is missing, is made")
            elif is_validated(self.recipe, step):
                self.recipe.trainer.val_before_train = False
            if abandoned:
                self._say(
                    f"later checkpoints are kept in {abandoned[0].parent} as "
                    f"{', '.join(path.name for path in reversed(abandoned))}; delete them if they "
                    "are of no use"
                )
        self.trains = True
        launch = Launch(
            conf=self.options.conf,
            overrides=self.options.overrides,
            command_line=command_line(self.options.argv),
            launch_id=self.family.launch_id,
            resumed_from=step,
        )
        return record_launch(self.recipe, launch)

    def _train(self, folder: Path, service: "subprocess.Popen[bytes] | None") -> float | None:
        """Train; the seconds to the end of the first step, None where there was none."""
        begun = time.monotonic()
        step_ends: list[float] = []
        with RunProgress(self.console, self.recipe.trainer.total_training_steps) as progress:

            def on_round(line: dict[str, Any]) -> None:
                step_ends.append(time.monotonic())
                progress.on_round(line)

            watch = Watch(progress.on_phase, on_round)
            train(self.recipe, folder / CONFIG, self.family, service, watch)
        return step_ends[0] - begun if step_ends else None

    def _start_service(self, folder: Path) -> "subprocess.Popen[bytes] | None":
        if not self.options.with_bfcl:
            return None
        self._say(f"starting the environment service at {self.recipe.env_service.env_url}")
        return start_service(self.recipe, self.family, folder / SERVICE_LOG)

    def _set_aside(self) -> None:
        aside = set_earlier_outputs_aside(self.recipe)
        if aside is not None:
            self._say(
                f"outputs of an earlier run {run_name(self.recipe)!r} are now in "
                f"{aside.relative_to(folders.ROOT)} (--resume goes on with a run instead)"
            )

    def _end_leftovers(self, launch_id: str | None) -> None:
        """End what an earlier launch of this name left behind, as its launcher was killed."""
        left = Family(launch_id) if launch_id is not None else None
        if left is not None and (members := left.members()):
            self._say(
                f"ending {len(members)} processes that an earlier launch of this name left behind"
            )
            left.end()

    def _note_end(self, how: str) -> None:
        """Say in the loop log that no process of the run writes any more, and why."""
        if not self.trains:
            return
        try:
            LoopLog(folders.ROOT / self.recipe.seal.loop_dir).end(how)
        except (OSError, ValueError) as error:
            # A full disk may be why the run failed, and may have cut a line of the log.
            self._say(f"the loop log does not say that the run has ended: {error}")

    def _say(self, text: str) -> None:
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)


def prepare_policy(recipe: DictConfig, family: Family) -> float:
    """Build the policy if the recipe says how and it is not there; returns the seconds it took.

    Raises:
        RunError: Building it failed.
    """
    path, said = str(recipe.actor_rollout_ref.model.path), recipe.launcher.build_policy
    if not said or (folders.ROOT / path).is_dir():
        return 0.0
    started = time.monotonic()
    for command in [said] if isinstance(said, str) else said:
        # No log: it shows its own progress.
        built = [sys.executable, *shlex.split(command)]
        if family.start(built, None, {}, folders.ROOT).wait() != 0:
            raise RunError(f"building the policy failed: {command}")
    if not (folders.ROOT / path / "config.json").is_file():
        raise RunError(f"building the policy failed: {command} did not make {path}")
    return time.monotonic() - started


def service_cpu_s(service: "subprocess.Popen[bytes] | None") -> float | None:
    """User and system time of the service's processes so far."""
    if service is None or service.poll() is not None:
        return None
    process = psutil.Process(service.pid)
    times = [process.cpu_times(), *(child.cpu_times() for child in process.children(True))]
    return float(sum(item.user + item.system for item in times))
