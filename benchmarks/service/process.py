"""A running environment service seen from outside: start, stop, its processes' memory and time.

In: options of its command line. Out: its address, and figures that the kernel keeps of it and of
every process below it. Linux only: it reads /proc.
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Self

import httpx

ROOT = Path(__file__).resolve().parents[2]
SERVICE_PYTHON = ROOT / ".venv-bfcl/bin/python"

READY_LIMIT_S = 60.0
STOP_LIMIT_S = 20.0
_LOG_LINES_SHOWN = 12


class ServiceFailed(Exception):
    """The service did not start, or ended when nobody asked it to."""


class ServiceProcess:
    """A service of our own, in a session of its own, so that its processes can be told apart.

    Args:
        options: Options after `--host` and `--port`.
        folder: Its working folder and, in `tmp` below it, its TMPDIR; None for the project's.
        read_log_every_s: Its log is a pipe that is read so seldom; None: a file.
    """

    def __init__(
        self,
        options: Sequence[str] = (),
        folder: Path | None = None,
        read_log_every_s: float | None = None,
    ) -> None:
        port = _free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.ready_s = 0.0
        """Seconds from the start until /healthz answered 200."""
        self._log = tempfile.NamedTemporaryFile(prefix="service-", suffix=".log")
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        environment.pop("SEAL_ENV_TOKEN", None)  # ours is for everybody who reaches it
        if folder is not None:
            (folder / "tmp").mkdir()
            environment["TMPDIR"] = str(folder / "tmp")
        command = [str(SERVICE_PYTHON), "-m", "env_service", f"--port={port}", *options]
        self._started = time.monotonic()
        self._process = subprocess.Popen(
            command,
            cwd=folder or ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=self._log if read_log_every_s is None else subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self.pid = self._process.pid
        if read_log_every_s is not None:
            threading.Thread(target=self._read_log, args=(read_log_every_s,), daemon=True).start()

    def __enter__(self) -> Self:
        try:
            self._wait_until_ready()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def _wait_until_ready(self) -> None:
        with httpx.Client(trust_env=False, timeout=READY_LIMIT_S) as client:
            while time.monotonic() < self._started + READY_LIMIT_S:
                if self._process.poll() is not None:
                    raise ServiceFailed(
                        f"the service ended with status {self._process.returncode} before it was "
                        f"ready; the end of its log:\n{self.log_end()}"
                    )
                with contextlib.suppress(httpx.TransportError):
                    if client.get(f"{self.url}/healthz").status_code == 200:
                        self.ready_s = time.monotonic() - self._started
                        return
                time.sleep(0.01)
        raise ServiceFailed(
            f"the service was not ready after {READY_LIMIT_S:.0f} s; the end of its log:\n"
            f"{self.log_end()}"
        )

    def _read_log(self, every_s: float) -> None:
        """Copy the pipe into the file; in between nobody reads it."""
        assert self._process.stdout is not None
        pipe = self._process.stdout.fileno()
        while part := os.read(pipe, 1 << 20):
            with contextlib.suppress(ValueError):  # closed: the service has been stopped
                self._log.write(part)
                self._log.flush()
            if self._process.poll() is None and self.ready_s:
                time.sleep(every_s)

    def log(self) -> str:
        """What it has logged, as far as it was read."""
        return Path(self._log.name).read_text("utf-8", errors="replace")

    def log_end(self) -> str:
        """Last lines of its log."""
        return "\n".join(self.log().splitlines()[-_LOG_LINES_SHOWN:])

    def check_alive(self) -> None:
        """Raise if it has ended.

        Raises:
            ServiceFailed: It has ended.
        """
        if self._process.poll() is not None:
            raise ServiceFailed(
                f"the service has ended with status {self._process.returncode}; the end of its "
                f"log:\n{self.log_end()}"
            )

    def processes(self) -> list[int]:
        """The service's process and all below it."""
        return [self.pid, *descendants(self.pid)]

    def stop(self) -> tuple[float, list[str]]:
        """SIGTERM, then SIGKILL for what is left of it.

        Returns:
            Seconds until its first process ended, and the command lines that outlived it.
        """
        known = {pid: _start_time(pid) for pid in self.processes()}
        started = time.monotonic()
        if self._process.poll() is None:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_LIMIT_S)
        seconds = time.monotonic() - started
        ended = self._process.poll() is not None
        time.sleep(0.3 if ended and len(known) > 1 else 0.0)  # a child may be on its way out
        # By session, too: what was started meanwhile, or lost its parent, is no known descendant.
        still = {pid for pid, born in known.items() if born and _start_time(pid) == born}
        left = sorted(still | set(_of_session(self.pid)))
        names = [f"{pid} {command_line(pid)}" for pid in left]
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if not ended:
            self._process.wait()
        self._log.close()
        return seconds, names


def supported_options() -> frozenset[str]:
    """Options that the service's command line knows.

    Raises:
        ServiceFailed: There is no service to ask.
    """
    if not SERVICE_PYTHON.exists():
        raise ServiceFailed(f"{SERVICE_PYTHON} does not exist; make it with install.sh")
    command = [str(SERVICE_PYTHON), "-m", "env_service", "--help"]
    asked = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if asked.returncode != 0:
        raise ServiceFailed(f"the service's --help fails:\n{asked.stderr.strip()}")
    words = asked.stdout.replace("[", " ").replace("]", " ").replace(",", " ").split()
    return frozenset(word for word in words if word.startswith("--"))


def descendants(pid: int) -> list[int]:
    """Processes below one, parents first."""
    found = []
    for listing in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in map(int, listing.read_text().split()):
                found += [child, *descendants(child)]
    return found


def worker_processes(pid: int) -> list[int]:
    """Processes below the service that do its work: those without children of their own."""
    below = descendants(pid)
    return [
        child
        for child in below
        if not descendants(child) and "resource_tracker" not in command_line(child)
    ]


def command_line(pid: int) -> str:
    """Its arguments, or nothing if it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
    except OSError:
        return ""


def pss_bytes(pids: Sequence[int]) -> int:
    """Memory of processes; a page that n of them share counts once, as n parts."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1]) * 1024
    return total


def cpu_seconds(pids: Sequence[int]) -> float:
    """Processor time that processes, and children they have waited for, have used so far."""
    ticks = 0
    for pid in pids:
        # User, system, and the same of children.
        ticks += sum(int(_stat(pid, field)) for field in (11, 12, 13, 14))
    return ticks / os.sysconf("SC_CLK_TCK")


def interrupt_on_sigterm() -> None:
    """Let SIGTERM end a script as Ctrl-C does, through every `finally`."""

    def interrupt(signum: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)


class Progress:
    """One line on standard error that is written over again; nothing where it is no terminal."""

    def __init__(self) -> None:
        self._shown = sys.stderr.isatty()

    def show(self, text: str) -> None:
        """Replace the line."""
        if self._shown:
            sys.stderr.write(f"\r\x1b[K{text}")
            sys.stderr.flush()

    def clear(self) -> None:
        """Take the line away."""
        self.show("")


def text_table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Columns as wide as their widest cell, the first to the left, the others to the right.

    >>> print(text_table(["row", "n"], [["a", 10], ["bcde", 9]]))
    row    n
    ----  --
    a     10
    bcde   9
    """
    cells = [[str(cell) for cell in row] for row in (head, *rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    cells.insert(1, ["-" * width for width in widths])
    return "\n".join(
        "  ".join(
            cell.rjust(width) if place else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in cells
    )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _of_session(session: int) -> list[int]:
    pids = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
    return [pid for pid in pids if _start_time(pid) and int(_stat(pid, 3)) == session]


def _start_time(pid: int) -> int:
    """When it started, in the kernel's ticks: tells a process from another of its number.

    0 if it is gone.
    """
    return int(_stat(pid, 19)) if _stat(pid, 0) not in ("Z", "0") else 0


def _stat(pid: int, field: int) -> str:
    """A field of /proc/PID/stat, counted from the third, the state; "0" if the process is gone."""
    try:
        # Field 2, the name, may hold blanks and brackets.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[field]
    except OSError:
        return "0"
