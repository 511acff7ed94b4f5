"""The log viewer's command line: what it refuses, and that it serves and ends."""

import contextlib
import http.client
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from logview_material import write_run

from seal.logview.__main__ import main
from seal.records.log_archive import ARCHIVE, pack

ROOT = Path(__file__).resolve().parents[2]


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(arguments) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    return printed.err


def test_a_missing_folder_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = refused(capsys, "--experiments", str(tmp_path / "none"), "--port", "0")
    assert "there is no folder" in said
    assert "--experiments" in said


def test_a_port_in_use_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        said = refused(capsys, "--experiments", str(tmp_path), "--port", str(port))
    assert f"127.0.0.1:{port}" in said
    assert "--port" in said
    assert "99999" in refused(capsys, "--experiments", str(tmp_path), "--port", "99999")


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.0.1", "example.org", ""])
def test_an_address_that_others_can_reach_is_refused(
    host: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = refused(capsys, "--experiments", str(tmp_path), "--host", host, "--port", "0")
    assert "no access control" in said
    assert "ssh -L" in said


def test_help_says_that_there_is_no_access_control(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "no access control" in said
    assert "ssh -L 8090:127.0.0.1:8090" in said


def test_a_bad_archive_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / ARCHIVE).write_text("half of it is missing")
    said = refused(capsys, "--experiments", str(tmp_path), "--port", "0")
    assert f"{tmp_path / ARCHIVE} is damaged or no zip file" in said
    (tmp_path / "other").mkdir()
    pack(tmp_path / "other", tmp_path / ARCHIVE)
    said = refused(capsys, "--experiments", str(tmp_path), "--port", "0")
    assert f"there is no folder of runs at {tmp_path};" in said


@pytest.fixture(params=["folder", "archive"])
def viewer(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[tuple["subprocess.Popen[str]", int]]:
    """A viewer of a folder or of an archive, and its port. It leaves no temporary file."""
    (tmp_path / "own").mkdir()
    shown, temporary = tmp_path / "own/experiments", tmp_path / "temporary"
    for folder in (shown, temporary):
        folder.mkdir()
    write_run(shown)
    if request.param == "archive":
        pack(shown.parent, tmp_path / ARCHIVE)
        shown = tmp_path
    process = subprocess.Popen(
        [sys.executable, "-m", "seal.logview", "--experiments", str(shown), "--port", "0"],
        cwd=ROOT,
        env={**os.environ, "PYTHONUNBUFFERED": "", "TMPDIR": str(temporary)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        first = process.stdout.readline()
        port = re.search(r"http://127\.0\.0\.1:(\d+)/", first)
        assert port is not None, first
        assert len(list(temporary.iterdir())) == (request.param == "archive")
        yield process, int(port[1])
        assert list(temporary.iterdir()) == []
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_until_it_is_told_to_end(
    viewer: tuple["subprocess.Popen[str]", int], number: signal.Signals
) -> None:
    process, port = viewer
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    for path, status in {
        "/healthz": 200,
        "/runs/trial": 200,
        # As written, not as a client would tidy it up.
        "/runs/../../../../etc/passwd": 404,
        "/runs/trial/steps/../../../pyproject.toml": 404,
        "/static/../app.py": 404,
    }.items():
        connection.request("GET", path)
        answer = connection.getresponse()
        assert (answer.status, b"root:" in answer.read()) == (status, False), path
    # The connection stays open, as a browser's does.
    with contextlib.closing(connection):
        process.send_signal(number)
        assert process.wait(10) == 0
    assert process.stderr is not None
    assert process.stderr.read() == ""
