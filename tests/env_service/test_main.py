"""The command line: what it listens on, and what it says when it cannot."""

import contextlib
import json
import socket
import time
from pathlib import Path

import httpx
import pytest
from serving import running

from env_service import __main__ as command_line
from env_service.environments import ENVIRONMENTS

pytestmark = pytest.mark.usefixtures("root_logger_as_it_was")


def test_help_names_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        command_line.main(["--help"])
    assert ended.value.code == 0
    said = capsys.readouterr().out
    for word in ("--host", "127.0.0.1", "--port", "8082", "--env", "bfcl", "toy", "--log-level"):
        assert word in said


def asked(url: str, host: str, path: str = "/healthz") -> int:
    return httpx.get(f"{url}{path}", headers={"host": host}).status_code


def test_a_page_whose_name_leads_to_this_machine_is_refused() -> None:
    with running("--allowed-host", "Bfcl.example") as (_, url):
        port = url.rpartition(":")[2]
        for host in (f"127.0.0.1:{port}", "localhost", f"[::1]:{port}", "bfcl.example:443"):
            assert asked(url, host) == 200, host
        for host in ("evil.example", f"evil.example:{port}", "127.0.0.1.evil.example", "[", ""):
            assert asked(url, host) == 421, host
            assert asked(url, host, "/docs") == 421, host
        reply = httpx.get(f"{url}/healthz", headers={"host": "evil.example"})
        assert "'evil.example'; behind a proxy" in reply.json()["error"]["message"]


def test_with_a_token_a_service_has_any_name() -> None:
    with running(SEAL_ENV_TOKEN="open-sesame") as (_, url):
        assert asked(url, "cluster.example") == 200


def connected(url: str) -> socket.socket:
    host, _, port = url.removeprefix("http://").rpartition(":")
    return socket.create_connection((host, int(port)), timeout=30)


def test_a_head_without_an_end_is_cut_off() -> None:
    with running() as (_, url), connected(url) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nx: ")
        sent = 0
        with contextlib.suppress(OSError):
            while sent < 50_000_000:
                sent += connection.send(b"x" * 65_536)
        assert sent < 20_000_000
        assert httpx.get(f"{url}/healthz").status_code == 200


def test_bodies_and_many_requests_are_no_heads() -> None:
    with running() as (_, url), httpx.Client(base_url=url) as client:
        for number in range(10):
            content = "x" * 900_000
            body = {"env_type": "toy", "task_id": "toy_lamp", "instance_id": str(number)}
            assert client.post("/create", json=body).status_code == 200
            message = {"role": "assistant", "content": content}
            step = {"instance_id": str(number), "messages": message}
            assert client.post("/step", json=step).status_code == 200


@pytest.mark.slow
def test_a_connection_that_was_idle_takes_another_request() -> None:
    request = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n"
    with running() as (_, url), connected(url) as connection:
        for _ in range(2):
            connection.sendall(request)
            answer = b""
            while not answer.endswith(b"}}"):
                part = connection.recv(65_536)
                assert part, "the connection was closed"
                answer += part
            assert answer.startswith(b"HTTP/1.1 200")
            # uvicorn's own limit is 5 s.
            time.sleep(6.5)


def test_a_taken_port_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert command_line.main(["--port", str(port), "--env", "toy"]) == 1
    said = capsys.readouterr().err
    assert f"cannot listen on 127.0.0.1:{port}" in said
    assert "--port" in said
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("place", "why"),
    [
        ("faulty:Broken", "toy: a wire is loose"),
        ("faulty:Brokn", "toy: module faulty has no class 'Brokn'"),
    ],
)
def test_a_failed_self_check_is_one_sentence(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, place: str, why: str
) -> None:
    monkeypatch.setattr(command_line, "ENVIRONMENTS", {**ENVIRONMENTS, "toy": place})
    arguments = ["--port", "0", "--env", "toy", "--log-level", "ERROR"]
    assert command_line.main(arguments) == 1
    assert capfd.readouterr().err == f"env_service: self check failed: {why}\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--host", "0.0.0.0"], ["--host 0.0.0.0", "--token-file", "SEAL_ENV_TOKEN"]),
        (["--host", "::"], ["--token-file"]),
        (["--token-file", "no/such/file"], ["cannot read --token-file", "no/such/file"]),
        (["--port", "70000"], ["cannot listen on", "--port"]),
    ],
)
def test_what_it_cannot_do_is_one_sentence(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    words: list[str],
) -> None:
    monkeypatch.delenv("SEAL_ENV_TOKEN", raising=False)
    assert command_line.main([*arguments, "--env", "toy"]) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert all(word in said for word in words)


@pytest.mark.parametrize("value", ["0", "many", "nan"])
@pytest.mark.parametrize("option", ["--workers", "--max-episodes", "--idle-timeout"])
def test_a_limit_of_nothing_is_refused(
    option: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        command_line.main([option, value])
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert f"argument {option}: expected" in said and f"got '{value}'" in said


def children(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(child) for child in text.split()]


def test_it_ends_soon_when_told_to_and_leaves_no_process() -> None:
    with running("--workers", "2") as (service, address):
        workers = children(service.pid)
        assert len(workers) == 2
        # An idle connection and a live episode hold nothing up.
        with httpx.Client(base_url=address, trust_env=False) as client:
            body = {"env_type": "toy", "task_id": "toy_lamp", "instance_id": "a"}
            assert client.post("/create", json=body).status_code == 200
            service.terminate()
            assert service.wait(timeout=5) == 0
        assert not any(Path(f"/proc/{pid}/cmdline").exists() for pid in workers)


def test_workers_end_when_the_service_is_killed() -> None:
    with running("--workers", "2") as (service, _):
        workers = children(service.pid)
        service.kill()
        service.wait()
        deadline = time.monotonic() + 5
        while any(is_running(pid) for pid in workers):
            assert time.monotonic() < deadline
            time.sleep(0.05)


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_the_log_names_instances_and_no_arguments() -> None:
    with running() as (service, address):
        with httpx.Client(base_url=address, trust_env=False) as client:
            body = {"env_type": "toy", "task_id": "toy_mixed", "instance_id": "a"}
            client.post("/create", json=body)
            text = '<tool_call>\n{"name": "add", "arguments": {"amount": 1234567}}\n</tool_call>'
            message = {"role": "assistant", "content": text}
            reply = client.post("/step", json={"instance_id": "a", "messages": message}).json()
            assert "1234567" in reply["data"]["state"][0]["content"]
            client.post("/release", json={"instance_id": "a"})
        service.terminate()
        assert service.stderr is not None
        lines = [json.loads(line) for line in service.stderr]
    said = {line["message"]: line for line in lines}
    assert said["create"]["instance"] == said["release"]["instance"] == "a"
    assert said["create"]["task"] == "toy_mixed"
    assert "1234567" not in json.dumps(lines)


def test_a_token_in_a_file_opens_another_address(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("secret\n")
    with running("--token-file", str(file), "--host", "127.0.0.1") as (_, address):
        with httpx.Client(base_url=address, trust_env=False) as client:
            assert client.get("/healthz").status_code == 200
            assert client.get("/metrics").status_code == 401
            header = {"authorization": "Bearer secret"}
            assert client.get("/metrics", headers=header).status_code == 200
