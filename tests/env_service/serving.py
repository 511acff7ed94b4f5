"""A client without sockets, and the service it talks to."""

import asyncio
import json
from collections.abc import Iterator, Mapping
from typing import Any

import httpx
from fastapi import FastAPI

from env_service.app import create_app
from seal.wire import Message


class Service:
    """Sends requests straight into the app and gives back status and body."""

    def __init__(self, app: FastAPI) -> None:
        self.runner = asyncio.Runner()
        # What the app raises beyond its own replies must reach the client as a reply, too.
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        self.client = httpx.AsyncClient(transport=transport, base_url="http://service")

    def request(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        # json.dumps writes ASCII, which lets a test send half of a surrogate pair.
        content = None if body is None else json.dumps(body)
        headers = {"content-type": "application/json"}
        sent = self.client.request(method, path, content=content, headers=headers)
        reply = self.runner.run(sent)
        return reply.status_code, reply.json()

    def ok(self, path: str, **body: Any) -> Any:
        """POST, expect success, return the data."""
        status, reply = self.request("POST", path, body)
        assert (status, reply["success"]) == (200, True), reply
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

    def close(self) -> None:
        self.runner.run(self.client.aclose())
        self.runner.close()


def serve(names: Mapping[str, Any]) -> Iterator[Service]:
    service = Service(create_app(names))
    yield service
    service.close()
