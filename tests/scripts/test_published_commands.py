"""What users of the published repository type works unchanged; a page of docs/ has the list."""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pyarrow.parquet as pq
import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/coming-from-the-published-repository.md"
SETUP = "bash env_service/environments/bfcl/setup.sh"
PROCESSED = "env_service/environments/bfcl/bfcl_data/multi_turn_processed.jsonl"
SERVICE = "bash env_service/launch_script/bfcl.sh"
PORT = 8082


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project, in which install.sh gives the environment that it has made."""
    folder = tmp_path_factory.mktemp("project")
    for part in ("data", "env_service", "scripts", "seal"):
        kept_out = shutil.ignore_patterns("__pycache__", "bfcl_data")
        shutil.copytree(ROOT / part, folder / part, ignore=kept_out)
    (folder / "install.sh").write_text(f'ln -sfn "{ROOT}/.venv-bfcl" "{folder}/.venv-bfcl"\n')
    ran = bash(folder, SETUP)
    assert ran.returncode == 0, ran.stderr
    return folder


def environment(project: Path) -> dict[str, str]:
    others = {key: value for key, value in os.environ.items() if not key.startswith("BFCL_")}
    return {**others, "PYTHONPATH": str(project)}


def bash(project: Path, command: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        ["bash", "-c", command],
        cwd=project,
        env=environment(project),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize(
    "command",
    [SETUP, f"test -f {PROCESSED}", SERVICE, f"curl -fsS http://127.0.0.1:{PORT}/healthz"],
)
def test_the_documentation_names_it(command: str) -> None:
    assert f"`{command}`" in PAGE.read_text("utf-8")


def test_setup_writes_all_tasks_where_git_ignores_them(project: Path) -> None:
    assert bash(project, f"test -f {PROCESSED}").returncode == 0
    assert len((project / PROCESSED).read_text("utf-8").splitlines()) == 800
    assert bash(ROOT, f"git check-ignore --quiet {PROCESSED}").returncode == 0


def test_a_summary_takes_the_processed_file(project: Path) -> None:
    table = "data/bfcl_eval_400.parquet"
    rows = pq.read_table(ROOT / table, columns=["extra_info"]).column("extra_info").to_pylist()
    (project / "val").mkdir()
    lines = [json.dumps({**row, "score": 1.0, "step": 0}) for row in rows]
    (project / "val/0.jsonl").write_text("\n".join(lines) + "\n")
    ran = bash(
        project,
        f"{sys.executable} scripts/stats_validation_bfcl.py --val-dir val --parquet {table} "
        f"--bfcl-jsonl {PROCESSED}",
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "multi_turn_long_context" in ran.stdout


def test_the_service_listens_on_the_published_port(project: Path) -> None:
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Where this fails, another program has the port already.
        with contextlib.suppress(OSError):
            taken.bind(("127.0.0.1", PORT))
            taken.listen()
        ran = bash(project, SERVICE)
    assert ran.returncode == 1
    assert f"cannot listen on 127.0.0.1:{PORT}" in ran.stderr


def test_the_service_answers_healthz(project: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    started = subprocess.Popen(
        SERVICE.split(), cwd=project, env={**environment(project), "BFCL_PORT": port}
    )
    try:
        answer = None
        while answer is None or answer.status_code != 200:
            assert started.poll() is None
            time.sleep(0.1)
            with contextlib.suppress(httpx.TransportError):
                answer = httpx.get(f"http://127.0.0.1:{port}/healthz", trust_env=False)
        assert answer.json()["data"]["environments"] == ["bfcl"]
    finally:
        started.terminate()
        assert started.wait(timeout=30) == 0
