"""Files that are written whole or not at all, even if the process is killed while it writes.

In: a path and what the file is to hold. Out: the file. Until it is complete and on the disk, an
earlier file of the same name stays as it was.
"""

import contextlib
import os
import uuid
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A path beside `path` to write to; it becomes `path` when the block ends without an error.

    Several processes may write the same file at the same time: the last one to end wins.
    """
    unfinished = path.with_name(f"{path.name}.{uuid.uuid4().hex}.unfinished")
    try:
        yield unfinished
        with unfinished.open("rb") as file:
            os.fsync(file.fileno())
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def write_whole(path: Path, text: str) -> None:
    """Write a text, in UTF-8, into an existing folder.

    Raises:
        OSError: The file cannot be written; an earlier one is unchanged.
    """
    with whole_file(path) as unfinished:
        unfinished.write_text(text, "utf-8")
