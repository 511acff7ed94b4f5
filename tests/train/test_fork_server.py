"""A worker's program runs as a fork of the server, as it would run by itself."""

import json
import os
import shlex
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from seal import ROOT
from seal.launch.processes import Family
from seal.train.cpu.fork_server import worker_command

SERVER = """
import sys
from seal.train.cpu import fork_server

fork_server.MODULES = ("decimal",)
fork_server.serve(sys.argv[1])
"""
# Ray's arguments of an interpreter come before its program's.
WORKER = """
import json, os, sys
import numpy as np

imported = "decimal" in sys.modules
print("said")
print("complained", file=sys.stderr)
with open(sys.argv[2], "w") as file:
    json.dump({
        "argv": sys.argv,
        "folder": os.getcwd(),
        "environment": dict(os.environ),
        "parent": os.getppid(),
        "leads its group": os.getpgrp() == os.getpid(),
        "random": np.random.random(),
        "imported": imported,
        "name": __name__,
    }, file)
raise SystemExit(3)
"""


@pytest.fixture
def family() -> Iterator[Family]:
    made = Family()
    yield made
    assert made.end() == []


@pytest.fixture
def server(family: Family, tmp_path: Path) -> tuple[str, psutil.Process]:
    """Address and process of a server that has imported one module."""
    address = uuid.uuid4().hex
    (tmp_path / "server.py").write_text(SERVER)
    command = [sys.executable, str(tmp_path / "server.py"), address]
    environment = {"PYTHONPATH": str(ROOT), "ONLY": "the server's"}
    started = family.start(command, tmp_path / "server.log", environment, ROOT)
    while address not in Path("/proc/net/unix").read_text():
        assert started.poll() is None, (tmp_path / "server.log").read_text()
    return address, psutil.Process(started.pid)


def work(address: str, folder: Path, name: str) -> tuple[dict[str, Any], str]:
    """Run the worker as Ray does; what it found, and what it wrote to its output."""
    (folder / "worker.py").write_text(WORKER)
    arguments = [str(folder / "worker.py"), "a b", str(folder / name)]
    command = f"exec {worker_command(address)} -u {shlex.join(arguments)}"
    environment = {"PATH": os.environ["PATH"], "ONLY": name}
    with (folder / f"{name}.log").open("wb") as log:
        bash = ["bash", "-c", command]
        subprocess.run(bash, env=environment, cwd=folder, stdout=log, stderr=log, check=False)
    return _found(folder / name), (folder / f"{name}.log").read_text()


def _found(path: Path) -> dict[str, Any]:
    while True:
        try:
            found: dict[str, Any] = json.loads(path.read_text())
            return found
        except (FileNotFoundError, ValueError):
            continue


def test_a_fork_is_as_the_program_by_itself(
    server: tuple[str, psutil.Process], tmp_path: Path
) -> None:
    address, process = server
    forked, said = work(address, tmp_path, "forked")
    alone, same = work("no server", tmp_path, "alone")
    assert forked.pop("parent") == process.pid != alone.pop("parent")
    assert forked.pop("imported") and not alone.pop("imported")
    # Ray makes a group for each worker, and ends all of it with the worker.
    assert forked.pop("leads its group") and not alone.pop("leads its group")
    assert forked["argv"][1:] == ["a b", str(tmp_path / "forked")]
    assert forked["environment"]["ONLY"] == "forked"
    for found in (forked, alone):
        del found["argv"][2], found["environment"]["ONLY"], found["random"]
    assert forked == alone
    assert said == same == "said\ncomplained\n"


def test_a_client_that_goes_away_harms_nobody(
    server: tuple[str, psutil.Process], tmp_path: Path
) -> None:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(f"\0{server[0]}")
        client.send(b"{")
    assert work(server[0], tmp_path, "next")[0]["parent"] == server[1].pid


def test_forks_draw_different_numbers(server: tuple[str, psutil.Process], tmp_path: Path) -> None:
    numbers = [work(server[0], tmp_path, name)[0]["random"] for name in ("first", "second")]
    assert numbers[0] != numbers[1]


def test_workers_that_have_ended_leave_nothing(
    server: tuple[str, psutil.Process], tmp_path: Path
) -> None:
    address, process = server
    before = process.num_fds()
    for number in range(3):
        work(address, tmp_path, str(number))
    psutil.wait_procs(process.children(), timeout=10)
    assert process.children() == []
    assert process.num_fds() == before
