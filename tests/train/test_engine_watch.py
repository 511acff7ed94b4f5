"""Servers of two engines, made up here, on real sockets."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from seal.train.engine_watch import EngineWatch

NOT_HTTP = 0


class Engine(BaseHTTPRequestHandler):
    """Answers /health with the status that its server has."""

    server: "Server"

    def do_GET(self) -> None:
        assert self.path == "/health"
        self.server.asked += 1
        self.server.was_asked.set()
        statuses = self.server.statuses
        status = statuses.pop(0) if len(statuses) > 1 else statuses[0]
        if status == NOT_HTTP:
            self.wfile.write(b"no status line\r\n\r\n")
            return
        self.send_response(status)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


class Server(ThreadingHTTPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Engine)
        self.statuses, self.asked, self.was_asked = [200], 0, threading.Event()
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server_port}"

    def await_looks(self, number: int) -> None:
        until = self.asked + number
        while self.asked < until:
            self.was_asked.clear()
            assert self.was_asked.wait(20.0)


@pytest.fixture
def servers() -> Iterator[list[Server]]:
    made = [Server(), Server()]
    yield made
    for one in made:
        one.shutdown()
        one.server_close()


def watch(servers: list[Server]) -> tuple[EngineWatch, list[str], threading.Event]:
    said: list[str] = []
    called = threading.Event()

    def on_death(text: str) -> None:
        said.append(text)
        called.set()

    made = EngineWatch([one.address for one in servers], on_death, every_s=0.01)
    made.start()
    return made, said, called


def test_healthy_engines_and_one_bad_answer_are_nothing(servers: list[Server]) -> None:
    made, said, _ = watch(servers)
    servers[0].statuses = [200, 503, 200, 500, NOT_HTTP, 200]
    servers[0].await_looks(8)
    assert said == []
    made.stop()


def test_an_engine_whose_process_has_ended_is_named_once(servers: list[Server]) -> None:
    made, said, called = watch(servers)
    servers[1].statuses = [503]
    assert called.wait(20.0)
    assert said == [
        f"rollout engine 2 of 2 ({servers[1].address}) has died: its engine process has ended"
    ]
    made._thread.join(20.0)
    assert not made._thread.is_alive()


def test_an_engine_whose_server_is_gone(servers: list[Server]) -> None:
    _, said, called = watch(servers)
    servers[0].shutdown()
    servers[0].server_close()
    assert called.wait(20.0)
    assert "engine 1 of 2" in said[0] and "cannot be reached" in said[0]


def test_what_ends_after_the_watch_is_no_death(servers: list[Server]) -> None:
    made, said, _ = watch(servers)
    servers[0].await_looks(1)
    made.stop()
    made._thread.join(20.0)
    servers[0].statuses = [503]
    assert not made._thread.is_alive() and said == []


def test_a_run_that_fails_reports_its_dead_engines_and_ends_the_watch(
    servers: list[Server],
) -> None:
    made, said, _ = watch(servers)
    made.stop()
    made._thread.join(20.0)
    with made.until_the_end():
        pass
    assert said == []
    servers[0].statuses = [503]
    with pytest.raises(RuntimeError, match="lost rollouts"), made.until_the_end():
        raise RuntimeError("lost rollouts")
    assert len(said) == 1 and said[0].startswith("rollout engine 1 of 2 (")
    assert made._over.is_set()


def test_who_is_dead_at_this_moment(servers: list[Server]) -> None:
    made, _, _ = watch(servers)
    made.stop()
    assert made.deaths() == {}
    servers[1].statuses = [503]
    (said,) = made.deaths().values()
    assert said.startswith("rollout engine 2 of 2 (") and said.endswith("process has ended")
