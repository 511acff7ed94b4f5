"""Demonstrations for the tiny policy, played with mistakes.

A demonstrator without mistakes leaves GRPO nothing to learn: the errors of its clone are noise
spread over all tokens. So each turn of a task has two temptations, the same in every dialogue, and
the demonstrator sometimes falls for one of them. They are mistakes of the kinds that the diagnosis
names. After some of them the environment returns an error, and a repair may follow. The policy
learns all of it.
"""

import random
from collections.abc import Sequence
from typing import Any

from env_service.environments.base import EpisodeOptions
from env_service.environments.bfcl.demonstrations.dialogue import (
    CLOSING,
    Attempt,
    Demonstration,
    Mistake,
    attempt_with,
    has_error,
    written,
)
from env_service.environments.bfcl.tasks import BfclTask, reference_calls
from seal.formats import ToolCall

TOOL_FORMAT = "hermes"
MISTAKE_RATE = 0.5
"""Probability that a turn is answered with one of its temptations."""
REPAIR_RATE = 0.4
"""Probability that an error is repaired."""
HINTED_REPAIR_RATE = 0.8
"""The same if the learning interface gives recovery feedback."""


def temptations(task_id: str, turn: int, calls: Sequence[ToolCall]) -> list[Attempt]:
    """The two temptations of this turn, the same in every dialogue."""
    rng = random.Random(f"{task_id}/{turn}")
    order = rng.sample(list(Mistake), k=len(Mistake))
    possible = (attempt_with(mistake, calls, rng, TOOL_FORMAT) for mistake in order)
    return [attempt for attempt in possible if attempt is not None][:2]


def play(task: BfclTask, options: EpisodeOptions, rng: random.Random) -> dict[str, Any]:
    """One dialogue, as a line of the output; one message makes all calls of a turn."""
    dialogue = Demonstration(task, options)
    hinted = options.mode == "train" and options.interface.recovery_feedback
    repair_rate = HINTED_REPAIR_RATE if hinted else REPAIR_RATE
    for turn, calls in enumerate(reference_calls(task)):
        attempt = Attempt(written(calls, TOOL_FORMAT), ())
        if calls and rng.random() < MISTAKE_RATE:
            attempt = rng.choice(temptations(task.task_id, turn, calls))
        reply = dialogue.say(attempt.text)
        if reply.info.turn == turn and not reply.is_terminated:
            if attempt.repair and has_error(reply) and rng.random() < repair_rate:
                dialogue.call(attempt.repair)
            reply = dialogue.say(CLOSING)
        if reply.is_terminated:
            break
    return dialogue.line()
