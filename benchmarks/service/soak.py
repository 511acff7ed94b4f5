"""Let many clients use and abuse the environment service for minutes, and check what they get.

    .venv-bfcl/bin/python -m benchmarks.service.soak --minutes 10 --clients 64

Clients play references with seeded mistakes. They give up waiting and ask again, send steps and
creates twice, evaluate in the middle of an episode, leave episodes behind, and now and then call a
tool that takes far too long. Meanwhile worker processes are killed or stopped for good (SIGSTOP),
and the service's log is a pipe that is read seldom. Whatever happens, an episode's verdict has to
be that of bfcl-eval's own checker on the calls that were sent, and a repeated request has to get
the same answer. At the end no episode, no process, no file and no memory may be left over. The exit
status is 1 if anything of this is violated.
"""

import argparse
import asyncio
import contextlib
import multiprocessing
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.output import command_line, exit_code, figures_table, publish, text_of
from benchmarks.service.process import ServiceProcess, pss_bytes
from benchmarks.service.soak_clients import CLIENTS_A_POOL, IDLE_TIMEOUT_S, Soak
from benchmarks.service.soak_episodes import ignore_interrupts

OPTIONS = (f"--idle-timeout={IDLE_TIMEOUT_S:g}", "--call-time-limit=2")
STOP_LIMIT_S = 5.0
READ_LOG_EVERY_S = 5.0
MEMORY_FACTOR, MEMORY_EXTRA = 1.2, 50_000_000
VIOLATIONS_SHOWN = 20
MEGABYTE = 1_000_000


async def run(soak: Soak, service: ServiceProcess, args: argparse.Namespace) -> dict[str, float]:
    """The whole run; bytes of memory after warm-up ("warm") and at the "end"."""
    progress = Console(stderr=True).status("")
    seconds = args.minutes * 60
    started = time.monotonic()
    deadline = started + seconds
    warm = 0
    tasks = [asyncio.create_task(soak.client(deadline)) for _ in range(args.clients)]
    if args.kill_every:
        tasks.append(asyncio.create_task(soak.kill_workers(args.kill_every, deadline)))
    progress.start()
    try:
        while not all(task.done() for task in tasks):
            await asyncio.wait(tasks, timeout=0.5, return_when=asyncio.FIRST_EXCEPTION)
            service.check_alive()
            for task in tasks:
                if task.done():
                    task.result()
            elapsed = time.monotonic() - started
            if not warm and elapsed > min(60.0, seconds / 5):
                warm = pss_bytes(service.processes())
            counts = soak.counts
            progress.update(
                f"{elapsed:.0f} of {seconds:.0f} s, {counts['episodes']} episodes, "
                f"{counts['workers killed']} kills, {counts['violations']} violations"
            )
        progress.update("waiting for the abandoned episodes to go")
        await soak.forget()
        await asyncio.sleep(2.0)
        return {"warm": float(warm), "end": float(pss_bytes(service.processes()))}
    finally:
        progress.stop()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await soak.close()


def check_leftovers(
    soak: Soak, service: ServiceProcess, folder: Path, memory: dict[str, float]
) -> float:
    """End the service; check memory, processes and files. Returns its seconds from SIGTERM."""
    allowed = memory["warm"] * MEMORY_FACTOR + MEMORY_EXTRA
    if memory["end"] > allowed:
        soak.violated(
            f"memory grew from {memory['warm'] / MEGABYTE:.0f} MB after warm-up to "
            f"{memory['end'] / MEGABYTE:.0f} MB, allowed were {allowed / MEGABYTE:.0f} MB"
        )
    soak.counts["tracebacks in the service's log"] = service.log().count("Traceback (most recent")
    seconds, left = service.stop()
    if seconds > STOP_LIMIT_S:
        soak.violated(f"the service took {seconds:.1f} s to end, allowed are {STOP_LIMIT_S:.0f} s")
    for process in left:
        soak.violated(f"a process outlived the service: {process}")
    for path in sorted(folder.rglob("*")):
        if path != folder / "tmp":
            soak.violated(f"a file was left behind: {path.relative_to(folder)}")
    return seconds


def summary(
    soak: Soak, memory: dict[str, float], stop_s: float, notes: Sequence[str]
) -> tuple[str, dict[str, Any]]:
    """The report, as text and as JSON values."""
    values: dict[str, Any] = dict(sorted(soak.counts.items()))
    values["violations"] = soak.counts["violations"]
    values["slowest answer, s"] = round(soak.slowest_s, 2)
    values["memory after warm-up, MB"] = round(memory["warm"] / MEGABYTE)
    values["memory at the end, MB"] = round(memory["end"] / MEGABYTE)
    values["SIGTERM to the end, s"] = round(stop_s, 2)
    parts = [text_of(figures_table(["what", "how much"], list(values.items()))), *notes]
    if soak.violations:
        parts.append("Violations, the first ones:")
        parts += [f"- {text[:600]}" for text in soak.violations[:VIOLATIONS_SHOWN]]
    return "\n".join(parts), {**values, "notes": notes, "violation_texts": soak.violations[:200]}


def main(argv: Sequence[str] | None = None) -> int:
    """Read the command line, run, print."""
    args = _arguments(argv)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    return exit_code("soak", partial(_run, args))


def _run(args: argparse.Namespace) -> int:
    spawn = multiprocessing.get_context("spawn")
    verdicts = ProcessPoolExecutor(1, mp_context=spawn, initializer=ignore_interrupts)
    notes: list[str] = []
    with contextlib.ExitStack() as stack:
        stack.callback(verdicts.shutdown, cancel_futures=True)
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        options = [*OPTIONS, *args.service_options]
        service = stack.enter_context(ServiceProcess(options, folder, READ_LOG_EVERY_S))
        soak = Soak(service, verdicts, args.seed, -(-args.clients // CLIENTS_A_POOL))
        memory = asyncio.run(run(soak, service, args))
        if args.kill_every and not soak.counts["workers killed"]:
            notes.append("note: no worker process was found to kill")
        stop_s = check_leftovers(soak, service, folder, memory)
    text, values = summary(soak, memory, stop_s, notes)
    publish(text, values, args.json)
    return 1 if soak.violations else 0


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = command_line("benchmarks.service.soak", __doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="duration (%(default)s)")
    parser.add_argument("--clients", type=int, default=64, help="concurrent clients (%(default)s)")
    parser.add_argument(
        "--kill-every",
        type=float,
        default=3.0,
        metavar="SECONDS",
        help="mean time between two kills of a worker process, 0 for none (%(default)s)",
    )
    parser.add_argument("--seed", type=int, default=1, help="of all choices (%(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the summary here, too")
    parser.add_argument(
        "service_options",
        nargs="*",
        metavar="-- SERVICE OPTION",
        help="more options for the service, after --, e.g. -- --workers 4",
    )
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
