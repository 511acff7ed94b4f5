import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from seal.launch.processes import Family, last_lines, tail

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


STUBBORN = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if sys.argv[1:] == ["parent"]:
    # Twice detached, as a daemon does it: its parent has gone and its session is another one.
    code = "import subprocess, sys; subprocess.Popen(sys.argv[1:], start_new_session=True)"
    me = [sys.executable, __file__, "daemon"]
    subprocess.run([sys.executable, "-c", code, *me], start_new_session=True)
    subprocess.Popen([sys.executable, __file__, "child"])
print(os.getpid(), flush=True)
time.sleep(600)
"""


def test_what_does_not_listen_is_killed_wherever_it_has_gone_in_time(tmp_path: Path) -> None:
    (tmp_path / "stubborn.py").write_text(STUBBORN)
    family = Family()
    family.start([sys.executable, "stubborn.py", "parent"], tmp_path / "log", {}, tmp_path)
    while len(tail(tmp_path / "log").splitlines()) < 3:
        time.sleep(0.05)
    pids = [int(line) for line in tail(tmp_path / "log").splitlines()]
    assert sorted(process.pid for process in family.members()) == sorted(pids)
    started = time.monotonic()
    assert family.end() == []
    # The launcher promises ten seconds for all of its end.
    assert 4.0 <= time.monotonic() - started < 9.0
    assert all(ended(pid) for pid in pids)


def test_what_listens_is_given_the_time_it_needs(tmp_path: Path) -> None:
    code = (
        "import signal, sys, time\n"
        "def leave(*_): time.sleep(1); print('saved', flush=True); sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, leave); print('up', flush=True); time.sleep(600)\n"
    )
    family = Family()
    child = family.start([sys.executable, "-c", code], tmp_path / "log", {}, tmp_path)
    while "up" not in tail(tmp_path / "log"):
        time.sleep(0.05)
    assert family.end() == []
    assert child.returncode == 0
    assert "saved" in tail(tmp_path / "log")


def test_what_cannot_be_ended_is_named_and_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    family = Family()
    child = family.start(
        [sys.executable, "-c", "import time; time.sleep(600)"], tmp_path / "log", {}, tmp_path
    )
    # As a process that waits for a dead file system: no signal does anything.
    with monkeypatch.context() as patched:
        patched.setattr(psutil.Process, "terminate", lambda process: None)
        patched.setattr(psutil.Process, "kill", lambda process: None)
        assert family.end(patience_s=0.2, limit_s=0.5) == [child.pid]
    assert family.end() == []


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
    log.write_text("x" * 500 + "\nb\nc\n")
    assert last_lines(log, most_bytes=10) == ["b", "c"]
