"""What a run leaves behind of its loop, as JSON lines under `experiments/<name>/loop/`.

* `rounds.jsonl`, a line a training round: labels, C_t, the interface shown and the evolved one;
* `rollouts.jsonl`, a line a rollout that was trained on: labels with their reasons, weight;
* `phases.jsonl`, a line each time the trainer begins something, which the launcher's progress bar
  and watchdog read; its last line is the launcher's and says how the run ended.

Standard library only, so the launcher can read without importing torch.
"""

import json
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

ROUNDS = "rounds.jsonl"
PHASES = "phases.jsonl"
ROLLOUTS = "rollouts.jsonl"
DONE, FAILED, INTERRUPTED = "done", "failed", "interrupted"
"""Last phase of a run: how it ended. A run whose launcher was killed has none of them."""
FAULT = "fault"
"""Phase of a trainer that can neither go on nor end by itself; its line says why (`said`)."""


class LoopLog:
    """Appends to a run's loop log; every line is complete on disk once written.

    Args:
        folder: Where the files go; created if missing.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder

    def phase(self, name: str, step: int) -> None:
        """The trainer begins `name` (e.g. rollout, update, weight_transfer) of step `step`."""
        self._append(PHASES, {"phase": name, "step": step})

    def fault(self, said: str, step: int) -> None:
        """The run has to be ended, for the reason that is said."""
        self._append(PHASES, {"phase": FAULT, "step": step, "said": said})

    def end(self, how: str) -> None:
        """The run has ended, DONE, FAILED or INTERRUPTED, in the step that was begun last."""
        begun = list(LineReader(self._folder / PHASES).new())
        self.phase(how, begun[-1]["step"] if begun else 0)

    def round(self, record: dict[str, Any]) -> None:
        """One finished training round."""
        self._append(ROUNDS, record)

    def rollouts(self, records: Iterable[dict[str, Any]]) -> None:
        """The rollouts of a round."""
        self._append(ROLLOUTS, *records)

    def rewind(self, step: int) -> None:
        """Drop what was written of rounds after `step`: a resumed run makes them anew."""
        for name in (ROUNDS, ROLLOUTS):
            path = self._folder / name
            if not path.exists():
                continue
            lines = list(LineReader(path).new())
            unfinished = path.with_suffix(".unfinished")
            with unfinished.open("w", encoding="utf-8") as file:
                file.writelines(json.dumps(line) + "\n" for line in lines if line["step"] <= step)
            unfinished.replace(path)

    def _append(self, name: str, *records: dict[str, Any]) -> None:
        now = time.time()
        lines = "".join(json.dumps({"time": now, **record}) + "\n" for record in records)
        path = self._folder / name
        with path.open("a+b") as file:
            if file.tell():
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":  # a process that was killed left half a line
                    lines = "\n" + lines
            file.write(lines.encode("utf-8"))


class LineReader:
    """Reads a growing JSON lines file; `new()` gives each complete line once.

    Args:
        path: The file; it may appear later.
        from_end: Skip what is there already.
    """

    def __init__(self, path: Path, *, from_end: bool = False) -> None:
        self._path = path
        self._offset = path.stat().st_size if from_end and path.exists() else 0

    def new(self) -> Iterator[dict[str, Any]]:
        """Lines completed since the last call."""
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._offset)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                self._offset += len(line)
                yield json.loads(line)
