"""One run, from the composed recipe to the final table: check, record, start, watch, report.

In: the resolved recipe and the options of the command line. Out: a trained policy and its logs, or
an error that says what failed, what to do and where the log is.
"""

import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from omegaconf import DictConfig
from rich.console import Console

from seal.launch import folders, pools
from seal.launch.building import prepare_policy, prepare_pools
from seal.launch.check.before_start import require
from seal.launch.folders import (
    RunError,
    locked_name,
    loop_folder,
    run_name,
    set_earlier_outputs_aside,
)
from seal.launch.listening import check_port, wait_until_healthy
from seal.launch.processes import Family, ignore_interrupts
from seal.launch.progress import RunProgress
from seal.launch.record import Options, record_launch
from seal.launch.report import Finished, print_report
from seal.launch.resume import CONFIG, check_same_pools, checkpoint_step, misses_validation
from seal.launch.service import check_service, start_service
from seal.launch.training import (
    SERVICE_LOG,
    Watch,
    prepare_resume,
    ray_address,
    start_fork_server,
    train,
)
from seal.records.loop_log import DONE, FAILED, INTERRUPTED, LoopLog

VIEWER_HOST, VIEWER_PORT = "127.0.0.1", 8090
VIEWER_START_S = 20.0


@dataclass
class Launcher:
    """One launch.

    Example: `Launcher(Console(), recipe, options, Family()).run()`.
    """

    console: Console
    recipe: DictConfig
    options: Options
    family: Family
    """All processes of the launch."""
    trains: bool = False
    """Whether this launch writes into the run's folders."""
    left: list[int] = field(default_factory=list)
    """Ids of processes that could not be ended: none, unless the kernel keeps them."""

    def run(self) -> None:
        """Run the recipe. At the end, also after an error, every process has ended.

        Raises:
            RunError: The run cannot start or has failed.
            EnvironmentFault: The service is not healthy, or another program answers.
            KeyboardInterrupt: The user or the system interrupted the run.
        """
        with locked_name(self.recipe, self.family.launch_id) as earlier:
            ended = FAILED
            try:
                self._end_leftovers(earlier)
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
        for message in require(self.recipe, self.options.with_bfcl, self.options.resume):
            self._say(f"warning: {message}")
        step = checkpoint_step(self.recipe) if self.options.resume else None
        # First the tasks: what makes a policy may train it on them.
        made_pools = prepare_pools(self.recipe, self.family, self.options.with_bfcl, self._say)
        if self.options.resume:
            check_same_pools(self.recipe)
        policy_s = prepare_policy(self.recipe, self.family, self._say)
        folder = self._begin(step)
        fork_server = start_fork_server(self.recipe, self.family, folder / "fork_server.log")
        service = None
        if self.options.with_bfcl:
            self._say(f"starting the environment service at {self.recipe.env_service.env_url}")
            hashes = pools.hashes(self.recipe)
            service = start_service(self.recipe, self.family, folder / SERVICE_LOG, hashes)
        elif made_pools:
            # Before they were made, nobody could tell whether the services play the same.
            check_service(self.recipe, pools=pools.hashes(self.recipe))
        if self.options.with_logview:
            self._say(start_logview(self.family, folder / "logview.log"))
        if (address := ray_address(self.recipe)) is not None:
            self._say(f"joining the Ray cluster at {address}")
        first_step_s = self._train(folder, service, fork_server)
        finished = Finished(
            wall_s=time.monotonic() - started,
            policy_s=policy_s,
            first_step_s=first_step_s,
            service_cpu_s=service_cpu_s(service),
            peak_bytes=self.family.peak_bytes,
        )
        print_report(self.console, self.recipe, finished)

    def _begin(self, step: int | None) -> Path:
        """Prepare the run's folders and record the launch; returns the folder of the record."""
        if step is None:
            aside = set_earlier_outputs_aside(self.recipe)
            if aside is not None:
                self._say(
                    f"outputs of an earlier run {run_name(self.recipe)!r} are now in "
                    f"{aside.relative_to(folders.ROOT)} (--resume goes on with a run instead)"
                )
        else:
            abandoned = prepare_resume(self.recipe, step)
            self._say(f"going on from step {step}")
            # verl would validate at every resumption, also if no step is left.
            self.recipe.trainer.val_before_train = misses_validation(self.recipe, step)
            if self.recipe.trainer.val_before_train:
                self._say("the validation after this step is missing and runs first")
            if abandoned:
                self._say(
                    f"later checkpoints are kept in {abandoned[0].parent} as "
                    f"{', '.join(path.name for path in reversed(abandoned))}; delete them if you "
                    "do not need them"
                )
        self.trains = True
        return record_launch(self.recipe, self.options, self.family.launch_id, step)

    def _train(
        self, folder: Path, service: subprocess.Popen[bytes] | None, fork_server: str | None
    ) -> float | None:
        """Train; returns the seconds until the first step was done, None if no step was."""
        begun = time.monotonic()
        step_ends: list[float] = []
        progress = RunProgress(self.console, self.recipe.trainer.total_training_steps)

        def on_round(line: dict[str, Any]) -> None:
            step_ends.append(time.monotonic())
            progress.on_round(line)

        with progress.bar:
            watch = Watch(progress.on_phase, on_round)
            train(self.recipe, folder / CONFIG, self.family, service, watch, fork_server)
        return step_ends[0] - begun if step_ends else None

    def _end_leftovers(self, launch_id: str | None) -> None:
        """End processes of an earlier launch of this name, whose launcher was killed."""
        left = Family(launch_id) if launch_id is not None else None
        if left is not None and (members := left.members()):
            self._say(
                f"ending {len(members)} processes that an earlier launch of this name left behind"
            )
            left.end()

    def _note_end(self, how: str) -> None:
        """Write into the loop log that the run has ended, and how."""
        if not self.trains:
            return
        try:
            LoopLog(loop_folder(self.recipe)).end(how)
        except (OSError, ValueError) as error:
            # If the disk is full, the run fails for it, and the last line of the log may be cut.
            self._say(f"the end of the run could not be written into the loop log: {error}")

    def _say(self, text: str) -> None:
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)


def service_cpu_s(service: subprocess.Popen[bytes] | None) -> float | None:
    """Seconds of processor time of the service's processes; None if no service runs."""
    if service is None or service.poll() is not None:
        return None
    process = psutil.Process(service.pid)
    times = [process.cpu_times(), *(child.cpu_times() for child in process.children(True))]
    return float(sum(item.user + item.system for item in times))


def start_logview(family: Family, log: Path, port: int = VIEWER_PORT) -> str:
    """Start the viewer of `experiments/`, which ends with the run; its failure never ends the run.

    Returns:
        A sentence for the user: the viewer's address, or why there is no viewer.
    """
    url = f"http://{VIEWER_HOST}:{port}"
    try:
        check_port(VIEWER_HOST, port)
    except OSError as error:
        return (
            f"no log viewer: cannot use {url} ({error.strerror}); if another viewer runs there, "
            "it may show this run too"
        )
    (folders.ROOT / "experiments").mkdir(exist_ok=True)
    command = [sys.executable, "-m", "seal.logview", "--experiments", "experiments"]
    viewer = family.start(
        [*command, "--host", VIEWER_HOST, "--port", str(port)], log, {}, folders.ROOT
    )
    try:
        wait_until_healthy("it", viewer, f"{url}/healthz", log, VIEWER_START_S)
    except RunError as error:
        return f"no log viewer: {error}"
    return f"log viewer: {url}"
