"""JSON lines files: one JSON object on each line, in UTF-8.

In: the path of a file. Out: its objects, or `BadLine` with the reason. A finished file is read with
`read_json_lines`, one that another process still writes with `LineReader`.
"""

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

Kept = TypeVar("Kept")


class BadLine(ValueError):
    """A line cannot be used; the message says what is wrong with it."""


def json_object(raw: bytes) -> dict[str, Any]:
    """The object that a line holds.

    Raises:
        BadLine: The line is not UTF-8, not JSON, or no JSON object.
    """
    try:
        value = json.loads(raw.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise BadLine(f"not UTF-8 (byte {error.start + 1} is 0x{raw[error.start]:02x})") from None
    except (ValueError, RecursionError) as error:
        raise BadLine(f"not JSON ({error})") from None
    if not isinstance(value, dict):
        raise BadLine(f"expected a JSON object, got {type(value).__name__}")
    return value


def read_json_lines(path: Path, keep: Callable[[int, dict[str, Any]], Kept]) -> Iterator[Kept]:
    """What `keep` makes of each line. The last line may lack its line end.

    `keep` gets the number of a line, from 1, and its object; it may raise BadLine.

    Raises:
        BadLine: A line cannot be used; the message begins with the file and the line's number.
        OSError: The file cannot be read.
    """
    # In bytes: a text may hold characters that text mode or splitlines take for line ends.
    with path.open("rb") as lines:
        for number, raw in enumerate(lines, 1):
            try:
                kept = keep(number, json_object(raw))
            except BadLine as error:
                raise BadLine(f"{path}, line {number}: {error}") from None
            yield kept


def json_lines(records: Iterable[Mapping[str, Any]]) -> str:
    r"""The text of a file with these objects.

    >>> json_lines([{"step": 1}, {"step": 2}])
    '{"step": 1}\n{"step": 2}\n'
    """
    return "".join(json.dumps(record) + "\n" for record in records)


def append_json_lines(path: Path, *records: Mapping[str, Any]) -> None:
    """Add lines at the end of a file, which is made if it does not exist.

    If a killed process left half a line, the first new line still starts on a line of its own.
    """
    text = json_lines(records)
    with path.open("a+b") as file:
        if file.tell():
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                text = "\n" + text
        file.write(text.encode("utf-8"))


class LineReader:
    """Reads a growing JSON lines file; `new()` gives each complete line once.

    Args:
        path: The file; it may appear later.
        from_end: Skip the lines that exist already.
    """

    def __init__(self, path: Path, *, from_end: bool = False) -> None:
        self._path = path
        self._offset = path.stat().st_size if from_end and path.exists() else 0

    def new(self) -> Iterator[dict[str, Any]]:
        """Lines completed since the last call.

        Raises:
            BadLine: A complete line holds no object.
        """
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._offset)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                self._offset += len(line)
                yield json_object(line)
