"""The service's log: one JSON object on each line on standard error.

Every line has time, level, logger and message. Each key of a logging call's `extra` (an instance's
id, a task's, a count) becomes a field. Arguments of tools and texts of the policy are never logged
at INFO.
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
"""Lines that may wait for the reader of the log."""
LAST_LINES_S = 1.0
"""Seconds to write the last lines when the process ends."""
_STDERR = 2
_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "color_message"}


class JsonLines(logging.Formatter):
    """Formats a record as one line of JSON."""

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
    """Writes lines in a separate thread, so that requests do not wait for the reader of the log.

    If nobody reads, lines that do not fit into the queue are dropped; `on_drop` counts them.
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
        """Wait until all lines are written, at most LAST_LINES_S."""
        deadline = time.monotonic() + LAST_LINES_S
        while self._lines.unfinished_tasks and time.monotonic() < deadline:
            time.sleep(0.01)

    def _write(self) -> None:
        while True:
            line = self._lines.get()
            # Not sys.stderr: a thread that waits inside it stops the interpreter from ending.
            with contextlib.suppress(OSError):  # the reader has gone
                while line:
                    line = line[os.write(_STDERR, line) :]
            self._lines.task_done()


def log_to_stderr(level: str) -> StandardError:
    """Send the lines of all loggers to standard error in this form; returns the log handler."""
    handler = StandardError()
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=level, handlers=[handler], force=True)
    return handler
