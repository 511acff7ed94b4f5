"""Makes a pool: attempts in several processes, the kept ones in order, all files or none.

In: a proposer and how many tasks are wanted. Out: the pool's three files. They are the same, byte
for byte, whatever the number of processes, because an attempt depends on its number alone and
attempts are looked at in order.
"""

import contextlib
import ctypes
import json
import multiprocessing
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from tqdm import tqdm

from env_service.environments.bfcl.synthesis.candidates import FromFile
from env_service.environments.bfcl.synthesis.filters import Kept
from env_service.environments.bfcl.synthesis.pool import (
    ROOT,
    BadPool,
    id_of,
    line_of,
    report_file,
    table_file,
    table_line,
    task_file,
)
from env_service.environments.bfcl.synthesis.proposals import AUTHOR, Candidate, Proposer
from env_service.environments.bfcl.synthesis.report import Origin, report_on
from env_service.environments.bfcl.synthesis.verification import Refused
from seal.records.whole_file import whole_file

BATCH = 256
"""Attempts that are handed to the processes at once."""
MOST_ATTEMPTS = 30
"""Attempts that may be made for each wanted task."""
LOG_EVERY_S = 10.0
"""Seconds between two lines of progress where there is no terminal."""
_PR_SET_PDEATHSIG = 1


@dataclass
class Draft:
    """A pool before it is written."""

    origin: Origin
    """What it was made from."""
    candidates: list[Candidate] = field(default_factory=list)
    """What was kept, with ids."""
    refused: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Author and reason -> attempts."""

    _kept: Kept = field(default_factory=Kept)

    def take(self, author: str, outcome: Candidate | Refused, name: str) -> bool:
        """Keep what an attempt has brought as a task of the pool `name`, or count why not."""
        try:
            if isinstance(outcome, Refused):
                raise outcome
            self._kept.add(outcome.task)
        except Refused as reason:
            self.refused[author, str(reason)] += 1
            return False
        self.candidates.append(_with_id(outcome, name, len(self.candidates)))
        return True

    @property
    def attempts(self) -> int:
        """All attempts."""
        return len(self.candidates) + self.refused.total()


def make(proposer: Proposer, name: str, wanted: int, processes: int) -> Draft:
    """Make attempts until enough tasks are kept.

    Raises:
        BadPool: There is no seed, or too few attempts are kept.
    """
    origin = proposer.origin
    if not proposer.seeds:
        raise BadPool(
            f"no base task of side {origin.side} has one of these tool classes and a state of its "
            "own; take more --classes, or a split that keeps evaluation states apart "
            "(data/bfcl_clean_split.json)"
        )
    draft = Draft(origin)
    with _progress(wanted) as progress:
        for outcome in _attempts(proposer, wanted, processes):
            progress.update(draft.take(AUTHOR, outcome, name))
            if len(draft.candidates) == wanted:
                return draft
    (_, most), count = draft.refused.most_common(1)[0]
    raise BadPool(
        f"only {len(draft.candidates)} of {wanted} tasks in {draft.attempts} attempts; the most "
        f"frequent reason, {count} times: {most}; ask for fewer --tasks, or for other --turns, "
        "--calls or --classes"
    )


def make_from(source: FromFile, name: str) -> Draft:
    """Keep the candidates of a file that pass.

    Raises:
        BadPool: None does.
    """
    draft = Draft(source.origin)
    with _progress(len(source)) as progress:
        for attempt in source.attempts():
            draft.take(attempt.author, attempt.outcome, name)
            progress.update()
    if not draft.candidates:
        reasons = "; ".join(
            f"{author}: {reason}, {count} times"
            for (author, reason), count in draft.refused.most_common()
        )
        raise BadPool(f"none of {draft.attempts} candidates was kept ({reasons})")
    return draft


def write(draft: Draft, name: str, root: Path = ROOT) -> None:
    """Write the pool's tasks, the trainer's table and the report, all or none.

    Raises:
        BadPool: They cannot be written.
    """
    lines = "".join(line_of(kept.task, kept.provenance) for kept in draft.candidates)
    table = "".join(table_line(kept.task, kept.provenance) for kept in draft.candidates)
    report = report_on(name, lines, table, draft.origin, draft.refused)
    contents = {
        task_file(name, root): lines,
        table_file(name, root): table,
        report_file(name, root): json.dumps(report, indent=1) + "\n",
    }
    complete = False
    try:
        # Each file gets its name when the block ends.
        with contextlib.ExitStack() as written:
            for path, content in contents.items():
                path.parent.mkdir(parents=True, exist_ok=True)
                written.enter_context(whole_file(path)).write_text(content, "utf-8")
            complete = True
    except OSError as error:
        for path in contents if complete else ():
            # Some files have their names and others have not.
            with contextlib.suppress(OSError):
                path.unlink()
        raise BadPool(f"cannot write the pool: {error}") from None


def _with_id(candidate: Candidate, name: str, number: int) -> Candidate:
    task_id = id_of(name, number, candidate.provenance.seed_task)
    return replace(candidate, task=replace(candidate.task, task_id=task_id))


# ---- processes ---------------------------------------------------------------------------------

_proposer: Proposer | None = None
"""Of a worker process; forked, so it need not be sent."""


def _attempts(proposer: Proposer, wanted: int, processes: int) -> Iterator[Candidate | Refused]:
    """What the attempts bring, in the order of their numbers."""
    most = MOST_ATTEMPTS * wanted
    if processes == 1:
        yield from map(proposer.attempt, range(most))
        return
    fork = multiprocessing.get_context("fork")
    with fork.Pool(processes, _begin, (proposer,)) as pool:
        for first in range(0, most, BATCH):
            batch = range(first, min(first + BATCH, most))
            yield from pool.imap(_attempt, batch, chunksize=4)


def _begin(proposer: Proposer) -> None:
    """Set a worker process up: it ends with its parent, which alone handles Ctrl-C."""
    global _proposer
    _proposer = proposer
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _attempt(number: int) -> Candidate | Refused:
    assert _proposer is not None
    return _proposer.attempt(number)


def _progress(wanted: int) -> "tqdm[None]":
    """A bar on a terminal; elsewhere a line now and then, and none of what is soon done."""
    every = 0.1 if sys.stderr.isatty() else LOG_EVERY_S
    delay = 0.0 if sys.stderr.isatty() else LOG_EVERY_S
    return tqdm(desc="tasks", total=wanted, unit="task", mininterval=every, delay=delay)
