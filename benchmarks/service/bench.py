"""Measure the environment service: reference replay, a training step, memory, start.

Every task's reference is replayed through the HTTP service by the client, in other processes: one
message a turn that holds the turn's calls, then "Done.", then evaluate and release (7.3 steps
an episode on base tasks; one row has one call a message, 9.4 steps). Every verdict has to be right,
or the benchmark fails. The baseline is bfcl-eval's own execution of the same episodes in one plain
process: no service, no HTTP, no parsing.

Targets stand beside the figures. A missed one does not fail the benchmark: it is no test, and other
work on the machine changes the figures.
"""

import argparse
import contextlib
import dataclasses
import json
import math
import os
import platform
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx

from benchmarks.service.process import (
    ROOT,
    SERVICE_PYTHON,
    Progress,
    ServiceFailed,
    ServiceProcess,
    cpu_seconds,
    interrupt_on_sigterm,
    pss_bytes,
)
from benchmarks.service.replay import Script
from benchmarks.service.report import (
    BASE,
    LONG_CONTEXT,
    ROLLOUTS,
    TRAINING,
    TRAINING_TASKS,
    Latency,
    Row,
    as_json,
    report,
    targets,
)

CLIENT_PYTHON = ROOT / ".venv/bin/python"
BEFORE_ITS_REVEAL = "multi_turn_miss_func_49"
"""Its reference calls a tool before it is revealed, so no episode can follow it: accuracy 0."""

IDLE_EPISODES = 1000


class BenchmarkFailed(Exception):
    """Something that was measured gave a wrong result, or could not be measured."""


def scripts_of(task_ids: Sequence[str], one_call: bool = False) -> list[Script]:
    """References as messages: one for all calls of a turn, or one for each call."""
    from env_service.environments.bfcl.tasks import load_tasks, reference_calls
    from seal.formats import render_calls

    made = []
    for task_id in task_ids:
        messages = []
        for calls in reference_calls(load_tasks()[task_id]):
            groups = [[call] for call in calls] if one_call else [calls] if calls else []
            messages += [*(render_calls(group, "hermes") for group in groups), "Done."]
        expected = 0.0 if task_id == BEFORE_ITS_REVEAL else 1.0
        made.append(Script(task_id, tuple(messages), expected))
    return made


def task_lists(quick: bool) -> dict[str, list[str]]:
    """Task ids of the rows: all base, all long context, and for training as many of each."""
    from env_service.environments.bfcl.tasks import CATEGORIES, load_tasks

    of = {name: [t for t in load_tasks() if t.startswith(f"{name}_")] for name in CATEGORIES}
    each = TRAINING_TASKS // len(CATEGORIES)
    training = [task for ids in of.values() for task in ids[:: len(ids) // each][:each]]
    every = 10 if quick else 1
    return {
        BASE: of["multi_turn_base"][::every],
        LONG_CONTEXT: of["multi_turn_long_context"][::every],
        TRAINING: [task for task in training for _ in range(2 if quick else ROLLOUTS)],
        "all": list(load_tasks()),
    }


class Bench:
    """Runs the parts of the benchmark and collects the rows.

    Args:
        url: Where the service listens.
        service: The service, if it is ours; otherwise its memory and processor time stay unknown.
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
        self._progress = Progress()
        self._baselines: dict[str, Row] = {}
        self.rows: list[Row] = []
        self.owns_service = service is not None

    def baseline(self, name: str, scripts: Sequence[Script]) -> None:
        """The row of bfcl-eval's own execution."""
        job = {"scripts": _plain(scripts), "seconds": self._seconds}
        (figures,) = self._run("baseline", f"baseline, {name}", [job])
        row = self._row(f"baseline, {name}", 0, scripts, [figures])
        self._baselines[name] = row
        self.rows.append(row)

    def replay(self, name: str, scripts: Sequence[Script], clients: int, label: str = "") -> Row:
        """A row of the service."""
        jobs = self._jobs("replay", scripts, clients, self._seconds)
        before = self._service_cpu_s()
        figures = self._run("client", f"{label or name}, {clients} clients", jobs)
        row = self._row(label or name, clients, scripts, figures)
        if self._service is not None:
            row = dataclasses.replace(row, service_cpu_s=self._service_cpu_s() - before)
        ratio = row.episodes_per_s / self._baselines[name].episodes_per_s
        self.rows.append(dataclasses.replace(row, ratio=ratio))
        return self.rows[-1]

    def warm_up(self, scripts: Sequence[Script]) -> None:
        """Replay once without a row."""
        self._run("client", "warm-up", self._jobs("replay", scripts, 8, 0.0))

    def memory(self, scripts: Sequence[Script]) -> dict[str, float]:
        """Bytes of the service before, with and after live idle episodes."""
        assert self._service is not None
        figures = {"episodes": float(len(scripts)), "before": self._service_bytes()}
        jobs = self._jobs("hold", scripts, 32, 0.0)
        self._run("client", f"{len(scripts)} idle episodes", jobs)
        figures["with"] = self._service_bytes()
        with httpx.Client(base_url=self._url, trust_env=False, timeout=60.0) as client:
            for job in jobs:
                for index in range(len(job["scripts"])):
                    body = {"instance_id": f"{job['name']}-0-{index}"}
                    released = client.post("/release", json=body).json()
                    if released != {"success": True, "data": {"released": True}}:
                        raise BenchmarkFailed(f"/release of an idle episode answered {released}")
        figures["after"] = self._service_bytes()
        return figures

    def _jobs(
        self, do: str, scripts: Sequence[Script], clients: int, seconds: float
    ) -> list[dict[str, Any]]:
        processes = min(self._client_processes, clients)
        return [
            {
                "do": do,
                "url": self._url,
                "name": f"bench-{secrets.token_hex(4)}",
                "scripts": _plain(scripts[part::processes]),
                "clients": clients // processes + (part < clients % processes),
                "seconds": seconds,
            }
            for part in range(processes)
        ]

    def _run(self, part: str, what: str, jobs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Run one process for each job and wait for all of them.

        Raises:
            BenchmarkFailed: One failed, or found wrong verdicts.
        """
        python = CLIENT_PYTHON if part == "client" else SERVICE_PYTHON
        outs = [self._folder / f"{number}.out" for number in range(len(jobs))]
        started, processes = time.monotonic(), []
        try:
            for job, out in zip(jobs, outs, strict=True):
                path = out.with_suffix(".job")
                path.write_text(json.dumps(job), "utf-8")
                with out.open("w") as stdout, out.with_suffix(".err").open("w") as stderr:
                    command = [str(python), "-m", "benchmarks.service.replay", part, str(path)]
                    processes.append(
                        subprocess.Popen(command, cwd=ROOT, stdout=stdout, stderr=stderr)
                    )
            while any(process.poll() is None for process in processes):
                self._progress.show(f"{what}: {time.monotonic() - started:.0f} s")
                time.sleep(0.1)
        finally:
            for process in processes:
                process.kill()
                process.wait()
            self._progress.clear()
        for process, out in zip(processes, outs, strict=True):
            if process.returncode != 0:
                said = out.with_suffix(".err").read_text("utf-8").strip().splitlines()[-6:]
                log = self._service.log_end() if self._service is not None else ""
                raise BenchmarkFailed("\n".join([f"{what}: the {part} failed:", *said, log]))
        figures = [json.loads(out.read_text("utf-8")) for out in outs]
        wrong = [line for part_figures in figures for line in part_figures["wrong"]]
        if wrong:
            raise BenchmarkFailed(
                "\n".join([f"{what}: {len(wrong)} wrong verdicts, the first:", *wrong[:5]])
            )
        return figures

    def _row(
        self, name: str, clients: int, scripts: Sequence[Script], figures: list[dict[str, Any]]
    ) -> Row:
        ms = {
            kind: [took for part in figures for took in part["ms"][kind]]
            for kind in figures[0]["ms"]
        }
        latencies = {kind: Latency.of(took) for kind, took in ms.items()}
        # The baseline has no steps of its own, but it is one process: whole passes.
        steps = figures[0]["passes"] * sum(len(script.messages) for script in scripts)
        return Row(
            name=name,
            clients=clients,
            # With several processes some may have made a pass more.
            passes=max(part["passes"] for part in figures),
            episodes=sum(part["episodes"] for part in figures),
            steps=len(ms["step"]) if ms else steps,
            wall_s=max(part["wall_s"] for part in figures),
            create=latencies.get("create"),
            step=latencies.get("step"),
            evaluate=latencies.get("evaluate"),
            client_cpu_s=sum(part["cpu_s"] for part in figures),
        )

    def _service_cpu_s(self) -> float:
        return cpu_seconds(self._service.processes()) if self._service is not None else math.nan

    def _service_bytes(self) -> float:
        assert self._service is not None
        time.sleep(1.0)
        return float(pss_bytes(self._service.processes()))


def _plain(scripts: Sequence[Script]) -> list[dict[str, Any]]:
    return [dataclasses.asdict(script) for script in scripts]


def measure(bench: Bench, quick: bool) -> dict[str, float]:
    """All rows, and the memory; in the order of the report."""
    lists = task_lists(quick)
    scripts = {name: scripts_of(lists[name]) for name in (BASE, LONG_CONTEXT, TRAINING)}
    everything = scripts_of(lists["all"])
    bench.warm_up(everything[:: 100 if quick else 25])
    for name, played in scripts.items():
        bench.baseline(name, played)
    for clients in (1, 8, 32, 128, 256):
        bench.replay(BASE, scripts[BASE], clients)
    bench.replay(BASE, scripts_of(lists[BASE], one_call=True), 32, f"{BASE}, one call a message")
    bench.replay(LONG_CONTEXT, scripts[LONG_CONTEXT], 32)
    for clients in (32, 256):
        bench.replay(TRAINING, scripts[TRAINING], clients)
    if not bench.owns_service:
        return {}
    idle = 100 if quick else IDLE_EPISODES
    return bench.memory([everything[index * 7 % len(everything)] for index in range(idle)])


def main(argv: Sequence[str] | None = None) -> int:
    """Read the command line, measure, print."""
    args = _arguments(argv)
    interrupt_on_sigterm()
    about = {
        "cores": len(os.sched_getaffinity(0)),
        "load_before": os.getloadavg()[0],
        "python": platform.python_version(),
        "service_options": args.service_options,
        "quick": args.quick,
    }
    seconds = 1.0 if args.quick else args.seconds
    service = None
    try:
        with contextlib.ExitStack() as stack:
            if args.url is None:
                options = ["--log-level=WARNING", *args.service_options]
                service = stack.enter_context(ServiceProcess(options))
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            url = service.url if service is not None else args.url
            bench = Bench(url, service, seconds, args.client_processes, folder)
            memory = measure(bench, args.quick)
    except (BenchmarkFailed, ServiceFailed) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("bench: interrupted", file=sys.stderr)
        return 130
    goals = targets(bench.rows, memory, service.ready_s if service is not None else None)
    print(f"{about['cores']} cores, load {about['load_before']:.1f} before the benchmark\n")
    print(report(bench.rows, memory, goals))
    if args.json:
        args.json.write_text(as_json(bench.rows, memory, goals, about), "utf-8")
    return 0


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
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
        "not measured (default: start one, and end it)",
    )
    parser.add_argument(
        "--client-processes",
        type=int,
        default=2,
        help="processes that share the clients of a row; more where they are what bounds the "
        "figures: their processor time is then near the row's wall time, times their number "
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
