"""The command line: what it listens on, and what it says when it cannot."""

import logging
import socket

import pytest

from env_service import __main__ as command_line
from env_service.environments import ENVIRONMENTS
from env_service.environments.base import Environment, SelfCheckFailed
from env_service.environments.toy.environment import ToyEnvironment


@pytest.fixture(autouse=True)
def root_logger_as_it_was() -> object:
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    yield
    root.handlers[:] = before
    root.setLevel(level)


def test_help_names_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        command_line.main(["--help"])
    assert ended.value.code == 0
    said = capsys.readouterr().out
    for word in ("--host", "127.0.0.1", "--port", "8080", "--env", "bfcl", "toy", "--log-level"):
        assert word in said


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


def test_a_failed_self_check_is_one_sentence(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken(ToyEnvironment):
        def self_check(self) -> None:
            raise SelfCheckFailed("toy: a wire is loose")

    def load() -> Environment:
        return Broken()

    monkeypatch.setattr(command_line, "ENVIRONMENTS", {**ENVIRONMENTS, "toy": load})
    assert command_line.main(["--port", "0", "--env", "toy"]) == 1
    assert capsys.readouterr().err == "env_service: self check failed: toy: a wire is loose\n"
