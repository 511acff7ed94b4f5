"""Parts of a measurement, each a file: what was measured is not measured again."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any


class SmokeError(Exception):
    """The measurement cannot start or has failed; the message says what to do."""


def same_settings(path: Path, settings: Sequence[str]) -> None:
    """Note what is measured in a folder, in its file `path`.

    Raises:
        SmokeError: Something else was measured there.
    """
    if path.exists() and json.loads(path.read_text("utf-8")) != list(settings):
        raise SmokeError(
            f"{path.parent} holds a measurement with other settings; name another folder (--out)"
        )
    path.write_text(json.dumps(list(settings), indent=1) + "\n", "utf-8")


def once(path: Path, measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What was measured, kept in a file: an interrupted script does not measure it again."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(measure()) + "\n", "utf-8")
    read: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return read
