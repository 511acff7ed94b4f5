"""Environment services made up here, and a client that talks to them without a socket.

A test says which services are dead, full or refuse, lets the client do something (`use`) and looks
at which of them were asked for what. The fixtures `services` and `pauses` stand in conftest.py.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import httpx

from seal.client.client import EnvironmentClient, Task
from seal.wire import PROTOCOL_VERSION, CreateReply, Message

HEALTHY = {"protocol_version": PROTOCOL_VERSION, "environments": ["toy"]}
EVOLVED = {"version": 4, "content_hash": "one", "active": [], "text": "", "interface": {}}
A, B = "http://a", "http://b"
SAID: Message = {"role": "assistant", "content": "Done."}


class Services:
    """Services by host name. Each takes episodes and answers; what it lacks is switched on."""

    def __init__(self) -> None:
        self.now = 0.0
        self.requests: list[tuple[str, str]] = []
        self.headers: list[httpx.Headers] = []
        self.dead: set[str] = set()
        self.full: set[str] = set()
        self.status: dict[str, list[tuple[int, str]]] = {}
        self.hashes: dict[str, str] = {}

    def __call__(self, request: httpx.Request) -> httpx.Response:
        host, path = request.url.host, request.url.path
        self.requests.append((host, path))
        self.headers.append(request.headers)
        if host in self.dead:
            raise httpx.ConnectError("refused", request=request)
        if self.status.get(host):
            return refusal(*self.status[host].pop(0))
        if path == "/create" and host in self.full:
            return refusal(429, "too_many_episodes")
        return reply(self._data(host, path))

    def _data(self, host: str, path: str) -> Any:
        match path:
            case "/create":
                info = {"tools": [], "category": "toy", "interface_version": 3}
                info |= {"instance_id": "1", "task_id": "toy_1", "mode": "train"}
                return {"state": [{"role": "user", "content": host}], "info": info}
            case "/step":
                info = {"turn": 0, "step": 0, "truncated": False}
                return {"state": [], "is_terminated": True, "info": info}
            case "/evaluate":
                return {
                    "accuracy": 1.0,
                    "diagnosis": [],
                    "interface_version": 3,
                    "truncated": False,
                    "task_id": "toy_1",
                    "category": "toy",
                    "progress": dict.fromkeys(
                        ("scorable", "scorable_passed", "abstention", "abstention_passed"), 1
                    ),
                }
            case "/runs/run/profile":
                return {**EVOLVED, "content_hash": self.hashes.get(host, "one")}
            case "/healthz":
                return HEALTHY
            case _:
                return None

    def asked(self, path: str) -> list[str]:
        return [host for host, asked in self.requests if asked == path]


def use(
    services: Services,
    what: Callable[[EnvironmentClient], Awaitable[Any]],
    urls: str | Sequence[str] = (A, B),
    **settings: Any,
) -> Any:
    async def run() -> Any:
        transport = httpx.MockTransport(services)
        settings.setdefault("attempts", 2)
        async with EnvironmentClient(urls, "toy", transport=transport, **settings) as client:
            return await what(client)

    return asyncio.run(run())


def create(client: EnvironmentClient, instance_id: str = "1") -> Awaitable[CreateReply]:
    return client.create(instance_id, Task("toy_1", "train", "run", 3, "hermes"))


def reply(data: Any) -> httpx.Response:
    return httpx.Response(200, json={"success": True, "data": data})


def refusal(status: int, code: str) -> httpx.Response:
    error = {"code": code, "message": "no"}
    return httpx.Response(status, json={"success": False, "error": error})
