"""The only dialogue loop of the project: one task, one policy, from /create to the verdict.

In: a client, a task, and `generate`, the policy as a function. Out: an `Episode` with the reward,
the labels and the whole dialogue. Nothing here knows of tokens.
"""

import contextlib
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from seal.client.client import EnvironmentClient, EnvironmentFault, Task
from seal.wire import ExitStatus, Message, TokenLimit, ToolDoc, TurnDiagnosis, TurnProgress


@dataclass(frozen=True)
class OutOf:
    """In place of a message: the policy has no token left for one."""

    limit: TokenLimit
    """The limit that it has reached."""


Generate = Callable[[Sequence[Message], Sequence[ToolDoc]], Awaitable[str | Message | OutOf]]
"""The policy: dialogue so far and tool docs -> assistant text, or what it is out of.

If a server has already parsed the calls, it returns the assistant message with `tool_calls`.
Between two calls the dialogue only grows, so an implementation may keep the tokens of earlier
messages.
"""


@dataclass(frozen=True)
class Episode:
    """A finished rollout."""

    reward: float
    """Terminal reward r in {0.0, 1.0} of the official verifier."""
    turns: tuple[TurnDiagnosis, ...]
    """One label for each turn that began."""
    category: str
    """Category of the task."""
    interface_version: int
    """Version of the learning interface that the policy was shown; 0 is the original benchmark."""
    messages: tuple[Message, ...]
    """The whole dialogue as the policy saw it."""
    step_turns: tuple[int, ...]
    """Index of the turn that each assistant message belongs to, in order."""
    progress: TurnProgress
    """How many of the task's turns passed."""
    exit_status: ExitStatus
    """Why it ended."""
    environment_s: float
    """Seconds of waiting for the service."""

    @property
    def truncated(self) -> bool:
        """Whether a limit ended the episode, and not the policy."""
        return self.exit_status != "completed"


async def run_episode(client: EnvironmentClient, task: Task, generate: Generate) -> Episode:
    """Roll out one task and have it judged.

    Raises:
        EnvironmentFault: The service failed; this rollout must not be used at all.
    """
    instance_id = uuid.uuid4().hex
    started = time.perf_counter()
    created = await client.create(instance_id, task)
    waited = time.perf_counter() - started
    messages = list(created.state)
    turn = 0
    exit_status: ExitStatus | None = None
    step_turns: list[int] = []
    try:
        while exit_status is None:
            answer = await generate(messages, created.info.tools)
            if isinstance(answer, OutOf):
                exit_status = answer.limit
                break
            if isinstance(answer, str):
                answer = {"role": "assistant", "content": answer}
            started = time.perf_counter()
            reply = await client.step(instance_id, len(step_turns), answer)
            waited += time.perf_counter() - started
            step_turns.append(turn)
            turn = reply.info.turn
            messages += [answer, *reply.state]
            if reply.is_terminated:
                exit_status = "step_limit" if reply.info.truncated else "completed"
        started = time.perf_counter()
        verdict = await client.evaluate(instance_id, exit_status)
        waited += time.perf_counter() - started
    finally:
        # A failed rollout must not stay in the service, and its first failure is the one to report.
        with contextlib.suppress(EnvironmentFault):
            await client.release(instance_id)
    return Episode(
        reward=verdict.accuracy,
        turns=verdict.diagnosis,
        category=created.info.category,
        interface_version=created.info.interface_version,
        messages=tuple(messages),
        step_turns=tuple(step_turns),
        progress=verdict.progress,
        exit_status=exit_status,
        environment_s=waited,
    )
