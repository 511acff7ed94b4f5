"""A running environment service seen from outside: its start and end, memory and processor time.

In: options of its command line. Out: its address, and figures of its processes.
"""

import contextlib
import os
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Self

import httpx
import psutil

from benchmarks import SERVICE_PYTHON
from benchmarks.output import BenchmarkFailed
from seal import ROOT

READY_LIMIT_S = 60.0
STOP_LIMIT_S = 20.0
_LOG_LINES_SHOWN = 12


class ServiceFailed(BenchmarkFailed):
    """The service did not start, or it ended by itself; the message shows the end of its log."""


class ServiceProcess:
    """An environment service in a session of its own, so that its processes can be found.

    Args:
        options: Options after `--port`.
        folder: Its working folder, whose `tmp` becomes its TMPDIR; None: the project's folder.
        read_log_every_s: Its log is a pipe that is read once in so many seconds; None: a file.
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
        environment.pop("SEAL_ENV_TOKEN", None)  # the clients of the measurements send no token
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
        self._first = psutil.Process(self._process.pid)
        if read_log_every_s is not None:
            threading.Thread(target=self._read_log, args=(read_log_every_s,), daemon=True).start()

    def __enter__(self) -> Self:
        try:
            self._wait_until_ready()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()

    def _wait_until_ready(self) -> None:
        with httpx.Client(trust_env=False, timeout=READY_LIMIT_S) as client:
            while time.monotonic() < self._started + READY_LIMIT_S:
                self.check_alive()
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
        """Copy the pipe into the file, with a pause after each part once the service is ready."""
        assert self._process.stdout is not None
        with self._process.stdout as pipe:
            while part := os.read(pipe.fileno(), 1 << 20):
                with contextlib.suppress(ValueError):  # closed: the service has been stopped
                    self._log.write(part)
                    self._log.flush()
                if self._process.poll() is None and self.ready_s:
                    time.sleep(every_s)

    def log(self) -> str:
        """What the service has logged, as far as it was read."""
        return Path(self._log.name).read_text("utf-8", errors="replace")

    def log_end(self) -> str:
        """The last lines of its log."""
        return "\n".join(self.log().splitlines()[-_LOG_LINES_SHOWN:])

    def check_alive(self) -> None:
        """Do nothing if the service still runs.

        Raises:
            ServiceFailed: It has ended.
        """
        if self._process.poll() is not None:
            raise ServiceFailed(
                f"the service has ended with status {self._process.returncode}; the end of its "
                f"log:\n{self.log_end()}"
            )

    def processes(self) -> list[psutil.Process]:
        """The service's first process and all its descendants; none after its end."""
        try:
            return [self._first, *self._first.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def workers(self) -> list[psutil.Process]:
        """The processes that execute tool calls: those without children of their own."""
        workers = []
        for process in self.processes()[1:]:
            with contextlib.suppress(psutil.Error):
                if not process.children() and "resource_tracker" not in _command_line(process):
                    workers.append(process)
        return workers

    def stop(self) -> tuple[float, list[str]]:
        """Send SIGTERM, then SIGKILL to what is left.

        Returns:
            Seconds until the first process ended, and the command lines of the processes that
            outlived it.
        """
        known = self.processes()
        started = time.monotonic()
        if self._process.poll() is None:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_LIMIT_S)
        seconds = time.monotonic() - started
        ended = self._process.poll() is not None
        if ended:
            psutil.wait_procs(known[1:], timeout=0.3)  # a child may be about to end
        # A process that was started meanwhile, or lost its parent, is in the session only.
        candidates = {*known, *_in_session(self._process.pid)}
        left = sorted(filter(_lives, candidates), key=lambda process: process.pid)
        names = [f"{process.pid} {_command_line(process)}" for process in left]
        for process in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        if not ended:
            self._process.wait()
        self._log.close()
        return seconds, names


def pss_bytes(processes: Iterable[psutil.Process]) -> int:
    """Memory of processes; a page that n processes share counts as 1/n in each of them."""
    return int(_total(processes, lambda process: process.memory_full_info().pss))


def cpu_seconds(processes: Iterable[psutil.Process]) -> float:
    """Processor time of processes and of their children that have ended, so far."""
    # User, system, and the same of the children.
    return _total(processes, lambda process: sum(process.cpu_times()[:4]))


def _total(processes: Iterable[psutil.Process], figure: Callable[[psutil.Process], float]) -> float:
    """The sum of a figure over the processes that still exist."""
    total = 0.0
    for process in processes:
        with contextlib.suppress(psutil.Error):
            total += figure(process)
    return total


def _in_session(leader: int) -> Iterator[psutil.Process]:
    for process in psutil.process_iter():
        with contextlib.suppress(OSError):  # it has ended
            if os.getsid(process.pid) == leader:
                yield process


def _lives(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _command_line(process: psutil.Process) -> str:
    """Its arguments, or nothing if it has ended."""
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def _free_port() -> int:
    # Not that of seal.launch.listening, which needs packages of the trainer's environment.
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
