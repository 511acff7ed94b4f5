"""uvicorn's HTTP protocol with a limit on the size of a request's head.

In: bytes of a connection. Out: what uvicorn's protocol makes of them, or the end of the connection.
The parser has no limit of its own: a header of 50 MB blocked all other clients for a second.
"""

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MOST_BYTES = 320 * 1024
"""Limit of a request line and its headers. The first part, up to 256 KiB, may include a body."""
_REFUSAL = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
    b"content-length: 0\r\nconnection: close\r\n\r\n"
)


class BoundedHead(HttpToolsProtocol):
    """Closes a connection if the head of a request is longer than MOST_BYTES."""

    _in_head = True
    _size = 0

    def data_received(self, data: bytes) -> None:
        """The next bytes of the connection."""
        if self._in_head:
            self._size += len(data)
            if self._size > MOST_BYTES:
                self.transport.write(_REFUSAL)
                self.transport.close()
                return
        super().data_received(data)

    def on_message_begin(self) -> None:
        """A request begins."""
        self._in_head, self._size = True, 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Its head has ended."""
        self._in_head = False
        super().on_headers_complete()
