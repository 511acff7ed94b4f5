"""Runs another program to its end, with a progress bar and its output in a log.

In: a command and a function that counts what it has finished. Out: nothing, or an error with the
end of the log.
"""

import contextlib
import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from seal.evaluation.faults import EvaluationError
from seal.launch.processes import Family, tail

COUNTED_EVERY_S = 5.0
"""Seconds between two counts, which read all result files: hundreds of megabytes at the end."""
console = Console(stderr=True)


def progress_bar() -> Progress:
    """A bar on the terminal; a file gets only its last state."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
    )


def watch(
    family: Family,
    command: Sequence[str],
    environment: Mapping[str, str],
    log: Path,
    *,
    what: str,
    count: Callable[[], int],
    total: int | None,
) -> None:
    """Run a program, which `family` ends if we end, with its output in the log.

    Its `environment` is added to ours. `what` is its name on the bar and in an error. `count`
    returns how many entries it has finished, of `total`; None if that is not known.

    Raises:
        EvaluationError: It failed.
    """
    program = family.start(command, log, {**_past_the_proxy(), **environment}, Path.cwd())
    with progress_bar() as progress:
        bar = progress.add_task(what, total=total)
        while program.poll() is None:
            progress.update(bar, completed=count())
            with contextlib.suppress(subprocess.TimeoutExpired):
                program.wait(COUNTED_EVERY_S)
        progress.update(bar, completed=count())
    if program.returncode != 0:
        raise EvaluationError(
            f"{what}: the program failed (exit code {program.returncode}); finished results are "
            f"kept, and the same command goes on:\n{tail(log)}\n(log: {log})"
        )


def _past_the_proxy() -> dict[str, str]:
    """Variables that keep requests to a server on this machine away from a proxy."""
    exempt = [os.environ.get(name, "") for name in ("no_proxy", "NO_PROXY")]
    hosts = ",".join(dict.fromkeys(filter(None, [*exempt, "127.0.0.1", "localhost"])))
    return {"no_proxy": hosts, "NO_PROXY": hosts}
