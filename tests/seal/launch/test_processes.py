import subprocess
import sys
import time
from pathlib import Path

import psutil

from seal.launch.processes import Family, tail

DETACHED = """
import subprocess, sys
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
"""


def test_end_reaches_a_process_that_detached_itself(tmp_path: Path) -> None:
    family = Family()
    parent = family.start([sys.executable, "-c", DETACHED], tmp_path / "log", {}, tmp_path)
    parent.wait()
    deadline = time.monotonic() + 10
    while not family.members() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert len(family.members()) == 1
    family.end()
    assert family.members() == []


def ended(pid: int) -> bool:
    """Gone, or waiting for an init process that does not collect its children."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


LOST_MARK = """
import os, subprocess, sys, time
child = {k: v for k, v in os.environ.items() if k != "SEAL_LAUNCH_ID"}
sleeper = [sys.executable, "-c", "import time; time.sleep(600)"]
print(subprocess.Popen(sleeper, env=child, start_new_session=True).pid, flush=True)
time.sleep(600)
"""


def test_end_reaches_a_child_that_lost_the_mark(tmp_path: Path) -> None:
    family = Family()
    family.start([sys.executable, "-c", LOST_MARK], tmp_path / "log", {}, tmp_path)
    while not tail(tmp_path / "log").strip().isdigit():
        time.sleep(0.05)
    child = int(tail(tmp_path / "log"))
    assert child in [process.pid for process in family.members()]
    family.end()
    assert ended(child)


def test_end_kills_what_does_not_listen(tmp_path: Path) -> None:
    stubborn = "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True)"
    family = Family()
    process = family.start(
        [sys.executable, "-c", stubborn + "; time.sleep(600)"], tmp_path / "log", {}, tmp_path
    )
    while "up" not in tail(tmp_path / "log"):
        time.sleep(0.05)
    family.end(patience_s=0.2)
    process.wait(timeout=5)
    assert not psutil.pid_exists(process.pid)


def test_strangers_are_left_alone(tmp_path: Path) -> None:
    stranger = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        Family().end()
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_tail_of_a_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert tail(log) == "(no log)"
    log.write_text("a\nb\nc\n")
    assert tail(log, 2) == "b\nc"
