"""The only dialogue loop of the project: one task, one policy, from /create to the verdict.

What enters: a client, a task, and `generate`, the policy as a function. What leaves: an `Episode`
with the reward, the labels and the whole dialogue. Who calls it: the trainer's agent loop (with
vLLM behind `generate`). Tokens are not its business.
"""

import contextlib
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from seal.environment.client import EnvironmentClient, EnvironmentFault
from seal.wire import Message, Mode, ToolDoc, TurnDiagnosis, TurnProgress

Generate = Callable[[Sequence[Message], Sequence[ToolDoc]], Awaitable[str | Message | None]]
"""The policy: dialogue so far and tool docs -> assistant text, or None when out of tokens.

Where a server has already read the calls out of the text, the assistant message with `tool_calls`.

Between two calls the dialogue only grows, so an implementation may keep tokens of what it saw.
"""


@dataclass(frozen=True)
class Task:
    """What to roll out."""

    task_id: str
    """Task of the environment, e.g. multi_turn_base_17."""
    mode: Mode
    """Mode "train" shows the run's learning interface, "eval" the untouched benchmark."""
    run_id: str
    """The run whose interface mode "train" shows."""
    interface_version: int | None
    """Which of its versions; None for the newest."""
    tool_format: str
    """How the policy writes tool calls (seal.formats)."""


@dataclass(frozen=True)
class Episode:
    """A finished rollout."""

    reward: float
    """Terminal reward r in {0.0, 1.0} of the official verifier."""
    turns: tuple[TurnDiagnosis, ...]
    """One label a turn that was begun."""
    category: str
    """Category of the task."""
    interface_version: int
    """Which learning interface the policy was shown; 0 is the original benchmark."""
    messages: tuple[Message, ...]
    """The whole dialogue as the policy saw it."""
    step_turns: tuple[int, ...]
    """Index of the turn that each assistant message belongs to, in order."""
    progress: TurnProgress
    """How many of the task's turns passed."""
    truncated: bool
    """Ended by a step limit or by the policy's token budget."""
    environment_s: float
    """Seconds spent waiting for the service."""


async def run_episode(client: EnvironmentClient, task: Task, generate: Generate) -> Episode:
    """Roll out one task and have it judged.

    Raises:
        EnvironmentFault: The service failed; nothing of this rollout may be used.
    """
    instance_id = uuid.uuid4().hex
    started = time.perf_counter()
    created = await client.create(
        instance_id,
        task.task_id,
        mode=task.mode,
        run_id=task.run_id,
        interface_version=task.interface_version,
        tool_format=task.tool_format,
    )
    waited = time.perf_counter() - started
    messages = list(created.state)
    turn, terminated, truncated = 0, False, False
    step_turns: list[int] = []
    try:
        while not terminated:
            said = await generate(messages, created.tools)
            if said is None:
                truncated = True
                break
            answer = {"role": "assistant", "content": said} if isinstance(said, str) else said
            started = time.perf_counter()
            reply = await client.step(instance_id, len(step_turns), answer)
            waited += time.perf_counter() - started
            step_turns.append(turn)
            turn = reply.turn
            messages += [answer, *reply.state]
            terminated, truncated = reply.terminated, reply.truncated
        started = time.perf_counter()
        verdict = await client.evaluate(instance_id)
        waited += time.perf_counter() - started
    finally:
        # A rollout that failed must not stay in the service; that it failed is what to report.
        with contextlib.suppress(EnvironmentFault):
            await client.release(instance_id)
    return Episode(
        reward=verdict.accuracy,
        turns=verdict.turns,
        category=created.category,
        interface_version=created.interface_version,
        messages=tuple(messages),
        step_turns=tuple(step_turns),
        progress=verdict.progress,
        truncated=truncated,
        environment_s=waited,
    )
