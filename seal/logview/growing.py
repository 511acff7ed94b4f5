"""JSON lines files that may still be written, indexed by the byte where each line begins.

In: a file. Out: what was kept of each complete line, a sentence for each unreadable line, and any
one line in full. Files of tens of megabytes are read once, line by line, then only what was
appended. Of each line only the result of `keep` stays in memory.

A last line without its line end is still being written and is left for the next time.
"""

import functools
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Generic, TypeVar

from seal.records.json_lines import BadLine, json_object

Kept = TypeVar("Kept")
Keep = Callable[[int, dict[str, Any]], Kept]
"""What to keep of a line: its number from 1 and its object -> the part that stays in memory."""

LONGEST_LINE = 1 << 26
"""Bytes; a longer line is no dialogue, and reading it could take all memory."""
_MOST_FAULTS = 20
"""Sentences that are kept for a file; a foreign file would give one a line."""
_TAIL = 128
"""Bytes before the end of what was read: if they change, another file has taken its place."""


@dataclass(frozen=True)
class Line(Generic[Kept]):
    """One complete line."""

    number: int
    """From 1, as an editor counts."""
    offset: int
    """Byte where it begins."""
    kept: Kept
    """What `keep` returned."""


@dataclass(frozen=True)
class Contents(Generic[Kept]):
    """A file as it was at one moment."""

    lines: tuple[Line[Kept], ...] = ()
    """Every complete line that can be read."""
    faults: tuple[str, ...] = ()
    """A sentence for each line that cannot be read, or for the whole file."""


class GrowingFile(Generic[Kept]):
    """The index of one file; `contents()` brings it up to date. Safe to use from several threads.

    The file may appear later, grow, be replaced or vanish.
    """

    def __init__(self, path: Path, keep: Keep[Kept]) -> None:
        self._path = path
        self._keep = keep
        self._lock = threading.Lock()
        self._forget()

    def contents(self) -> Contents[Kept]:
        """The file's complete lines now; empty if there is no such file."""
        with self._lock:
            try:
                with self._path.open("rb") as file:
                    self._read_on(file)
            except FileNotFoundError:
                self._forget()
            except OSError as error:
                return Contents(faults=(f"{self._path.name} cannot be read: {error.strerror}",))
            faults = list(self._faults)
            if self._unreadable > len(faults):
                faults.append(f"{self._path.name}: {self._unreadable} such lines in all")
            return Contents(tuple(self._lines), tuple(faults))

    def _forget(self) -> None:
        self._lines: list[Line[Kept]] = []
        self._faults: list[str] = []
        self._unreadable = 0
        self._number = 0
        self._offset = 0
        self._tail = b""

    def _read_on(self, file: BinaryIO) -> None:
        file.seek(max(0, self._offset - _TAIL))
        # A resumed run writes its files anew, in the same place and sometimes longer than before.
        if file.read(self._offset - file.tell()) != self._tail:
            self._forget()
        file.seek(self._offset)
        before = self._offset
        while raw := file.readline(LONGEST_LINE):
            end = raw if raw.endswith(b"\n") else _rest_of_line(file, raw)
            if not end.endswith(b"\n"):
                break
            self._number += 1
            try:
                if end is not raw:
                    raise BadLine(f"longer than {LONGEST_LINE >> 20} MiB")
                kept = self._keep(self._number, writable_object(raw))
                self._lines.append(Line(self._number, self._offset, kept))
            except BadLine as error:
                self._unreadable += 1
                if len(self._faults) < _MOST_FAULTS:
                    self._faults.append(f"{self._path.name}, line {self._number}: {error}")
            self._offset = file.tell()
        if self._offset != before:
            file.seek(max(0, self._offset - _TAIL))
            self._tail = file.read(self._offset - file.tell())


def _rest_of_line(file: BinaryIO, raw: bytes) -> bytes:
    """The last piece of a line that is too long; `raw` itself if the line is still written."""
    while len(raw) == LONGEST_LINE and not raw.endswith(b"\n"):
        raw = file.readline(LONGEST_LINE)
    return raw


def object_at(path: Path, offset: int) -> dict[str, Any]:
    """The object of the line that begins at a byte.

    Raises:
        BadLine: The file is gone or was written anew since the byte was noted.
    """
    try:
        with path.open("rb") as file:
            if offset:
                file.seek(offset - 1)
                if file.read(1) != b"\n":
                    raise BadLine(f"{path.name} was written anew; go back and open it again")
            return writable_object(file.readline(LONGEST_LINE))
    except OSError as error:
        raise BadLine(f"{path.name} cannot be read: {error.strerror}") from None


def writable_object(raw: bytes) -> dict[str, Any]:
    r"""One line's object, with text that can always be written as UTF-8.

    JSON can hold half a surrogate pair, which no encoding can hold: it becomes its escape.

    >>> writable_object(b'{"output": "a \\ud800"}') == {"output": "a " + chr(92) + "ud800"}
    True

    Raises:
        BadLine: It is no JSON object in UTF-8.
    """
    line = json_object(raw)
    try:
        return _writable(line) if b"\\ud" in raw.lower() else line
    except RecursionError as error:
        raise BadLine(f"not JSON ({error})") from None


def _writable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, list):
        return [_writable(item) for item in value]
    if isinstance(value, dict):
        return {_writable(key): _writable(item) for key, item in value.items()}
    return value


class Files:
    """The indexes of the files that were looked at last.

    At most `most` are kept; a dropped one is made anew when it is asked for.
    """

    def __init__(self, most: int = 64) -> None:
        self._open = functools.lru_cache(most)(GrowingFile[Any])

    def contents(self, path: Path, keep: Keep[Kept]) -> Contents[Kept]:
        """A file's complete lines now. The same `keep` object finds the same index again."""
        return self._open(path, keep).contents()
