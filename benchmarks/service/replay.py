"""The two sides that the benchmark compares, each run by it in a process of its own.

`python -m benchmarks.service.replay client|baseline JOB` reads a job (JSON) and writes its figures to
standard output (JSON). `client` plays scripts against a service with `seal.environment.client`, in the
trainer's environment; `baseline` has bfcl-eval execute the same references, in the service's.
Neither environment has what the other one needs, so each part imports it where it starts.
"""

import asyncio
import contextlib
import json
import signal
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Script:
    """What the client says in an episode, and the verdict it must get."""

    task_id: str
    messages: tuple[str, ...]
    """Text of each assistant message."""
    expected: float
    """Accuracy."""


class Replay:
    """The client's part: plays scripts and notes how long each request took."""

    def __init__(self, job: dict[str, Any]) -> None:
        self._job = job
        self._scripts = [Script(**script) for script in job["scripts"]]
        self._ms: dict[str, list[float]] = {"create": [], "step": [], "evaluate": []}
        self._wrong: list[str] = []
        self._client: Any = None

    async def run(self) -> dict[str, Any]:
        """Whole passes over the scripts until the time is over."""
        from seal.environment.client import EnvironmentClient

        async with EnvironmentClient(self._job["url"], "bfcl") as self._client:
            await self._client.health()
            cpu_started = time.process_time()
            started, passes = time.perf_counter(), 0
            while not passes or time.perf_counter() - started < self._job["seconds"]:
                await self._pass(passes)
                passes += 1
            wall_s = time.perf_counter() - started
        return {
            "wall_s": wall_s,
            "passes": passes,
            "episodes": passes * len(self._scripts),
            "ms": self._ms,
            "wrong": self._wrong,
            "cpu_s": time.process_time() - cpu_started,
        }

    async def _pass(self, number: int) -> None:
        left = iter(enumerate(self._scripts))
        kinds: dict[str, Callable[[str, Script], Coroutine[Any, Any, Any]]] = {
            "replay": self._play,
            "hold": self._hold,
        }
        do = kinds[self._job["do"]]

        async def client() -> None:
            for index, script in left:
                await do(f"{self._job['name']}-{number}-{index}", script)

        async with asyncio.TaskGroup() as group:
            for _ in range(self._job["clients"]):
                group.create_task(client())

    async def _play(self, instance_id: str, script: Script) -> None:
        reply = await self._hold(instance_id, script)
        for number, text in enumerate(script.messages[1:], 1):
            reply = await self._say(instance_id, number, text)
        with self._timed("evaluate"):
            verdict = await self._client.evaluate(instance_id)
        await self._client.release(instance_id)
        if verdict.accuracy != script.expected or not reply.terminated:
            self._wrong.append(
                f"{script.task_id}: accuracy {verdict.accuracy}, expected {script.expected}; "
                f"episode over: {reply.terminated}"
            )

    async def _hold(self, instance_id: str, script: Script) -> Any:
        with self._timed("create"):
            await self._client.create(
                instance_id,
                script.task_id,
                mode="eval",
                run_id="bench",
                interface_version=None,
                tool_format="hermes",
            )
        return await self._say(instance_id, 0, script.messages[0])

    async def _say(self, instance_id: str, number: int, text: str) -> Any:
        with self._timed("step"):
            return await self._client.step(
                instance_id, number, {"role": "assistant", "content": text}
            )

    @contextlib.contextmanager
    def _timed(self, kind: str) -> Iterator[None]:
        started = time.perf_counter()
        yield
        self._ms[kind].append((time.perf_counter() - started) * 1000)


def official_execution(job: dict[str, Any]) -> dict[str, Any]:
    """The baseline's part: bfcl-eval runs the calls of each turn, and at the end its checker."""
    from bfcl_eval.eval_checker.multi_turn_eval import multi_turn_checker, multi_turn_utils

    from env_service.environments.bfcl.tasks import load_tasks

    tasks = [load_tasks()[script["task_id"]] for script in job["scripts"]]
    wrong: list[str] = []
    kept = vars(multi_turn_utils)
    started, passes = time.perf_counter(), 0
    cpu_started = time.process_time()
    while not passes or time.perf_counter() - started < job["seconds"]:
        for task in tasks:
            config, classes = dict(task.initial_config), list(task.involved_classes)
            turns = [list(turn) for turn in task.reference]
            for calls in filter(None, turns):
                multi_turn_utils.execute_multi_turn_func_call(
                    calls, config, classes, "bench", task.task_id, task.long_context
                )
            entry = {"id": task.task_id, "initial_config": config, "involved_classes": classes}
            steps = [[calls] if calls else [] for calls in turns]
            verdict = multi_turn_checker.multi_turn_checker(
                steps, turns, entry, task.category, "bench"
            )
            if not verdict["valid"]:
                wrong.append(f"{task.task_id}: the official checker says {verdict['error_type']}")
            # It would keep every instance for ever, and the next pass would go on with them.
            for name in [name for name in kept if name.endswith("_instance")]:
                del kept[name]
        passes += 1
    return {
        "wall_s": time.perf_counter() - started,
        "passes": passes,
        "episodes": passes * len(tasks),
        "ms": {},
        "wrong": wrong,
        "cpu_s": time.process_time() - cpu_started,
    }


def main(argv: list[str]) -> int:
    """Do one part of a job."""
    # Ctrl-C is for the benchmark, which then ends this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    part, path = argv
    job = json.loads(Path(path).read_text("utf-8"))
    figures = asyncio.run(Replay(job).run()) if part == "client" else official_execution(job)
    json.dump(figures, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
