"""The clients of the soak: what they do to the service, and what they count and find wrong.

In: a running service, and a process that computes official verdicts. Out: counts and violations.
One `Soak` is one run.
"""

import asyncio
import contextlib
import itertools
import random
import re
import signal
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import httpx
import psutil

from benchmarks.service.process import ServiceProcess
from benchmarks.service.soak_episodes import TOOL_FORMAT, SoakEpisode, draw, official_verdict

IDLE_TIMEOUT_S = 20.0
"""Of the service: an abandoned episode is released after it."""
ANSWER_LIMIT_S = 60.0
"""A request without an answer after this long, repeats included, is a violation."""
SLOW_EVERY_S = 15.0
"""Seconds between episodes with a slow call: each may cost a worker."""
STOPPED_SHARE = 0.2
"""Share of the chosen worker processes that are stopped (SIGSTOP) instead of killed."""

# Probability of each, for a request or a step.
GIVES_UP, SENDS_TWICE, SENDS_AT_ONCE, CREATES_TWICE = 0.04, 0.05, 0.02, 0.05
EVALUATES_EARLY, ABANDONS = 0.02, 0.005

CLIENTS_A_POOL = 8
"""Clients for each pool of connections."""

NOT_NOW = ("instance_busy", "too_many_episodes")
"""Refusals after which a client asks again, as it does after every 503."""


class Violation(Exception):
    """The service broke a rule; the message says which."""


class Soak:
    """One run.

    `verdicts` is a process that computes official verdicts. The seed is that of the clients'
    choices; timing differs, so no two runs are the same.
    """

    def __init__(
        self, service: ServiceProcess, verdicts: ProcessPoolExecutor, seed: int, pools: int
    ) -> None:
        self._service = service
        self._verdicts = verdicts
        self._seed = seed
        self._numbers = itertools.count()
        self._next_slow = time.monotonic() + SLOW_EVERY_S / 2
        # Several small pools: httpcore looks at every connection of a pool before each request.
        self._pools = [
            httpx.AsyncClient(
                base_url=service.url,
                timeout=ANSWER_LIMIT_S,
                trust_env=False,
                limits=httpx.Limits(max_connections=CLIENTS_A_POOL),
            )
            for _ in range(pools)
        ]
        self.counts: Counter[str] = Counter()
        self.violations: list[str] = []
        self.slowest_s = 0.0

    async def client(self, deadline: float) -> None:
        """Play one episode after the other."""
        while time.monotonic() < deadline:
            number = next(self._numbers)
            rng = random.Random(f"{self._seed}/{number}")
            slow = time.monotonic() > self._next_slow
            if slow:
                self._next_slow = time.monotonic() + SLOW_EVERY_S
            episode = draw(rng, slow)
            try:
                await self._play(f"soak-{number}", episode, rng)
            except Violation as violation:
                self.violated(f"episode {number}, {episode.task_id}: {violation}")

    def violated(self, text: str) -> None:
        """Count a violation."""
        self.counts["violations"] += 1
        self.violations.append(text)

    async def _play(self, instance_id: str, episode: SoakEpisode, rng: random.Random) -> None:
        official: asyncio.Future[bool] | None = None
        if episode.slow_message is None:  # bfcl-eval would not end such a call
            official = asyncio.get_running_loop().run_in_executor(
                self._verdicts, official_verdict, episode.task_id, episode.turns
            )
        try:
            await self._create(instance_id, episode.task_id, rng)
            for number, text in enumerate(episode.messages):
                reply = await self._step(instance_id, number, text, rng)
                if number == episode.slow_message:
                    self._check_stopped(reply)
                if rng.random() < ABANDONS:
                    self.counts["episodes abandoned"] += 1
                    return
                if rng.random() < EVALUATES_EARLY:
                    await self._ok("/evaluate", {"instance_id": instance_id}, rng)
                    self.counts["evaluated early"] += 1
            if not reply["is_terminated"]:
                raise Violation("all messages were sent and the episode is not over")
            verdict = await self._ok("/evaluate", {"instance_id": instance_id}, rng)
            await self._ok("/release", {"instance_id": instance_id}, rng)
        finally:
            expected = None if official is None else float(await official)
        self.counts["episodes"] += 1
        self.counts["episodes passed"] += verdict["accuracy"] == 1.0
        if expected is None:
            self.counts["episodes with a slow call"] += 1
        elif verdict["accuracy"] != expected:
            raise Violation(
                f"accuracy {verdict['accuracy']}, bfcl-eval says {expected}; calls: {episode.turns}"
            )

    def _check_stopped(self, reply: dict[str, Any]) -> None:
        answers = [str(message["content"]) for message in reply["state"]]
        if not any("error" in text.lower() for text in answers):
            raise Violation(f"a call that takes too long got {' '.join(answers)[:200]!r}, no error")

    async def _create(self, instance_id: str, task_id: str, rng: random.Random) -> None:
        body = {
            "env_type": "bfcl",
            "instance_id": instance_id,
            "task_id": task_id,
            "params": {"tool_format": TOOL_FORMAT, "tools": "structured"},
        }
        status, first = await self._ask("/create", body, rng)
        if status != 200 and _code(first) != "instance_exists":
            raise Violation(f"/create answered {status} {str(first)[:300]}")
        if rng.random() < CREATES_TWICE:
            self.counts["creates sent twice"] += 1
            again, second = await self._ask("/create", body, rng)
            refused = _code(second) == "instance_exists"
            if not refused and (again != 200 or (status == 200 and second != first)):
                raise Violation(f"a second /create answered {again} {str(second)[:300]}")

    async def _step(
        self, instance_id: str, number: int, text: str, rng: random.Random
    ) -> dict[str, Any]:
        body = {
            "instance_id": instance_id,
            "messages": {"role": "assistant", "content": text},
            "params": {"step": number},
        }
        chance = rng.random()
        if chance < SENDS_AT_ONCE:
            self.counts["steps sent twice at once"] += 1
            replies = await asyncio.gather(*(self._ok("/step", body, rng) for _ in range(2)))
        elif chance < SENDS_AT_ONCE + SENDS_TWICE:
            self.counts["steps sent twice"] += 1
            replies = [await self._ok("/step", body, rng) for _ in range(2)]
        else:
            replies = [await self._ok("/step", body, rng)]
        self.counts["steps"] += 1
        if any(reply != replies[0] for reply in replies):
            raise Violation(f"step {number} sent twice got two answers: {str(replies)[:600]}")
        return replies[0]

    async def _ok(self, path: str, body: dict[str, Any], rng: random.Random) -> dict[str, Any]:
        status, answer = await self._ask(path, body, rng)
        if status != 200 or not answer.get("success"):
            raise Violation(f"{path} answered {status} {str(answer)[:300]}")
        return dict(answer["data"])

    async def _ask(
        self, path: str, body: dict[str, Any], rng: random.Random
    ) -> tuple[int, dict[str, Any]]:
        """Send until there is an answer that is not "ask again"."""
        pool = rng.choice(self._pools)
        started = time.monotonic()
        patience = rng.uniform(0.001, 0.01) if rng.random() < GIVES_UP else ANSWER_LIMIT_S
        while time.monotonic() - started < ANSWER_LIMIT_S:
            try:
                async with asyncio.timeout(patience):
                    response = await pool.post(path, json=body)
            except TimeoutError:
                self.counts["requests given up"] += 1
                patience = ANSWER_LIMIT_S
                continue
            except httpx.TransportError as error:
                self.counts[f"no answer ({type(error).__name__})"] += 1
                await asyncio.sleep(0.2)
                continue
            answer = _parsed(response)
            if response.status_code != 503 and _code(answer) not in NOT_NOW:
                self.counts["requests"] += 1
                self.slowest_s = max(self.slowest_s, time.monotonic() - started)
                return response.status_code, answer
            self.counts[f"answered {response.status_code} {_code(answer)}"] += 1
            await asyncio.sleep(0.05)
        raise Violation(f"{path} got no answer for {ANSWER_LIMIT_S:.0f} s")

    async def kill_workers(self, every_s: float, deadline: float) -> None:
        """Kill a random worker process every few seconds, or stop it for good."""
        rng = random.Random(f"{self._seed}/kills")
        while True:
            await asyncio.sleep(every_s * rng.uniform(0.5, 1.5))
            if time.monotonic() > deadline:
                return
            workers = self._service.workers()
            if workers:
                stopped = rng.random() < STOPPED_SHARE
                with contextlib.suppress(psutil.NoSuchProcess):
                    chosen = rng.choice(workers)
                    chosen.send_signal(signal.SIGSTOP if stopped else signal.SIGKILL)
                    self.counts["workers stopped" if stopped else "workers killed"] += 1

    async def live_episodes(self) -> int:
        """What the service counts."""
        response = await self._pools[0].get("/metrics")
        (counted,) = re.findall(r"^env_service_episodes_live (\S+)", response.text, re.MULTILINE)
        return int(float(counted))

    async def forget(self) -> None:
        """Wait until the abandoned episodes have expired; none may be left."""
        deadline = time.monotonic() + IDLE_TIMEOUT_S * 1.5 + 5
        while (live := await self.live_episodes()) and time.monotonic() < deadline:
            await asyncio.sleep(0.5)
        if live:
            self.violated(f"{live} episodes are live after the end")

    async def close(self) -> None:
        """Close the connections."""
        for pool in self._pools:
            await pool.aclose()


def _code(answer: dict[str, Any]) -> str:
    error = answer.get("error")
    return str(error.get("code")) if isinstance(error, dict) else ""


def _parsed(response: httpx.Response) -> dict[str, Any]:
    try:
        answer = response.json()
    except ValueError:
        answer = None
    return answer if isinstance(answer, dict) else {"not an object": response.text[:300]}
