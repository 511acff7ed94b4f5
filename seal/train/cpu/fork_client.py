"""A stand-in for the Python program that Ray starts for a worker: `fork_client.py SOCKET ARG ...`.

It asks the server at the socket (`seal.train.cpu.fork_server`) to run the arguments with its own
files, folder and environment, and ends. If no server answers, it becomes Python itself. It runs
without site-packages (`python -S`), so it takes a few hundredths of a second.
"""

import json
import os
import socket
import sys


def main(address: str, arguments: list[str]) -> None:
    """Have the server run the arguments, or run them here."""
    request = {"argv": arguments, "environment": dict(os.environ), "folder": os.getcwd()}
    with socket.socket(socket.AF_UNIX) as server:
        try:
            server.connect(f"\0{address}")
            socket.send_fds(server, [json.dumps(request).encode()], [0, 1, 2])
            server.shutdown(socket.SHUT_WR)
            forked = server.recv(1)
        except OSError:
            forked = b""
    if not forked:
        os.execv(sys.executable, [sys.executable, *arguments])


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
