"""Makes a pool: attempts in several processes, the kept ones in order, all files or none.

In: a proposer and how many tasks are wanted. Out: the pool's two files. They are the same, byte for
byte, whatever the number of processes, because an attempt depends on its number alone and attempts
are looked at in order.
"""

import contextlib
import ctypes
import json
import math
import multiprocessing
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from env_service.environments.bfcl.synthesis.candidates import Attempt
from env_service.environments.bfcl.synthesis.filters import Kept
from env_service.environments.bfcl.synthesis.pool import (
    PREFIX,
    BadPool,
    line_of,
    report_file,
    task_file,
)
from env_service.environments.bfcl.synthesis.proposals import AUTHOR, Candidate, Proposer
from env_service.environments.bfcl.synthesis.report import report_on
from env_service.environments.bfcl.synthesis.verification import Refused
from seal.records.whole_file import whole_file

BATCH = 256
"""Attempts that are handed to the processes at once."""
MOST_ATTEMPTS = 30
"""Attempts that may be made for each wanted task."""
PROGRESS_S = 10.0
"""Seconds between two lines of progress."""
_PR_SET_PDEATHSIG = 1


@dataclass
class Draft:
    """A pool before it is written."""

    candidates: list[Candidate] = field(default_factory=list)
    """What was kept, with ids."""
    refused: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Author and reason -> attempts."""

    _kept: Kept = field(default_factory=Kept)

    def take(self, author: str, outcome: Candidate | Refused, name: str) -> None:
        """Keep what an attempt has brought as a task of the pool `name`, or count why not."""
        try:
            if isinstance(outcome, Refused):
                raise outcome
            self._kept.add(outcome.task)
        except Refused as reason:
            self.refused[author, str(reason)] += 1
            return
        self.candidates.append(_with_id(outcome, name, len(self.candidates)))

    @property
    def attempts(self) -> int:
        """All attempts."""
        return len(self.candidates) + self.refused.total()


def make(proposer: Proposer, name: str, wanted: int, processes: int) -> Draft:
    """Make attempts until enough tasks are kept.

    Raises:
        BadPool: They cannot be draft.
    """
    if not proposer.seeds:
        raise BadPool(
            "no training task has one of these tool classes and a state of its own; take more "
            "--classes, or a split that keeps evaluation states apart (data/bfcl_clean_split.json)"
        )
    draft, progress = Draft(), _Progress(wanted)
    for outcome in _attempts(proposer, wanted, processes):
        draft.take(AUTHOR, outcome, name)
        progress.show(len(draft.candidates))
        if len(draft.candidates) == wanted:
            return draft
    (_, most), count = draft.refused.most_common(1)[0]
    raise BadPool(
        f"only {len(draft.candidates)} of {wanted} tasks in {draft.attempts} attempts; the most "
        f"frequent reason, {count} times: {most}; ask for fewer --tasks, or for other --turns, "
        "--calls or --classes"
    )


def make_from(attempts: Iterable[Attempt], name: str) -> Draft:
    """Keep the candidates of a file that pass.

    Raises:
        BadPool: None does.
    """
    draft = Draft()
    for attempt in attempts:
        draft.take(attempt.author, attempt.outcome, name)
    if not draft.candidates:
        reasons = "; ".join(
            f"{author}: {reason}, {count} times"
            for (author, reason), count in draft.refused.most_common()
        )
        raise BadPool(f"none of {draft.attempts} candidates was kept ({reasons})")
    return draft


def write(draft: Draft, folder: Path, name: str) -> None:
    """Write the pool's tasks and its report, both or none.

    Raises:
        BadPool: They cannot be written.
    """
    lines = "".join(line_of(kept.task, kept.provenance) for kept in draft.candidates)
    report = report_on(name, lines, draft.refused)
    contents = {
        task_file(folder, name): lines,
        report_file(folder, name): json.dumps(report, indent=1) + "\n",
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # Each file gets its name when the block ends.
        with contextlib.ExitStack() as written:
            for path, content in contents.items():
                written.enter_context(whole_file(path)).write_text(content, "utf-8")
    except OSError as error:
        raise BadPool(f"cannot write the pool: {error}") from None


def _with_id(candidate: Candidate, name: str, number: int) -> Candidate:
    scenario = candidate.provenance.seed_task.rpartition("_")[2]
    task_id = f"{PREFIX}{name}_{number:06d}_{scenario}"
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


class _Progress:
    """A line a few times a minute on standard error."""

    def __init__(self, wanted: int) -> None:
        self._wanted = wanted
        self._start = self._shown = time.monotonic()

    def show(self, kept: int) -> None:
        now = time.monotonic()
        if now - self._shown < PROGRESS_S:
            return
        self._shown = now
        rate = kept / (now - self._start)
        left = math.ceil((self._wanted - kept) / rate)
        sys.stderr.write(
            f"synthesis: {kept} of {self._wanted} tasks ({kept / self._wanted:.0%}), "
            f"{rate:.0f} a second, about {left} s left\n"
        )
