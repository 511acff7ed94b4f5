"""Command line of the service: python -m env_service --host 127.0.0.1 --port 8082 --env bfcl.

In: arguments. Out: a served address, or one sentence on standard error and exit status 1. By
default the service listens on this machine only. On another address it needs a token, because every
client that reaches it can create and end episodes. After SIGTERM or Ctrl-C, running requests have
DRAIN_S to finish.
"""

import argparse
import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path

import uvicorn

from env_service.app import create_app
from env_service.bounded_head import BoundedHead
from env_service.environments import ENVIRONMENTS
from env_service.environments.base import SelfCheckFailed
from env_service.live import LiveEpisodes
from env_service.log import StandardError, log_to_stderr
from env_service.metrics import Metrics
from env_service.task_files import PLAYED_BY, task_files
from env_service.workers.pool import Limits, WorkerPool
from seal.client.access_token import TOKEN_VARIABLE, TokenError, is_loopback, read_token
from seal.client.listening import CannotStart, listen

logger = logging.getLogger("env_service")

DRAIN_S = 3
"""Seconds that running requests have to finish when the service stops."""
KEEP_ALIVE_S = 300
"""Seconds that an idle connection stays open. Clients keep theirs for less (httpx 5, aiohttp 15,
proxies 60), so no request meets a connection that the service is closing."""
_EXPIRE_EVERY_S = 5.0
_LOCAL_NAMES = ("127.0.0.1", "localhost", "::1")


def main(argv: Sequence[str] | None = None) -> int:
    """Check the environments and serve until interrupted; returns 1 if that could not start."""
    args = _arguments(argv)
    log = log_to_stderr(args.log_level)
    try:
        config = uvicorn.Config("", log_config=None, access_log=False)
        with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
            with contextlib.suppress(KeyboardInterrupt):
                runner.run(_serve(args, log))
    except CannotStart as error:
        sys.stderr.write(f"env_service: {error}\n")
        return 1
    return 0


async def _serve(args: argparse.Namespace, log: StandardError) -> None:
    names = list(dict.fromkeys(args.env or ["bfcl"]))
    limits = Limits(
        workers=1 if args.self_check else args.workers,
        call_time_s=args.call_time_limit,
        memory_mb=args.memory_limit,
        max_episodes=args.max_episodes,
        resident_episodes=args.resident_episodes,
        idle_timeout_s=args.idle_timeout,
    )
    metrics = Metrics()
    log.on_drop = metrics.log_lines_dropped.inc
    environments = {name: ENVIRONMENTS[name] for name in names}
    pool = WorkerPool(environments, limits, metrics, task_files(args.tasks, names))
    if args.self_check:
        async with _started(pool):
            sys.stdout.write(f"self check passed: {', '.join(names)}\n")
        return
    token = _token(args)
    with listen(args.host, args.port) as listening:
        async with _started(pool):
            live = LiveEpisodes(pool, limits, metrics)
            # A web page cannot guess a token. Without a token, only known host names are served.
            known_as = [*_LOCAL_NAMES, args.host, *args.allowed_host]
            hosts = None if token else frozenset(name.lower() for name in known_as)
            app = create_app(pool, live, limits, metrics, token, hosts)
            host, port = listening.getsockname()[:2]
            logger.info("serving", extra={"environments": names, "host": host, "port": port})
            config = uvicorn.Config(
                app,
                http=BoundedHead,
                log_config=None,
                access_log=False,
                timeout_graceful_shutdown=DRAIN_S,
                timeout_keep_alive=KEEP_ALIVE_S,
            )
            expiring = asyncio.create_task(_expire(live))
            await _Server(config).serve(sockets=[listening])
            expiring.cancel()


class _Server(uvicorn.Server):
    """Ends normally after a signal; uvicorn's own class raises the signal again and dies of it."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Drain on the first SIGTERM or SIGINT; end at once on a second SIGINT."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.handle_exit, number, None)
        try:
            yield
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)


@contextlib.asynccontextmanager
async def _started(pool: WorkerPool) -> AsyncIterator[None]:
    try:
        await pool.start()
        yield
    except SelfCheckFailed as error:
        raise CannotStart(f"self check failed: {error}") from error
    finally:
        await pool.close()


async def _expire(live: LiveEpisodes) -> None:
    while True:
        await asyncio.sleep(_EXPIRE_EVERY_S)
        live.expire()


def _token(args: argparse.Namespace) -> str | None:
    try:
        token = read_token(args.token_file, setting="--token-file ")
    except TokenError as error:
        raise CannotStart(str(error)) from error
    if token is None and not is_loopback(args.host):
        raise CannotStart(
            f"--host {args.host} can be reached from other machines, so it needs a token: name a "
            f"file with --token-file, or set {TOKEN_VARIABLE}"
        )
    return token


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m env_service",
        description="Serve multi-turn tool-use environments over HTTP (the contract of seal.wire).",
        epilog="GET /healthz answers once every environment has passed its self check, "
        "GET /metrics counts, GET /docs explains the routes.",
    )
    add = parser.add_argument
    add("--host", default="127.0.0.1", help="address to listen on (%(default)s)")
    add("--port", type=int, default=8082, help="port, 0 for any free one (%(default)s)")
    add(
        "--env",
        action="append",
        choices=sorted(ENVIRONMENTS),
        help="environment to serve; can be given several times (bfcl)",
    )
    add(
        "--tasks",
        type=Path,
        nargs="+",
        action="extend",
        default=[],
        metavar="FILE",
        help=f"pools of synthetic tasks that {PLAYED_BY} plays, too "
        "(python -m env_service.environments.bfcl.synthesis makes one)",
    )
    add(
        "--allowed-host",
        action="append",
        default=[],
        metavar="NAME",
        help="without a token: another accepted name in the Host header, e.g. a proxy's; can be "
        "given several times (this machine's names and --host)",
    )
    add(
        "--token-file",
        metavar="PATH",
        help="file with the token that clients must send; without it, the environment variable "
        f"{TOKEN_VARIABLE}; without both, every client that reaches the service is admitted",
    )
    add(
        "--self-check",
        action="store_true",
        help="call every tool class once, verify one episode, and exit",
    )
    add(
        "--log-level",
        default="INFO",
        choices=["DEBUG", "INFO", "WARNING", "ERROR"],
        help="INFO logs a line for each episode and each profile (%(default)s)",
    )
    _add_limits(parser)
    return parser.parse_args(argv)


def _add_limits(parser: argparse.ArgumentParser) -> None:
    default = Limits()

    def add(option: str, kind: Callable[[str], float], value: float, unit: str, what: str) -> None:
        parser.add_argument(
            option, type=kind, default=value, metavar=unit, help=f"{what} (%(default)s)"
        )

    count, seconds = _at_least_one, _positive
    processors = os.cpu_count() or default.workers
    add("--workers", count, processors, "N", "worker processes that run tools; one per processor")
    add("--call-time-limit", seconds, default.call_time_s, "SECONDS", "time limit of a tool call")
    add(
        *("--memory-limit", count, default.memory_mb, "MIB"),
        "memory that a worker may take beyond what it starts with",
    )
    add(
        *("--max-episodes", count, default.max_episodes, "N"),
        "live episodes; beyond that, /create is answered 429",
    )
    add(
        *("--resident-episodes", count, default.resident_episodes, "N"),
        "live episodes that a worker holds in memory; the others are rebuilt at their next step "
        "and counted as rebuilt in /metrics",
    )
    add(
        *("--idle-timeout", seconds, default.idle_timeout_s, "SECONDS"),
        "an episode without a request for so long is dropped, and then answered 410",
    )


def _positive(text: str) -> float:
    with contextlib.suppress(ValueError):
        value = float(text)
        if 0 < value < 1e9:
            return value
    raise argparse.ArgumentTypeError(f"expected a number above 0 and below 1e9, got {text!r}")


def _at_least_one(text: str) -> int:
    with contextlib.suppress(ValueError):
        value = int(text)
        if value >= 1:
            return value
    raise argparse.ArgumentTypeError(f"expected a whole number of at least 1, got {text!r}")


if __name__ == "__main__":
    sys.exit(main())
