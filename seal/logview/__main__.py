"""Command line of the log viewer: python -m seal.logview --experiments experiments --port 8090.

In: arguments. Out: served pages, or one sentence on standard error and exit status 1. Ends on
SIGTERM and Ctrl-C.
"""

import argparse
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import uvicorn

from seal.client.listening import CannotStart, listen
from seal.logview.app import LOOPBACK, create_app
from seal.records.log_archive import BadArchive, plain_folder

_DRAIN_S = 1
"""Seconds that requests under way get when the viewer is told to end."""


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until interrupted.

    Returns:
        Exit status: 0 after a normal end, 1 if the viewer could not start.
    """
    args = _arguments(argv)
    try:
        with plain_folder(args.experiments) as logs:
            _serve(args, logs if logs == args.experiments else logs / "experiments")
    except (CannotStart, BadArchive) as error:
        sys.stderr.write(f"seal.logview: {error}\n")
        return 1
    return 0


def _serve(args: argparse.Namespace, folder: Path) -> None:
    if not folder.is_dir():
        raise CannotStart(
            f"there is no folder of runs at {args.experiments}; name the folder of your runs, or "
            "an archive of them, with --experiments, or start a run first"
        )
    if args.host not in LOOPBACK:
        raise CannotStart(
            f"--host {args.host} is not a loopback address: the pages have no access control; "
            "listen on 127.0.0.1 and reach it with "
            f"ssh -L {args.port}:127.0.0.1:{args.port} MACHINE"
        )
    listening = listen(args.host, args.port)
    host, port = listening.getsockname()[:2]
    address = f"[{host}]" if ":" in host else host
    shown = args.experiments
    sys.stdout.write(f"log viewer: http://{address}:{port}/ shows {shown}; Ctrl-C ends it\n")
    sys.stdout.flush()
    config = uvicorn.Config(
        create_app(folder),
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=_DRAIN_S,
    )
    # uvicorn raises the signal again when it has ended, to tell its caller. Nothing is left to do
    # here, and an end that was asked for is a normal one.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    with listening:
        uvicorn.Server(config).run(sockets=[listening])


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m seal.logview",
        description="Web pages over what runs leave behind: rounds, labels, the learning "
        "interface, every dialogue, validations. Live while a run writes; nothing is changed.",
        epilog="There is no access control, so it listens on this machine only. From another one: "
        "ssh -L 8090:127.0.0.1:8090 MACHINE, then open http://127.0.0.1:8090/ there.",
    )
    add = parser.add_argument
    add(
        "--experiments",
        type=Path,
        default=Path("experiments"),
        metavar="PATH",
        help="folder with the runs, or a study's archive, e.g. evidence/tiny (%(default)s)",
    )
    add("--host", default="127.0.0.1", help="loopback address to listen on (%(default)s)")
    add("--port", type=int, default=8090, help="port, 0 for any free one (%(default)s)")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
