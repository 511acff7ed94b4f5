"""What an evaluation was made with, kept beside its results, so that only the same one goes on.

In: the settings of a start. Out: `settings.json`, or an error that names what is different from the
start that made the folder. Called by scripts/evaluate.py.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from seal.evaluation.faults import EvaluationError

SETTINGS = "settings.json"


def keep_settings(folder: Path, settings: Mapping[str, Any]) -> None:
    """Write the settings of a new evaluation, or check that an old one had the same.

    Raises:
        EvaluationError: It had others, or the folder holds something else.
    """
    path = folder / SETTINGS
    wanted = json.loads(json.dumps(settings))
    if not path.exists():
        if folder.is_dir() and any(folder.iterdir()):
            raise EvaluationError(f"{folder} holds no evaluation; name another folder with --out")
        folder.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        part.write_text(json.dumps(wanted, indent=1) + "\n", "utf-8")
        part.replace(path)
        return
    try:
        kept = json.loads(path.read_text("utf-8"))
    except ValueError:
        raise EvaluationError(f"{path} is damaged; name another folder with --out") from None
    differing = [key for key in {**kept, **wanted} if kept.get(key) != wanted.get(key)]
    if differing:
        said = "; ".join(
            f"{key}: {kept.get(key)!r} there, {wanted.get(key)!r} now" for key in differing
        )
        raise EvaluationError(
            f"{folder} is the evaluation of something else ({said}); name another folder with --out"
        )


def fingerprint(path: Path) -> str:
    """Changes when a model's folder or a file does; weights by size and time, not read through."""
    digest = hashlib.sha256()
    for file in sorted(path.iterdir()) if path.is_dir() else [path]:
        if file.suffix == ".safetensors":
            status = file.stat()
            digest.update(f"{file.name} {status.st_size} {status.st_mtime_ns}".encode())
        elif file.is_file():
            digest.update(file.name.encode() + file.read_bytes())
    return digest.hexdigest()[:16]
