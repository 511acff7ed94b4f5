"""A client without sockets, and the service it talks to: a real one, with worker processes."""

import asyncio
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import httpx

from env_service.app import create_app
from env_service.environments.base import TaskFile
from env_service.live import LiveEpisodes
from env_service.metrics import Metrics
from env_service.workers.pool import Limits, WorkerPool
from seal.wire import Message

FAST = Limits(workers=1, call_time_s=0.5, memory_mb=512)


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Service:
    """Sends requests straight into the app and gives back status and body."""

    def __init__(
        self,
        environments: Mapping[str, str],
        limits: Limits = FAST,
        token: str | None = None,
        tasks: Sequence[TaskFile] = (),
    ) -> None:
        self.runner = asyncio.Runner()
        self.clock = Clock()
        self.created: set[str] = set()
        self.metrics = Metrics()
        try:
            self.pool = self.runner.run(self._start(environments, limits, tasks))
        except BaseException:
            self.runner.close()
            raise
        self.live = LiveEpisodes(self.pool, limits, self.metrics, self.clock)
        app = create_app(self.pool, self.live, limits, self.metrics, token)
        # What the app raises beyond its own replies must reach the client as a reply, too.
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        self.client = httpx.AsyncClient(transport=transport, base_url="http://service")

    async def _start(
        self, environments: Mapping[str, str], limits: Limits, tasks: Sequence[TaskFile]
    ) -> WorkerPool:
        pool = WorkerPool(environments, limits, self.metrics, tasks)
        await pool.start()
        return pool

    async def send(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        # json.dumps writes ASCII, which lets a test send half of a surrogate pair.
        content = None if body is None else json.dumps(body)
        headers = {"content-type": "application/json"}
        reply = await self.client.request(method, path, content=content, headers=headers)
        return reply.status_code, reply.json()

    def request(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        return self.runner.run(self.send(method, path, body))

    def both(self, path: str, one: Any, other: Any) -> list[tuple[int, Any]]:
        """Two POSTs at the same time."""

        async def send_both() -> list[tuple[int, Any]]:
            sent = (self.send("POST", path, body) for body in (one, other))
            return list(await asyncio.gather(*sent))

        return self.runner.run(send_both())

    def ok(self, path: str, **body: Any) -> Any:
        """POST, expect success, return the data."""
        status, reply = self.request("POST", path, body)
        assert (status, reply["success"]) == (200, True), reply
        if path == "/create":
            self.created.add(reply["data"]["info"]["instance_id"])
        return reply["data"]

    def refused(self, path: str, **body: Any) -> tuple[int, str, str]:
        """POST, expect an error, return status, code and message."""
        status, reply = self.request("POST", path, body)
        assert reply["success"] is False, reply
        assert set(reply) == {"success", "error"}
        return status, reply["error"]["code"], reply["error"]["message"]

    def say(self, instance_id: str, text: str, **params: Any) -> Any:
        """Step with assistant text."""
        message: Message = {"role": "assistant", "content": text}
        return self.ok("/step", instance_id=instance_id, messages=message, params=params)

    def release_all(self) -> None:
        """Leave nothing for the next test."""
        for instance_id in self.created:
            self.ok("/release", instance_id=instance_id)
        self.created.clear()

    def close(self) -> None:
        self.runner.run(self.client.aclose())
        self.runner.run(self.pool.close())
        self.runner.close()


def serve(environments: Mapping[str, str], **settings: Any) -> Iterator[Service]:
    service = Service(environments, **settings)
    yield service
    service.close()


@contextlib.contextmanager
def running(*arguments: str, **variables: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A service in a process of its own, and its address."""
    command = [sys.executable, "-m", "env_service", "--env", "toy", "--port", "0", *arguments]
    environment = {**os.environ, **variables}
    service = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
    assert service.stderr is not None
    try:
        for line in service.stderr:
            said = json.loads(line)
            if said["message"] == "serving":
                break
        yield service, f"http://{said['host']}:{said['port']}"
    finally:
        service.kill()
        service.wait()
        service.stderr.close()
