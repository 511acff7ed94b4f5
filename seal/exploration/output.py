"""The file of candidates while it grows: one line for each finished seed.

In: a path and how the model is asked. Out: which seeds are finished, and new lines, each written as
soon as its seed is finished. A second program on the same file is refused, and so is a file whose
candidates of the same model were asked for in another way: a finished seed would hide that.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from seal.exploration.faults import ExplorationError
from seal.exploration.settings import Settings
from seal.records.candidates import Proposed, read_proposed
from seal.records.json_lines import BadLine, append_json_lines


@dataclass
class Output:
    """A file of candidates that this program writes."""

    path: Path
    """The file."""
    finished: set[str]
    """Seeds of this author that have a line."""

    def add(self, proposed: Proposed) -> None:
        """Write what a seed has brought.

        Raises:
            OSError: It cannot be written.
        """
        append_json_lines(self.path, proposed.to_json())
        self.finished.add(proposed.seed_task)


@contextmanager
def opened(path: Path, settings: Settings) -> Iterator[Output]:
    """The file, made if it does not exist, and ours until the end of the block.

    Raises:
        ExplorationError: Another program writes it, it holds something else, or candidates of this
            author that were asked for in another way.
        OSError: It cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ExplorationError(
                f"another program writes --out {path}; wait for its end, or name another file"
            ) from None
        file.seek(0)
        # A line without its end was cut off while it was written; its seed is asked for again.
        os.truncate(path, file.read().rfind(b"\n") + 1)
        try:
            lines = read_proposed(path)
        except BadLine as error:
            raise ExplorationError(
                f"--out: {error}; it is no file of candidates, so name another one"
            ) from None
        own = [line for line in lines if line.author == settings.author]
        for line in own:
            _check_same(path, line, settings)
        yield Output(path, {line.seed_task for line in own})


def _check_same(path: Path, line: Proposed, settings: Settings) -> None:
    wanted = settings.of_rewording() if line.pool else settings.of_exploring()
    differing = [
        f"{key}: {line.settings.get(key)!r} there, {wanted.get(key)!r} now"
        for key in {**line.settings, **wanted}
        if line.settings.get(key) != wanted.get(key)
    ]
    if differing:
        raise ExplorationError(
            f"--out {path} has candidates of {line.author} that were asked for in another way "
            f"({'; '.join(differing)}); name another file"
        )
