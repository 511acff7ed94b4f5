"""Middleware that every request passes before its route: host name, token, size, metrics.

In: an HTTP request. Out: 421 if the request names another host, 401 without the token, 413 if the
body is too large, otherwise the reply of the route. The whole body is read here, because it may
come without a length.
"""

import asyncio
import hmac
import time
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from env_service.errors import ServiceError
from env_service.metrics import Metrics
from seal.wire import ErrorDetail, ErrorReply, json_bytes

MOST_PROFILE_BYTES = 65_536
"""Limit of a profile's request. It has a few thousand bytes, and other requests wait meanwhile."""
_OPEN_ROUTES = frozenset({"/healthz"})
_COUNTED_ROUTES = frozenset(
    {"/create", "/step", "/evaluate", "/get_info", "/release", "/get_env_profile", "/healthz"}
)


class Access:
    """Middleware around the whole service.

    Args:
        app: The service.
        token: Token that a client must send; None to admit every client.
        max_body_bytes: Bytes of the largest body.
        metrics: Counts requests.
        hosts: Host names that a request may use; None for any.
    """

    def __init__(
        self,
        app: ASGIApp,
        token: str | None,
        max_body_bytes: int,
        metrics: Metrics,
        hosts: frozenset[str] | None = None,
    ) -> None:
        self._app = app
        self._expected = None if token is None else token.encode()
        self._max_body_bytes = max_body_bytes
        self._metrics = metrics
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()
        status = 500

        async def counted_send(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._answer(scope, receive, counted_send)
        finally:
            route = scope["path"] if scope["path"] in _COUNTED_ROUTES else "other"
            self._metrics.requests.labels(route, status).inc()
            self._metrics.request_seconds.labels(route).observe(time.perf_counter() - started)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        try:
            self._check_host(headers)
            if scope["path"] not in _OPEN_ROUTES:
                self._check_token(headers)
            body = await self._body(scope["path"], headers, receive)
        except ServiceError as error:
            await error_reply(error)(scope, receive, send)
            return
        if body is None:
            return  # the client has disconnected
        given = False

        async def receive_body() -> Any:
            nonlocal given
            if given:
                return await receive()
            given = True
            return {"type": "http.request", "body": body, "more_body": False}

        try:
            await self._app(scope, receive_body, send)
        except asyncio.CancelledError:  # the service stops, and its time to drain is over
            stopping = ServiceError(503, "no_worker", "the service is stopping; try again later")
            await error_reply(stopping)(scope, receive, send)

    def _check_host(self, headers: Headers) -> None:
        """Refuse a web page whose own host name was pointed at this machine (DNS rebinding)."""
        if self._hosts is None:
            return
        host = headers.get("host", "")
        try:
            name = urlsplit(f"//{host}").hostname
        except ValueError:  # brackets that do not close
            name = None
        if name not in self._hosts:
            raise ServiceError(
                421,
                "wrong_host",
                f"this service is not {host[:100]!r}; behind a proxy of that name, start it with "
                "--allowed-host",
            )

    def _check_token(self, headers: Headers) -> None:
        if self._expected is None:
            return
        scheme, _, shown = headers.get("authorization", "").partition(" ")
        # The name of a scheme is case-insensitive (RFC 9110, section 11.1).
        right = hmac.compare_digest(shown.strip(" ").encode("latin-1"), self._expected)
        if scheme.lower() != "bearer" or not right:
            raise ServiceError(
                401,
                "unauthorized",
                "this service needs a token; send the header 'Authorization: Bearer <token>' (for "
                "a page: curl -H 'Authorization: Bearer ...' ADDRESS/docs > docs.html)",
            )

    async def _body(self, path: str, headers: Headers, receive: Receive) -> bytes | None:
        most = self._max_body_bytes
        if path.startswith("/runs/"):
            most = min(most, MOST_PROFILE_BYTES)
        length = headers.get("content-length", "0")
        if length.isdecimal() and int(length[:20]) > most:
            raise _too_large(most)
        parts: list[bytes] = []
        size = 0
        while True:
            message = await receive()
            if message["type"] != "http.request":
                return None
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > most:
                raise _too_large(most)
            if not message.get("more_body", False):
                return b"".join(parts)


def _too_large(most: int) -> ServiceError:
    return ServiceError(413, "too_large", f"the request's body has more than {most} bytes")


def data_reply(data: Any) -> Response:
    """The success envelope around data, or around JSON that a worker has encoded."""
    data = data if isinstance(data, bytes) else json_bytes(data)
    return Response(b'{"success":true,"data":' + data + b"}", media_type="application/json")


def error_reply(error: ServiceError) -> Response:
    """The error envelope of the HTTP contract."""
    content = json_bytes(ErrorReply(False, ErrorDetail(error.code, error.message)))
    reply = Response(content, status_code=error.status, media_type="application/json")
    if error.status == 401:
        reply.headers["www-authenticate"] = "Bearer"
    return reply
