"""The log viewer beside a run: a process of its own, and never a reason to end the run."""

import socket
import sys
import time
from pathlib import Path

import httpx

from seal.launch import folders
from seal.launch.processes import Family, tail

HOST, PORT = "127.0.0.1", 8090
START_S = 20.0


def start_logview(family: Family, log: Path, port: int = PORT) -> str:
    """Start the viewer of `experiments/`; it ends with the run.

    Returns:
        A sentence for the user: where it is, or why there is none.
    """
    url = f"http://{HOST}:{port}"
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            return (
                f"no log viewer: cannot use {url} ({error.strerror}); another viewer that runs "
                "there may show this run, too"
            )
    (folders.ROOT / "experiments").mkdir(exist_ok=True)
    command = [sys.executable, "-m", "seal.logview", "--experiments", "experiments"]
    viewer = family.start([*command, "--host", HOST, "--port", str(port)], log, {}, folders.ROOT)
    deadline = time.monotonic() + START_S
    while viewer.poll() is None:
        if _answers(url):
            return f"log viewer: {url}"
        if time.monotonic() > deadline:
            return f"no log viewer: no answer at {url} after {START_S:.0f} s (log: {log})"
        time.sleep(0.2)
    return f"no log viewer: it ended at once: {tail(log, 3)} (log: {log})"


def _answers(url: str) -> bool:
    try:
        httpx.get(url, timeout=5.0, trust_env=False)
    except httpx.HTTPError:
        return False
    return True
