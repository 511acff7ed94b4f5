"""Folders of models that are made here: such a folder is complete, or it does not exist.

In: the folder's path. Out: a folder beside it to write to, which gets the path at the end.
"""

import contextlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from seal.records.whole_file import write_whole

BUILT = "built.json"
"""Facts about a model, in its folder."""


def unfinished_folder(out: Path) -> Path:
    """Where a folder is made before it gets its own name."""
    return out.with_name(out.name + ".unfinished")


@contextlib.contextmanager
def whole_folder(out: Path) -> Iterator[Path]:
    """An empty folder, which becomes `out` if the block ends without an error.

    Raises:
        OSError: The folder cannot be written, or `out` exists.
    """
    if out.exists():
        raise FileExistsError(f"{out} exists, but is not complete; delete it, or name another one")
    unfinished = unfinished_folder(out)
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    yield unfinished
    os.replace(unfinished, out)


def write_facts(path: Path, facts: Mapping[str, Any], indent: int = 1) -> None:
    """Write facts about a model as JSON, for people."""
    write_whole(path, json.dumps(facts, indent=indent) + "\n")
