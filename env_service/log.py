"""The service's log: one JSON object a line on standard error.

Every line has time, level, logger and message; what a call of the logger puts into `extra` (the
instance's id, the task's, a count) becomes a field of its own. Arguments of tools and texts of the
policy are never logged at INFO.
"""

import contextlib
import json
import logging
import os
import queue
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime

MOST_WAITING = 10_000
"""Lines that wait for whoever reads the log."""
LAST_LINES_S = 1.0
"""Seconds that the last lines have when the process ends."""
_STDERR = 2
_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "color_message"}


class JsonLines(logging.Formatter):
    """A record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **{key: value for key, value in vars(record).items() if key not in _OWN},
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class StandardError(logging.Handler):
    """Writes lines from a thread of its own, so that nobody waits for whoever reads them.

    Where nobody does, the lines that do not fit into the queue are dropped and counted.

    Args:
        on_drop: Called for every line that is dropped.
    """

    def __init__(self, on_drop: Callable[[], object] = lambda: None) -> None:
        super().__init__()
        self.on_drop = on_drop
        self._lines: queue.Queue[bytes] = queue.Queue(MOST_WAITING)
        threading.Thread(target=self._write, name="log", daemon=True).start()

    def emit(self, record: logging.LogRecord) -> None:
        """Hand the line to the thread."""
        try:
            self._lines.put_nowait(self.format(record).encode("utf-8", "replace") + b"\n")
        except queue.Full:
            self.on_drop()

    def flush(self) -> None:
        """Wait until all is written, for LAST_LINES_S at most."""
        deadline = time.monotonic() + LAST_LINES_S
        while self._lines.unfinished_tasks and time.monotonic() < deadline:
            time.sleep(0.01)

    def _write(self) -> None:
        while True:
            line = self._lines.get()
            # Not sys.stderr: a thread that waits inside it keeps the interpreter from ending.
            with contextlib.suppress(OSError):  # whoever read it has gone
                while line:
                    line = line[os.write(_STDERR, line) :]
            self._lines.task_done()


def log_to_stderr(level: str) -> StandardError:
    """Send every logger's lines to standard error in this form; returns who writes them."""
    handler = StandardError()
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=level, handlers=[handler], force=True)
    return handler
