"""Servers on this machine: whether a port is free, and the wait until a new server answers."""

import socket
import subprocess
import time
from pathlib import Path

import httpx

from seal.launch.folders import RunError
from seal.launch.processes import tail


def free_port() -> int:
    """A port of 127.0.0.1 that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def check_port(host: str, port: int) -> None:
    """Check that a server could listen at this address.

    Raises:
        OSError: It could not: another program listens there, or the address is not this machine's.
    """
    with socket.socket() as probe:
        # Connections of an earlier server that are still closing do not matter.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((host, port))


def wait_until_healthy(
    name: str, server: subprocess.Popen[bytes], url: str, log: Path, patience_s: float
) -> None:
    """Wait until a server that was just started answers 200 at an address.

    Raises:
        RunError: The process ended, or did not answer within `patience_s`; the error has the name
            of the server and the last lines of its log.
    """
    deadline = time.monotonic() + patience_s
    while not _is_healthy(url):
        ended = server.poll() is not None
        if ended or time.monotonic() > deadline:
            failure = (
                f"did not start (exit code {server.returncode})"
                if ended
                else f"is not healthy after {patience_s:.0f} s: no 200 from {url}"
            )
            raise RunError(f"{name} {failure}:\n{tail(log)}\n(log: {log})")
        time.sleep(0.2)


def _is_healthy(url: str) -> bool:
    try:
        return httpx.get(url, timeout=5.0, trust_env=False).status_code == httpx.codes.OK
    except httpx.HTTPError:
        return False
