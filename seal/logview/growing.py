"""JSON lines files that may still be written, indexed by the byte where each line begins.

In: a file. Out: what was kept of each complete line, a sentence for each that cannot be read, and
any one line in full. Files of tens of megabytes are read once, line by line, then only what was
appended; of each line only what `keep` returns stays in memory. Called by `seal.logview.runs`.

A last line without its line end is still being written: it is left for the next time.
"""

import json
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Generic, TypeVar

Kept = TypeVar("Kept")
Keep = Callable[[int, dict[str, Any]], Kept]
"""What to keep of a line: its number from 1 and its object -> the part that stays in memory."""

LONGEST_LINE = 1 << 26
"""Bytes; a longer line is no dialogue, and reading it could take all memory."""
_MOST_FAULTS = 20
"""Sentences that are kept of a file; a foreign file would yield one a line."""
_TAIL = 128
"""Bytes before the end of what was read, by which another file in the same place is noticed."""


class Unreadable(Exception):
    """A line or file cannot be read; the message says which and why."""


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

    lines: tuple[Line[Kept], ...]
    """Every complete line that can be read."""
    faults: tuple[str, ...]
    """A sentence for each that cannot, and for a file that cannot."""
    exists: bool
    """There is such a file."""


class GrowingFile(Generic[Kept]):
    """The index of one file; `contents()` brings it up to date. Safe to use from several threads.

    Args:
        path: The file; it may appear later, grow, be replaced or vanish.
        keep: Called once a line; raises Unreadable where the object is not what was expected.
    """

    def __init__(self, path: Path, keep: Keep[Kept]) -> None:
        self._path = path
        self._keep = keep
        self._lock = threading.Lock()
        self._forget()

    def contents(self) -> Contents[Kept]:
        """The file's complete lines now."""
        with self._lock:
            try:
                with self._path.open("rb") as file:
                    self._read_on(file)
            except FileNotFoundError:
                self._forget()
                return Contents((), (), exists=False)
            except OSError as error:
                fault = f"{self._path.name} cannot be read: {error.strerror}"
                return Contents((), (fault,), exists=True)
            faults = list(self._faults)
            if self._unreadable > len(faults):
                faults.append(f"{self._path.name}: {self._unreadable} such lines in all")
            return Contents(tuple(self._lines), tuple(faults), exists=True)

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
                    raise Unreadable(f"longer than {LONGEST_LINE >> 20} MiB")
                line = Line(self._number, self._offset, self._keep(self._number, json_object(raw)))
                self._lines.append(line)
            except Unreadable as error:
                self._unreadable += 1
                if len(self._faults) < _MOST_FAULTS:
                    self._faults.append(f"{self._path.name}, line {self._number}: {error}")
            self._offset = file.tell()
        if self._offset != before:
            file.seek(max(0, self._offset - _TAIL))
            self._tail = file.read(self._offset - file.tell())


def _rest_of_line(file: BinaryIO, raw: bytes) -> bytes:
    """The last piece of a line that is too long; `raw` itself of one that is still written."""
    while len(raw) == LONGEST_LINE and not raw.endswith(b"\n"):
        raw = file.readline(LONGEST_LINE)
    return raw


def object_at(path: Path, offset: int) -> dict[str, Any]:
    """The object of the line that begins at a byte.

    Raises:
        Unreadable: The file is gone or was written anew since the byte was noted.
    """
    try:
        with path.open("rb") as file:
            if offset:
                file.seek(offset - 1)
                if file.read(1) != b"\n":
                    raise Unreadable(f"{path.name} was written anew; go back and open it again")
            return json_object(file.readline(LONGEST_LINE))
    except OSError as error:
        raise Unreadable(f"{path.name} cannot be read: {error.strerror}") from None


def json_object(raw: bytes) -> dict[str, Any]:
    r"""One line's object, with text that can always be written as UTF-8.

    JSON can hold half a surrogate pair, which no encoding can: it becomes its escape.

    >>> json_object(b'{"output": "a \\ud800"}') == {"output": "a " + chr(92) + "ud800"}
    True

    Raises:
        Unreadable: It is no JSON object in UTF-8.
    """
    try:
        line = json.loads(raw.decode("utf-8"))
        if b"\\ud" in raw.lower():
            line = _writable(line)
    except UnicodeDecodeError as error:
        raise Unreadable(f"not UTF-8 at byte {error.start + 1}") from None
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"not JSON ({error})") from None
    if not isinstance(line, dict):
        raise Unreadable(f"expected a JSON object, got {type(line).__name__}")
    return line


def _writable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, list):
        return [_writable(one) for one in value]
    if isinstance(value, dict):
        return {_writable(key): _writable(one) for key, one in value.items()}
    return value


class Files:
    """The indexes of the files that were looked at last.

    Args:
        most: How many are kept; an index that was dropped is made anew when it is asked for.
    """

    def __init__(self, most: int = 64) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._open: OrderedDict[Path, GrowingFile[Any]] = OrderedDict()

    def contents(self, path: Path, keep: Keep[Kept]) -> Contents[Kept]:
        """A file's complete lines now. One path always goes with one `keep`."""
        with self._lock:
            growing: GrowingFile[Kept] = self._open.setdefault(path, GrowingFile(path, keep))
            self._open.move_to_end(path)
            while len(self._open) > self._most:
                self._open.popitem(last=False)
        return growing.contents()
