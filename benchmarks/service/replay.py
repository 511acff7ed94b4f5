"""The two sides that the benchmark compares, each in a process of its own.

`python -m benchmarks.service.replay JOB` reads a `Job` from a file (JSON) and writes its `Figures`
to standard output (JSON). Jobs of a client play scripts against a service with
`seal.client.client`, in the trainer's environment; in the baseline bfcl-eval executes the same
references, in the service's environment. Neither environment has the packages of the other one, so
each side imports what it needs where it starts.
"""

import asyncio
import contextlib
import dataclasses
import json
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.service.job import Figures, Job, Script


class Replay:
    """The client's side: plays scripts and notes how long each request took."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._figures = Figures(ms={"create": [], "step": [], "evaluate": []})
        self._client: Any = None

    async def run(self) -> Figures:
        """Whole passes over the scripts until the time is over."""
        from seal.client.client import EnvironmentClient

        async with EnvironmentClient(self._job.url, "bfcl") as self._client:
            await self._client.health()
            for number in self._figures.measured_passes(self._job):
                await self._pass(number)
        return self._figures

    async def _pass(self, number: int) -> None:
        left = iter(enumerate(self._job.scripts))
        do = self._play if self._job.do == "replay" else self._hold

        async def client() -> None:
            for index, script in left:
                await do(f"{self._job.name}-{number}-{index}", script)

        async with asyncio.TaskGroup() as group:
            for _ in range(self._job.clients):
                group.create_task(client())

    async def _play(self, instance_id: str, script: Script) -> None:
        reply = await self._hold(instance_id, script)
        for number, text in enumerate(script.messages[1:], 1):
            reply = await self._say(instance_id, number, text)
        with self._timed("evaluate"):
            verdict = await self._client.evaluate(instance_id)
        await self._client.release(instance_id)
        if verdict.accuracy != script.expected or not reply.is_terminated:
            self._figures.wrong.append(
                f"{script.task_id}: accuracy {verdict.accuracy}, expected {script.expected}; "
                f"episode over: {reply.is_terminated}"
            )

    async def _hold(self, instance_id: str, script: Script) -> Any:
        from seal.client.client import Task

        task = Task(script.task_id, "eval", "bench", None, "hermes")
        with self._timed("create"):
            await self._client.create(instance_id, task)
        return await self._say(instance_id, 0, script.messages[0])

    async def _say(self, instance_id: str, number: int, text: str) -> Any:
        message = {"role": "assistant", "content": text}
        with self._timed("step"):
            return await self._client.step(instance_id, number, message)

    @contextlib.contextmanager
    def _timed(self, kind: str) -> Iterator[None]:
        started = time.perf_counter()
        yield
        self._figures.ms[kind].append((time.perf_counter() - started) * 1000)


def official_execution(job: Job) -> Figures:
    """The baseline's side: bfcl-eval executes the calls of each turn, then its checker judges."""
    from benchmarks.service import references
    from env_service.environments.bfcl.tasks import load_tasks

    tasks = [load_tasks()[script.task_id] for script in job.scripts]
    figures = Figures()
    for _ in figures.measured_passes(job):
        for task in tasks:
            for calls in filter(None, task.reference):
                references.execute(task, calls)
            verdict = references.verdict(task, references.in_one_step(task.reference))
            if not verdict["valid"]:
                figures.wrong.append(
                    f"{task.task_id}: the official checker says {verdict['error_type']}"
                )
    return figures


def main(argv: list[str]) -> int:
    """Do the job of a file."""
    # Ctrl-C reaches the benchmark, too, which then ends this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    job = Job.read(Path(*argv))
    figures = official_execution(job) if job.do == "baseline" else asyncio.run(Replay(job).run())
    json.dump(dataclasses.asdict(figures), sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
