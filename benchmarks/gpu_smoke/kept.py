"""Parts of a measurement, a file each: what has been measured is not measured again."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from seal.records.whole_file import write_whole


class SmokeError(Exception):
    """The measurement cannot start or has failed; the message says what to do."""


def same_settings(path: Path, settings: Sequence[str]) -> None:
    """Write down in the file `path` what is measured in its folder.

    Raises:
        SmokeError: The folder holds a measurement of something else.
    """
    if path.exists() and json.loads(path.read_text("utf-8")) != list(settings):
        raise SmokeError(
            f"{path.parent} holds a measurement with other settings; name another folder (--out)"
        )
    path.write_text(json.dumps(list(settings), indent=1) + "\n", "utf-8")


def once(path: Path, measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What `measure` returns, as JSON values; read from the file if it was measured before."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps(measure()) + "\n")
    return dict(json.loads(path.read_text("utf-8")))
