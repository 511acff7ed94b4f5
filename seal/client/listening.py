"""A server's listening socket, opened before the server starts.

A port that is taken gives one sentence and not a traceback.
"""

import socket


class CannotStart(Exception):
    """A server cannot start; the message says why and what to do."""


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens on an address of this machine; port 0: any free one.

    Raises:
        CannotStart: The port is taken, or the address is not this machine's.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        # Without the protocol's number asyncio leaves Nagle's algorithm on: 40 ms for each answer.
        listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    except OSError as error:
        raise CannotStart(f"cannot open a socket ({error.strerror})") from error
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen()
    except (OSError, OverflowError) as error:
        listening.close()
        raise CannotStart(
            f"cannot listen on {host}:{port} ({error}); stop what uses the port or choose another "
            "with --port"
        ) from error
    return listening
