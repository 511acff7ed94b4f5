"""Measure the environment service: reference replay, a training step, memory, start.

    .venv-bfcl/bin/python -m benchmarks.service.bench [--quick] [--json FILE]

Every task's reference is replayed through the HTTP service by the client, in other processes: one
message a turn that holds the turn's calls, then "Done.", then evaluate and release (7.3 steps
an episode on base tasks; one row has one call a message, 9.4 steps). Every verdict has to be right,
or the benchmark fails. The baseline is bfcl-eval's own execution of the same episodes in one plain
process: no service, no HTTP, no parsing.

Targets stand beside the figures. A missed target does not fail the benchmark: it is no test, and
other work on the machine changes the figures.
"""

import argparse
import contextlib
import dataclasses
import json
import math
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Literal

import httpx

from benchmarks import SERVICE_PYTHON, TRAINER_PYTHON
from benchmarks.output import (
    BenchmarkFailed,
    command_line,
    exit_code,
    machine,
    machine_line,
    publish,
    shown,
)
from benchmarks.service.job import Figures, Job, Script
from benchmarks.service.process import ServiceProcess, cpu_seconds, pss_bytes
from benchmarks.service.references import scripts_of
from benchmarks.service.report import (
    BASE,
    LONG_CONTEXT,
    ROLLOUTS,
    TRAINING,
    TRAINING_TASKS,
    Latency,
    Row,
    measured,
    report,
    targets,
)
from env_service.environments.bfcl.tasks import CATEGORIES, load_tasks
from seal import ROOT

IDLE_EPISODES = 1000


def task_lists(quick: bool) -> dict[str, list[str]]:
    """Task ids of the rows: all base, all long context, and for training as many of each."""
    of = {name: [t for t in load_tasks() if t.startswith(f"{name}_")] for name in CATEGORIES}
    each = TRAINING_TASKS // len(CATEGORIES)
    training = [task for ids in of.values() for task in ids[:: len(ids) // each][:each]]
    every = 10 if quick else 1
    return {
        BASE: of["multi_turn_base"][::every],
        LONG_CONTEXT: of["multi_turn_long_context"][::every],
        TRAINING: [task for task in training for _ in range(2 if quick else ROLLOUTS)],
    }


class Bench:
    """Runs the parts of the benchmark and collects the rows.

    Args:
        url: Where the service listens.
        service: The service, if the benchmark has started it; otherwise its memory and processor
            time are not measured.
        seconds: How long each row replays at least; it ends with a whole pass.
        client_processes: Processes that share the clients of a row.
        folder: Scratch folder.
    """

    def __init__(
        self,
        url: str,
        service: ServiceProcess | None,
        seconds: float,
        client_processes: int,
        folder: Path,
    ) -> None:
        self._url = url
        self._service = service
        self._seconds = seconds
        self._client_processes = client_processes
        self._folder = folder
        self._baselines: dict[str, Row] = {}
        self.rows: list[Row] = []

    def baseline(self, name: str, scripts: Sequence[Script]) -> None:
        """The row of bfcl-eval's own execution."""
        label = f"baseline, {name}"
        figures = self._run(label, [Job("baseline", tuple(scripts), self._seconds)])
        self._baselines[name] = _row(label, 0, scripts, figures)
        self.rows.append(self._baselines[name])

    def replay(self, name: str, scripts: Sequence[Script], clients: int, label: str = "") -> None:
        """A row of the service."""
        jobs = self._jobs("replay", scripts, clients, self._seconds)
        before = self._service_cpu_s()
        figures = self._run(f"{label or name}, {clients} clients", jobs)
        row = _row(label or name, clients, scripts, figures)
        if self._service is not None:
            row = dataclasses.replace(row, service_cpu_s=self._service_cpu_s() - before)
        ratio = row.episodes_per_s / self._baselines[name].episodes_per_s
        self.rows.append(dataclasses.replace(row, ratio=ratio))

    def warm_up(self, scripts: Sequence[Script]) -> None:
        """Replay once without a row."""
        self._run("warm-up", self._jobs("replay", scripts, 8, 0.0))

    def memory(self, scripts: Sequence[Script]) -> dict[str, float]:
        """Bytes of the service before, with and after live idle episodes; none if not ours."""
        if self._service is None:
            return {}
        figures = {"episodes": float(len(scripts)), "before": self._service_bytes()}
        jobs = self._jobs("hold", scripts, 32, 0.0)
        self._run(f"{len(scripts)} idle episodes", jobs)
        figures["with"] = self._service_bytes()
        with httpx.Client(base_url=self._url, trust_env=False, timeout=60.0) as client:
            for job in jobs:
                for index in range(len(job.scripts)):
                    body = {"instance_id": f"{job.name}-0-{index}"}
                    released = client.post("/release", json=body).json()
                    if released != {"success": True, "data": {"released": True}}:
                        raise BenchmarkFailed(f"/release of an idle episode answered {released}")
        figures["after"] = self._service_bytes()
        return figures

    def _jobs(
        self, do: Literal["replay", "hold"], scripts: Sequence[Script], clients: int, seconds: float
    ) -> list[Job]:
        """The job of each process."""
        processes = min(self._client_processes, clients)
        return [
            Job(
                do,
                tuple(scripts[part::processes]),
                seconds,
                self._url,
                f"bench-{secrets.token_hex(4)}",
                clients // processes + (part < clients % processes),
            )
            for part in range(processes)
        ]

    def _run(self, what: str, jobs: Sequence[Job]) -> list[Figures]:
        """Run one process for each job and wait for all of them.

        Raises:
            BenchmarkFailed: One failed, or found wrong verdicts.
        """
        side = "baseline" if jobs[0].do == "baseline" else "client"
        python = SERVICE_PYTHON if side == "baseline" else TRAINER_PYTHON
        with contextlib.ExitStack() as ended:
            ended.enter_context(shown(what))
            processes = []
            for number, job in enumerate(jobs):
                path = self._folder / f"{number}.job"
                path.write_text(json.dumps(dataclasses.asdict(job)), "utf-8")
                process = subprocess.Popen(
                    [str(python), "-m", "benchmarks.service.replay", str(path)],
                    cwd=ROOT,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                )
                ended.enter_context(process)  # waits, after the next line's kill
                ended.callback(process.kill)
                processes.append(process)
            outputs = [process.communicate() for process in processes]
        for process, (_, errors) in zip(processes, outputs, strict=True):
            if process.returncode != 0:
                log = [self._service.log_end()] if self._service is not None else []
                lines = [*errors.strip().splitlines()[-6:], *log]
                raise BenchmarkFailed("\n".join([f"{what}: the {side} failed:", *lines]))
        figures = [Figures(**json.loads(output)) for output, _ in outputs]
        wrong = [line for part in figures for line in part.wrong]
        if wrong:
            raise BenchmarkFailed(
                "\n".join([f"{what}: {len(wrong)} wrong verdicts, the first:", *wrong[:5]])
            )
        return figures

    def _service_cpu_s(self) -> float:
        return cpu_seconds(self._service.processes()) if self._service is not None else math.nan

    def _service_bytes(self) -> float:
        assert self._service is not None
        time.sleep(1.0)
        return float(pss_bytes(self._service.processes()))


def _row(name: str, clients: int, scripts: Sequence[Script], parts: Sequence[Figures]) -> Row:
    """One row of what several processes have measured."""
    ms = {kind: [took for part in parts for took in part.ms[kind]] for kind in parts[0].ms}
    latencies = {kind: Latency.of(took) for kind, took in ms.items()}
    # The baseline sends no steps. It is one process, so it plays whole passes.
    steps = parts[0].passes * sum(len(script.messages) for script in scripts)
    return Row(
        name=name,
        clients=clients,
        # One of several processes may have made a pass more.
        passes=max(part.passes for part in parts),
        episodes=sum(part.episodes for part in parts),
        steps=len(ms["step"]) if ms else steps,
        wall_s=max(part.wall_s for part in parts),
        create=latencies.get("create"),
        step=latencies.get("step"),
        evaluate=latencies.get("evaluate"),
        client_cpu_s=sum(part.cpu_s for part in parts),
    )


def measure(bench: Bench, quick: bool) -> dict[str, float]:
    """All rows, and the memory; in the order of the report."""
    lists = task_lists(quick)
    scripts = {name: scripts_of(ids) for name, ids in lists.items()}
    everything = scripts_of(list(load_tasks()))
    bench.warm_up(everything[:: 100 if quick else 25])
    for name, played in scripts.items():
        bench.baseline(name, played)
    for clients in (1, 8, 32, 128, 256):
        bench.replay(BASE, scripts[BASE], clients)
    bench.replay(BASE, scripts_of(lists[BASE], one_call=True), 32, f"{BASE}, one call a message")
    bench.replay(LONG_CONTEXT, scripts[LONG_CONTEXT], 32)
    for clients in (32, 256):
        bench.replay(TRAINING, scripts[TRAINING], clients)
    idle = 100 if quick else IDLE_EPISODES
    return bench.memory([everything[index * 7 % len(everything)] for index in range(idle)])


def main(argv: Sequence[str] | None = None) -> int:
    """Read the command line, measure, print."""
    args = _arguments(argv)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    return exit_code("bench", partial(_run, args))


def _run(args: argparse.Namespace) -> int:
    about = {**machine(), "service_options": args.service_options, "quick": args.quick}
    seconds = 1.0 if args.quick else args.seconds
    service = None
    with contextlib.ExitStack() as stack:
        if args.url is None:
            options = ["--log-level=WARNING", *args.service_options]
            service = stack.enter_context(ServiceProcess(options))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        url = service.url if service is not None else args.url
        bench = Bench(url, service, seconds, args.client_processes, folder)
        memory = measure(bench, args.quick)
    goals = targets(bench.rows, memory, service.ready_s if service is not None else None)
    text = report(bench.rows, memory, goals)
    content = {**about, **measured(bench.rows, memory, goals)}
    publish(f"{machine_line(about)}\n{text}", content, args.json)
    return 0


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = command_line("benchmarks.service.bench", __doc__)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here, too")
    parser.add_argument(
        "--seconds",
        type=float,
        default=10.0,
        help="how long each row replays at least; it ends with a whole pass (%(default)s)",
    )
    parser.add_argument("--quick", action="store_true", help="a smoke test of about 15 seconds")
    parser.add_argument(
        "--url",
        help="measure a service that runs already; its memory, processor time and start are then "
        "not measured (default: start a service, and end it)",
    )
    parser.add_argument(
        "--client-processes",
        type=int,
        default=2,
        help="processes that share the clients of a row; use more if the clients limit the "
        "figures: their processor time is then close to the row's wall time times their number "
        "(%(default)s)",
    )
    parser.add_argument(
        "service_options",
        nargs="*",
        metavar="-- SERVICE OPTION",
        help="options for the service that is started, after --, e.g. -- --workers 4",
    )
    args = parser.parse_args(argv)
    if args.url is not None and args.service_options:
        parser.error("--url and options of the service exclude each other")
    if args.client_processes < 1:
        parser.error("--client-processes must be 1 or more")
    return args


if __name__ == "__main__":
    sys.exit(main())
