"""The log viewer beside a run: a separate process, whose failure never ends the run."""

import sys
from pathlib import Path

from seal.launch import folders
from seal.launch.folders import RunError
from seal.launch.listening import check_port, wait_until_healthy
from seal.launch.processes import Family

HOST, PORT = "127.0.0.1", 8090
START_S = 20.0


def start_logview(family: Family, log: Path, port: int = PORT) -> str:
    """Start the viewer of `experiments/`; it ends with the run.

    Returns:
        A sentence for the user: the viewer's address, or why there is no viewer.
    """
    url = f"http://{HOST}:{port}"
    try:
        check_port(HOST, port)
    except OSError as error:
        return (
            f"no log viewer: cannot use {url} ({error.strerror}); if another viewer runs there, "
            "it may show this run too"
        )
    (folders.ROOT / "experiments").mkdir(exist_ok=True)
    command = [sys.executable, "-m", "seal.logview", "--experiments", "experiments"]
    viewer = family.start([*command, "--host", HOST, "--port", str(port)], log, {}, folders.ROOT)
    try:
        wait_until_healthy("it", viewer, f"{url}/healthz", log, START_S)
    except RunError as error:
        return f"no log viewer: {error}"
    return f"log viewer: {url}"
