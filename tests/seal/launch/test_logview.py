import socket
import sys
from pathlib import Path

import httpx
from omegaconf import DictConfig
from project_folder import ROOT

from seal.launch import folders
from seal.launch.listening import free_port
from seal.launch.processes import Family
from seal.launch.run import start_logview


def test_the_viewer_runs_beside_the_run_and_ends_with_it(tmp_path: Path, family: Family) -> None:
    assert folders.ROOT == ROOT
    log, port = tmp_path / "logview.log", free_port()
    assert start_logview(family, log, port) == f"log viewer: http://127.0.0.1:{port}", (
        log.read_text()
    )
    assert httpx.get(f"http://127.0.0.1:{port}", follow_redirects=True, trust_env=False).is_success
    assert family.end() == []
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) != 0


def test_a_taken_port_is_said_and_no_error(tmp_path: Path, family: Family) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        said = start_logview(family, tmp_path / "log", port)
    assert said.startswith(f"no log viewer: cannot use http://127.0.0.1:{port}")
    assert family.members() == []


def test_a_viewer_that_fails_is_said_with_its_log(
    recipe: DictConfig, tmp_path: Path, family: Family
) -> None:
    """`recipe`: in a project folder whose seal/logview is broken."""
    (tmp_path / "seal").mkdir()
    (tmp_path / "seal/__init__.py").touch()
    (tmp_path / "seal/logview.py").write_text("raise SystemExit('no templates')")
    said = start_logview(family, tmp_path / "log", free_port())
    assert said.startswith("no log viewer: it did not start (exit code 1):\nno templates"), sys.path
