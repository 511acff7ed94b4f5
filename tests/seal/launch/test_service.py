import functools
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest
from omegaconf import DictConfig
from project_folder import ROOT

from seal.client.client import EnvironmentClient, EnvironmentFault
from seal.launch import pools, service
from seal.launch.folders import RunError
from seal.launch.listening import free_port
from seal.launch.processes import Family
from seal.wire import PROTOCOL_VERSION


@pytest.fixture
def port(recipe: DictConfig) -> int:
    """A free port, and the recipe's address of the service."""
    number = free_port()
    recipe.env_service.env_url = f"http://127.0.0.1:{number}"
    return number


@pytest.mark.parametrize("url", ["127.0.0.1:8082", "http://x", "http://x:99999", "http://x:y"])
def test_an_address_that_is_none_is_refused(recipe: DictConfig, url: str) -> None:
    recipe.env_service.env_url = url
    with pytest.raises(RunError, match="expected an address like"):
        service.urls(recipe)


def test_every_address_of_a_list_is_checked(recipe: DictConfig) -> None:
    recipe.env_service.env_url = ["http://a:1", "b:2"]
    with pytest.raises(RunError, match="'b:2': expected an address like"):
        service.urls(recipe)
    recipe.env_service.env_url = []
    with pytest.raises(RunError, match="is empty; name an address"):
        service.urls(recipe)


def test_a_list_of_addresses_is_checked_for_health_with_the_token(
    recipe: DictConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "token").write_text("secret\n")
    recipe.env_service.env_url = ["http://a:1", "http://b:2"]
    recipe.env_service.token_file = "token"
    asked: list[tuple[str, str]] = []

    def healthy(request: httpx.Request) -> httpx.Response:
        asked.append((str(request.url), request.headers["Authorization"]))
        data = {"protocol_version": PROTOCOL_VERSION, "environments": ["bfcl"]}
        return httpx.Response(200, json={"success": True, "data": data})

    client = functools.partial(EnvironmentClient, transport=httpx.MockTransport(healthy))
    monkeypatch.setattr(service, "EnvironmentClient", client)
    service.check_service(recipe)
    for url in recipe.env_service.env_url:
        assert (f"{url}/healthz", "Bearer secret") in asked


def test_a_token_file_that_is_not_there_is_refused(recipe: DictConfig) -> None:
    recipe.env_service.token_file = "no/token"
    with pytest.raises(RunError, match=r"cannot read env_service\.token_file=.*no/token"):
        service.token(recipe)


def test_one_service_is_not_started_for_several_addresses(recipe: DictConfig) -> None:
    recipe.env_service.env_url = ["http://127.0.0.1:1", "http://127.0.0.1:2"]
    with pytest.raises(RunError, match=r"--with-bfcl starts one service.*has 2 addresses"):
        service.check_can_start(recipe)


def test_a_missing_service_environment_is_named(recipe: DictConfig) -> None:
    with pytest.raises(RunError, match=r"\.venv-bfcl is missing; run: bash install\.sh"):
        service.check_can_start(recipe)


def test_a_port_in_use_is_refused(recipe: DictConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BFCL_SCRIPT", "true")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        recipe.env_service.env_url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(RunError, match=r"cannot use .*env_service\.env_url="):
            service.check_can_start(recipe)


@pytest.mark.parametrize("token_file", [None, "token"])
def test_the_real_service_is_started_by_its_script(
    recipe: DictConfig,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    family: Family,
    port: int,
    token_file: str | None,
) -> None:
    """The published way: BFCL_PATH names the folder, BFCL_SCRIPT the command."""
    (tmp_path / "token").write_text("secret")
    recipe.env_service.token_file = token_file
    monkeypatch.setenv("BFCL_PATH", str(ROOT / "env_service/launch_script"))
    monkeypatch.setenv("BFCL_SCRIPT", "bash bfcl.sh --workers 1")
    process = service.start_service(recipe, family, tmp_path / "service.log")
    # A process group of its own: Ctrl-C in the launcher's terminal does not reach it.
    assert os.getpgid(process.pid) == process.pid != os.getpgid(0)
    reply = httpx.get(f"http://127.0.0.1:{port}/runs/x/interface", trust_env=False)
    assert reply.status_code == (200 if token_file is None else 401)
    assert family.end() == []
    assert process.returncode is not None
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) != 0


@pytest.fixture
def small_pool(tmp_path: Path) -> dict[str, str]:
    """A pool of two tasks in the recipe's project folder, made by the synthesiser; its hash."""
    command = [str(ROOT / ".venv-bfcl/bin/python"), "-m", "env_service.environments.bfcl.synthesis"]
    make = ["make", "small", "--split", "data/bfcl_clean_split.json", "--tasks", "2"]
    root = ["--root", str(tmp_path), "--processes", "1"]
    subprocess.run([*command, *make, *root], cwd=ROOT, check=True, capture_output=True)
    return pools.hashes_of(("small",))


def test_the_service_plays_the_pools_of_the_run_by_its_script_or_without(
    recipe: DictConfig,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    family: Family,
    port: int,
    small_pool: dict[str, str],
) -> None:
    (tmp_path / ".venv-bfcl").symlink_to(ROOT / ".venv-bfcl")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    for script in ("bash bfcl.sh --workers 1", ""):
        monkeypatch.setenv("BFCL_SCRIPT", script)
        monkeypatch.setenv("BFCL_PATH", str(ROOT / "env_service/launch_script") if script else "")
        service.start_service(recipe, family, tmp_path / "service.log", small_pool)
        service.check_service(recipe, pools=small_pool)
        with pytest.raises(RunError, match=r"does not play the pool x: start it with --tasks env"):
            service.check_service(recipe, pools={"x": "1"})
        with pytest.raises(RunError, match=r"plays another pool small \(.{12}\) than .*\(beef\)"):
            service.check_service(recipe, pools={"small": "beef"})
        assert family.end() == []


def test_a_script_that_leaves_the_pools_out_is_refused(
    recipe: DictConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, family: Family, port: int
) -> None:
    answer(monkeypatch, tmp_path, 200, protocol_version=PROTOCOL_VERSION, environments=["bfcl"])
    service.start_service(recipe, family, tmp_path / "service.log")
    assert family.end() == []
    with pytest.raises(RunError, match=r"does not play the pool some: .*variable BFCL_TASKS"):
        service.start_service(recipe, family, tmp_path / "service.log", {"some": "1"})


def test_our_own_service_is_started_without_settings(
    recipe: DictConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, family: Family, port: int
) -> None:
    python = tmp_path / ".venv-bfcl/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\necho "$@"; echo "token $SEAL_ENV_TOKEN"; exit 4\n')
    python.chmod(0o755)
    monkeypatch.setenv("SEAL_ENV_TOKEN", "secret")
    with pytest.raises(RunError, match=r"did not start \(exit code 4\)") as failed:
        service.start_service(recipe, family, tmp_path / "service.log")
    assert f"-m env_service --host 127.0.0.1 --port {port} --env bfcl" in str(failed.value)
    assert "token secret" in str(failed.value)


ANSWERS = """
import http.server, json, sys
status, answer = int(sys.argv[2]), sys.argv[3].encode()
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        print("asked", flush=True)
        self.send_response(status)
        self.end_headers()
        self.wfile.write(answer)
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


def answer(monkeypatch: pytest.MonkeyPatch, folder: Path, status: int, **data: object) -> None:
    """Have BFCL_SCRIPT start something that always answers this."""
    (folder / "answers.py").write_text(ANSWERS)
    text = json.dumps({"success": status == 200, "data": data})
    script = f"exec {sys.executable} answers.py $BFCL_PORT {status} '{text}'"
    monkeypatch.setenv("BFCL_SCRIPT", script)


def test_a_service_of_another_protocol_is_refused_at_once(
    recipe: DictConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, family: Family, port: int
) -> None:
    other = PROTOCOL_VERSION + 1
    answer(monkeypatch, tmp_path, 200, protocol_version=other, environments=["bfcl"])
    started = time.monotonic()
    with pytest.raises(EnvironmentFault, match=f"speaks protocol version {other}"):
        service.start_service(recipe, family, tmp_path / "service.log")
    assert time.monotonic() - started < 30
    with pytest.raises(EnvironmentFault, match=f"speaks protocol version {other}"):
        service.check_service(recipe)


def test_a_service_without_our_environment_is_refused(
    recipe: DictConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, family: Family, port: int
) -> None:
    answer(monkeypatch, tmp_path, 200, protocol_version=PROTOCOL_VERSION, environments=["toy"])
    with pytest.raises(EnvironmentFault, match="does not serve 'bfcl'"):
        service.start_service(recipe, family, tmp_path / "service.log")


def test_a_service_that_stays_unhealthy_is_refused_with_its_log(
    recipe: DictConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, family: Family, port: int
) -> None:
    answer(monkeypatch, tmp_path, 503)
    monkeypatch.setattr(service, "START_S", 3.0)
    with pytest.raises(RunError, match=r"(?s)not healthy after 3 s: no 200 from .*\nasked"):
        service.start_service(recipe, family, tmp_path / "service.log")


def test_a_service_that_nobody_started_is_missed(recipe: DictConfig, port: int) -> None:
    with pytest.raises(EnvironmentFault):
        service.check_service(recipe, attempts=1)


def test_settings_of_another_service_have_to_fit(
    recipe: DictConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BFCL_PATH", "no/such/folder")
    with pytest.raises(RunError, match="BFCL_SCRIPT is not"):
        service.check_can_start(recipe)
    monkeypatch.setenv("BFCL_SCRIPT", "bash bfcl.sh")
    with pytest.raises(RunError, match=r"BFCL_PATH=no/such/folder is not a folder"):
        service.check_can_start(recipe)


def test_the_versions_of_the_service_are_read_without_running_it(
    recipe: DictConfig, tmp_path: Path
) -> None:
    assert service.service_versions(("bfcl-eval",)) == {}
    info = tmp_path / ".venv-bfcl/lib/python3.11/site-packages/bfcl_eval-1.2.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: bfcl-eval\nVersion: 1.2\n")
    assert service.service_versions(("bfcl-eval",)) == {"bfcl-eval": "1.2"}
