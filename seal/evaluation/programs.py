"""Another program run to its end, with a progress bar and its output in a log.

In: a command and a way to count what it has finished. Out: nothing, or an error with its log's end.
Called by the official suites; the bar also by scripts/evaluate.py.
"""

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
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

console = Console(stderr=True)


@contextlib.contextmanager
def progress_bar() -> Iterator[Progress]:
    """A bar on the terminal; a file gets its last state alone."""
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
    ) as progress:
        yield progress


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
    """Run a program.

    Args:
        family: Ends it if we end.
        command: Program and arguments.
        environment: Variables on top of ours.
        log: Gets its output.
        what: Its name on the bar and in an error.
        count: Entries it has finished so far.
        total: All entries; None if nobody knows.

    Raises:
        EvaluationError: It failed.
    """
    program = family.start(command, log, {**_past_the_proxy(), **environment}, Path.cwd())
    with progress_bar() as progress:
        bar = progress.add_task(what, total=total)
        while program.poll() is None:
            progress.update(bar, completed=count())
            time.sleep(0.5)
        progress.update(bar, completed=count())
    if program.returncode != 0:
        raise EvaluationError(
            f"{what}: the program failed (exit code {program.returncode}); what is finished stays, "
            f"and the same command goes on:\n{tail(log)}\n(log: {log})"
        )


def _past_the_proxy() -> dict[str, str]:
    """A proxy set for the outside world must not see a server on this machine."""
    said = [os.environ.get(name, "") for name in ("no_proxy", "NO_PROXY")]
    hosts = ",".join(dict.fromkeys(filter(None, [*said, "127.0.0.1", "localhost"])))
    return {"no_proxy": hosts, "NO_PROXY": hosts}
