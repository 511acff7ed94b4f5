"""The command line, in processes of its own: signals, exit codes, going on, what is left behind.

Everything is real but the training process and, where a test is not about it, the environment
service: a script that answers /healthz, named by `.env` as a user names one.
"""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from project_folder import REAL_TASKS, copy_project, make_checkpoint, note_latest

from seal.launch.listening import free_port
from seal.launch.processes import Family
from seal.wire import PROTOCOL_VERSION

pytestmark = pytest.mark.slow

STUBBORN = """
import signal, subprocess, sys, time
from pathlib import Path
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if sys.argv[1] != "daemon":
    # As Ray does: a session of its own, and the process that made it has gone.
    code = "import subprocess, sys; subprocess.Popen(sys.argv[1:], start_new_session=True)"
    subprocess.run([sys.executable, "-c", code, sys.executable, __file__, "daemon"])
Path("up_" + Path(sys.argv[1]).stem).touch()
time.sleep(600)
"""
ENDS = "import shutil, sys; shutil.copy(sys.argv[1], 'trained_with.yaml')"
SERVICE = f"""
import http.server, json, os
answer = json.dumps({{"success": True, "data": {{
    "protocol_version": {PROTOCOL_VERSION}, "environments": ["bfcl"]}}}}).encode()
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(answer)
http.server.HTTPServer(("127.0.0.1", int(os.environ["BFCL_PORT"])), Handler).serve_forever()
"""


class Project:
    """A project folder, and launchers in it."""

    def __init__(self, folder: Path, trainer: str = ENDS) -> None:
        self.folder = copy_project(folder, trainer)
        (folder / "service.py").write_text(SERVICE)
        (folder / ".env").write_text(f'BFCL_SCRIPT="exec {sys.executable} service.py"\n')
        self.port = free_port()

    def arguments(self, *options: str, overrides: tuple[str, ...] = ()) -> list[str]:
        url = f"env_service.env_url=http://127.0.0.1:{self.port}"
        return ["--conf", "exp/quickstart.yaml", *options, "--", url, *REAL_TASKS, *overrides]

    def start(self, arguments: list[str]) -> "subprocess.Popen[str]":
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("BFCL_", "RAY_"))}
        return subprocess.Popen(
            [sys.executable, "launcher.py", *arguments],
            cwd=self.folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            # Signals sent to it do not come from this test's terminal.
            start_new_session=True,
        )

    def run(self, arguments: list[str]) -> tuple[int, str]:
        launcher = self.start(arguments)
        output, _ = launcher.communicate(timeout=300)
        return launcher.returncode, output

    def wait_for(self, name: str, launcher: "subprocess.Popen[str]") -> None:
        deadline = time.monotonic() + 120
        while not (self.folder / name).exists():
            assert launcher.poll() is None and time.monotonic() < deadline, name
            time.sleep(0.05)

    def family(self) -> Family:
        lock = self.folder / "launcher_record/quickstart.lock"
        return Family(json.loads(lock.read_text())["launch_id"])

    def last_phase(self) -> str:
        path = self.folder / "experiments/quickstart/loop/phases.jsonl"
        return str(json.loads(path.read_text().splitlines()[-1])["phase"])

    def record(self, folder: str = "") -> dict[str, Any]:
        path = self.folder / "launcher_record/quickstart" / folder / "record.json"
        record: dict[str, Any] = json.loads(path.read_text())
        return record


def end(launcher: "subprocess.Popen[str]", number: int, again_s: float | None = None) -> str:
    """Send a signal, perhaps a second one, and check that it ended in ten seconds with code 130."""
    started = time.monotonic()
    launcher.send_signal(number)
    if again_s is not None:
        time.sleep(again_s)
        launcher.send_signal(number)
    output, _ = launcher.communicate(timeout=60)
    assert time.monotonic() - started < 10.0
    assert launcher.returncode == 130, output
    assert "Traceback" not in output
    return output


def test_a_run_is_interrupted_and_goes_on(tmp_path: Path) -> None:
    """Ctrl-C twice while what trains listens to nothing; a second launch; then --resume."""
    project = Project(tmp_path, STUBBORN)
    arguments = project.arguments("--with-bfcl")
    launcher = project.start(arguments)
    project.wait_for("up_config", launcher)
    project.wait_for("up_daemon", launcher)
    assert len(project.family().members()) == 3  # trainer, daemon, service

    code, output = project.run(arguments)
    assert code == 1
    assert f"already being launched on this machine, by process {launcher.pid};" in output

    # Killed when checkpoint 8 was whole and the next one was not.
    note_latest(make_checkpoint(tmp_path, 8))
    (make_checkpoint(tmp_path, 12) / "data.pt").unlink()
    output = end(launcher, signal.SIGINT, again_s=0.3)
    assert project.family().members() == []
    assert "steps up to 8 are saved; to go on:" in output
    assert project.last_phase() == "interrupted"

    first = project.folder / "launcher_record/quickstart"
    recorded = (first / "config.yaml").read_bytes()
    (tmp_path / "seal/train/main.py").write_text(ENDS)
    validation = project.folder / "experiments/tech_synthetic/quickstart/validation_log/8.jsonl"
    validation.parent.mkdir(parents=True)
    validation.write_text("{}\n")
    command = shlex.split(output.splitlines()[-1])
    assert command[:2] == [".venv/bin/python", "launcher.py"]
    code, output = project.run(command[2:])
    assert code == 0, output
    assert "going on from step 8" in output
    assert project.last_phase() == "done"
    trained_with = (tmp_path / "trained_with.yaml").read_text()
    assert "resume_mode: auto" in trained_with
    assert "val_before_train: false" in trained_with
    assert (first / "config.yaml").read_bytes() == recorded
    assert project.record()["resumed_from_step"] is None
    assert project.record("resumed_1")["resumed_from_step"] == 8
    assert "--resume" in project.record("resumed_1")["command_line"]
    assert project.family().members() == []

    code, output = project.run([*command[2:], "seed=9"])
    assert code == 1 and "seed is 9 (recorded: 1)" in output


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_it_ends_while_the_policy_is_built(tmp_path: Path, number: int) -> None:
    project = Project(tmp_path)
    shutil.rmtree(tmp_path / "data/tiny_policy")
    (tmp_path / "make.py").write_text(STUBBORN)
    make_checkpoint(tmp_path, 8)
    overrides = ("launcher.build_policy='make.py config'",)
    launcher = project.start(project.arguments("--with-bfcl", overrides=overrides))
    project.wait_for("up_config", launcher)
    project.wait_for("up_daemon", launcher)
    output = end(launcher, number)
    assert project.family().members() == []
    # The run had not begun: an earlier one of the name is as it was, and is not offered.
    assert (tmp_path / "experiments/quickstart/checkpoints/global_step_8").exists()
    assert "--resume" not in output


def test_it_ends_while_the_service_starts(tmp_path: Path) -> None:
    project = Project(tmp_path)
    (tmp_path / "service.py").write_text(STUBBORN)
    (tmp_path / ".env").write_text(f'BFCL_SCRIPT="{sys.executable} service.py config"\n')
    launcher = project.start(project.arguments("--with-bfcl"))
    project.wait_for("up_config", launcher)
    project.wait_for("up_daemon", launcher)
    output = end(launcher, signal.SIGINT)
    assert project.family().members() == []
    assert "no checkpoint has been saved yet" in output


def test_what_a_killed_launcher_left_behind_is_ended_by_the_next(tmp_path: Path) -> None:
    project = Project(tmp_path, STUBBORN)
    launcher = project.start(project.arguments("--with-bfcl"))
    project.wait_for("up_config", launcher)
    project.wait_for("up_daemon", launcher)
    launcher.kill()
    launcher.communicate(timeout=60)
    left = project.family()
    assert len(left.members()) == 3
    (tmp_path / "seal/train/main.py").write_text(ENDS)
    code, output = project.run(project.arguments("--with-bfcl"))
    assert code == 0, output
    assert "ending 3 processes that an earlier launch of this name left behind" in output
    assert left.members() == []
    # It was not resumed: what there was is kept.
    assert "now in experiments/quickstart.1" in output
    assert (tmp_path / "launcher_record/quickstart.1/train.log").exists()


def test_exit_codes_tell_what_happened(tmp_path: Path) -> None:
    project = Project(tmp_path, "raise ValueError('no such layer')")
    code, output = project.run(project.arguments("--with-bfcl"))
    assert code == 1
    assert "launcher: training failed: ValueError: no such layer" in output
    assert "the same command starts from the beginning" in output
    assert project.last_phase() == "failed"
    for arguments, said in (
        (["--conf", "exp/quickstart.yaml", "--wrong"], "unrecognized arguments"),
        (["--conf", "exp/none.yaml"], "no recipe exp/none.yaml"),
        (project.arguments(overrides=("trainer.total_epoch=1",)), "trainer.total_epochs"),
        (project.arguments(overrides=("trainer.resume_mode=auto",)), "only --resume decides"),
    ):
        code, output = project.run(arguments)
        assert (code, said in output, "Traceback" in output) == (2, True, False), output
    code, output = project.run(project.arguments("--resume"))
    assert code == 1 and "nothing to resume" in output
    code, output = project.run(project.arguments("--dry-run", "--resume"))
    assert code == 0 and "resume_mode: auto" in output


def test_the_environment_wins_over_the_file(tmp_path: Path) -> None:
    project = Project(tmp_path)
    (tmp_path / ".env").write_text('BFCL_SCRIPT="echo from the file; exit 3"\n')
    code, output = project.run(project.arguments("--with-bfcl"))
    assert code == 1 and "did not start (exit code 3)" in output and "from the file" in output
    done = subprocess.run(
        [sys.executable, "launcher.py", *project.arguments("--with-bfcl")],
        cwd=tmp_path,
        env={**os.environ, "BFCL_SCRIPT": "echo from the environment; exit 4"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "did not start (exit code 4)" in done.stderr
    assert "from the environment" in done.stderr
