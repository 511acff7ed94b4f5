"""Ray's workers as forks of one process that has imported their libraries.

As a program: `python -m seal.train.cpu.fork_server ADDRESS`. The launcher starts it before the
service and Ray. verl makes its actors one after the other, and each would import torch,
transformers and vLLM again, which takes most of its start. Here one process imports them while the
service and Ray start, and every worker is a fork of it: Ray runs `worker_command` in place of
Python. The fork runs Ray's own program, with the files, folder and environment that Ray gave it
(`fork_client`). Machines with a GPU do not use it, because CUDA cannot be forked.
"""

import gc
import importlib
import json
import os
import runpy
import shlex
import signal
import socket
import struct
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

CLIENT = Path(__file__).with_name("fork_client.py")
MODULES = (
    "pandas",
    "datasets",
    "tensordict",
    "transformers",
    "peft",
    "hydra",
    "torchdata.stateful_dataloader",
    "vllm.entrypoints.openai.api_server",
)
"""What the actors of a run import and what takes long. Ray is not among them, nor what imports it:
it reads a worker's environment when it is imported."""


def worker_command(address: str) -> str:
    """The command with which Ray starts a worker (`py_executable` of its runtime environment)."""
    return shlex.join([sys.executable, "-S", str(CLIENT), address])


def serve(address: str) -> None:
    """Import the libraries, then fork for every request, until the launcher ends this process."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"\0{address}")
        listener.listen(64)
        for name in MODULES:
            importlib.import_module(name)
        # Workers are not waited for: Ray knows them by their connection.
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        # A collection would write to, and so copy, every page of what was imported.
        gc.collect()
        gc.freeze()
        while True:
            client, _ = listener.accept()
            with client:
                files: list[int] = []
                try:
                    request = _read(client, files) if _user(client) == os.getuid() else None
                    if request is not None and os.fork() == 0:
                        listener.close()
                        client.send(b"1")
                        client.close()
                        _become(request, files)
                finally:
                    for file in files:
                        os.close(file)


def _user(client: socket.socket) -> int:
    sent = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    user: int = struct.unpack("3i", sent)[1]
    return user


def _read(client: socket.socket, files: list[int]) -> dict[str, Any] | None:
    """A request, with its files added to `files`; None if the client went away."""
    text, received, _, _ = socket.recv_fds(client, 1 << 16, 3)
    files += received
    while more := client.recv(1 << 16):
        text += more
    try:
        request: dict[str, Any] = json.loads(text)
    except ValueError:
        return None
    return request


def _become(request: Mapping[str, Any], files: Sequence[int]) -> None:
    """Run the program of a request in this process, and end with it."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    # When a worker dies, Ray ends all processes of its group.
    os.setpgid(0, 0)
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    np.random.seed()  # Python gives its own generator a new seed in a fork
    # Ray writes `python -u FILE ...`.
    sys.argv = [word for word in request["argv"] if word != "-u"]
    code: Any = 0
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit as ended:
        code = ended.code
    except BaseException:
        sys.excepthook(*sys.exc_info())
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else int(code is not None))


if __name__ == "__main__":
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARN")  # as verl sets it in its workers
    serve(sys.argv[1])
