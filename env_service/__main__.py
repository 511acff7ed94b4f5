"""Command line of the service: python -m env_service --host 127.0.0.1 --port 8080 --env bfcl.

In: arguments. Out: a served address, or one sentence on standard error and exit status 1. Listens
on this machine only unless told otherwise: whoever reaches it can create and end episodes.
"""

import argparse
import contextlib
import logging
import socket
import sys
from collections.abc import Sequence

import uvicorn

from env_service.app import create_app
from env_service.environments import ENVIRONMENTS
from env_service.environments.base import SelfCheckFailed

logger = logging.getLogger("env_service")


def main(argv: Sequence[str] | None = None) -> int:
    """Check the environments and serve until interrupted.

    Returns:
        Exit status: 0 after a normal end, 1 if the service could not start.
    """
    args = _arguments(argv)
    logging.basicConfig(
        level=args.log_level, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    names = list(dict.fromkeys(args.env or ["bfcl"]))
    try:
        app = create_app({name: ENVIRONMENTS[name]() for name in names})
    except SelfCheckFailed as error:
        return _refuse(f"self check failed: {error}")
    if args.self_check:
        sys.stdout.write(f"self check passed: {', '.join(names)}\n")
        return 0
    try:
        listening = _listen(args.host, args.port)
    except OSError as error:
        return _refuse(
            f"cannot listen on {args.host}:{args.port} ({error.strerror}); stop what uses the port "
            "or choose another with --port"
        )
    # The address is bound here, so that a taken port is one sentence and not a traceback.
    logger.info("serving %s on %s:%d", ", ".join(names), *listening.getsockname()[:2])
    config = uvicorn.Config(app, log_config=None, access_log=False)
    with listening, contextlib.suppress(KeyboardInterrupt):
        uvicorn.Server(config).run(sockets=[listening])
    return 0


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m env_service",
        description="Serve multi-turn tool-use environments over HTTP (the wire of seal.wire).",
        epilog="GET /healthz answers as soon as every environment has passed its self check.",
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (%(default)s)")
    parser.add_argument(
        "--port", type=int, default=8080, help="port to listen on, 0 for any free one (%(default)s)"
    )
    parser.add_argument(
        "--env",
        action="append",
        choices=sorted(ENVIRONMENTS),
        help="environment to serve; may be given several times (bfcl)",
    )
    parser.add_argument(
        "--self-check",
        action="store_true",
        help="call every tool class once, verify one episode, and exit",
    )
    parser.add_argument(
        "--log-level",
        default="INFO",
        choices=["DEBUG", "INFO", "WARNING", "ERROR"],
        help="INFO logs a line for each episode and each profile (%(default)s)",
    )
    return parser.parse_args(argv)


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Without the protocol's number asyncio leaves Nagle's algorithm on: 40 ms an answer.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen()
    except OSError:
        listening.close()
        raise
    return listening


def _refuse(sentence: str) -> int:
    sys.stderr.write(f"env_service: {sentence}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
