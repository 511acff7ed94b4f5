"""Demonstrations for a language model: the reference, call by call, of a task or a variant of it.

Each message makes one call, so that the model sees a result before it goes on. Now and then a wrong
call comes first; the model sees it fail, learns nothing of it, and learns the repair. A dialogue is
kept only if the official checker passes it and it holds no other errors than the task's own.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from env_service.environments.base import EpisodeOptions, EpisodeOver
from env_service.environments.bfcl.demonstrations.dialogue import (
    CLOSING,
    Demonstration,
    Mistake,
    attempt_with,
    has_error,
    shown,
)
from env_service.environments.bfcl.demonstrations.variants import renamed
from env_service.environments.bfcl.tasks import BfclTask, reference_calls
from seal.formats import ToolCall

ASKING = "I cannot do that yet: something is missing."
"""Said in a turn without calls, whose request lacks a value or a tool."""
MISTAKES = (Mistake.UNKNOWN_TOOL, Mistake.MISSING_ARGUMENT, Mistake.WRONG_VALUE)
"""Mistakes that the environment answers with an error, or that the checker fails."""


@dataclass(frozen=True)
class Shares:
    """How often something happens, each from 0 to 1."""

    interface: float
    """A variant is shown in mode train, with a random learning interface."""
    mistakes: float
    """A call is preceded by a wrong one."""


def demonstrations(
    task: BfclTask, variants: int, shares: Shares, tool_format: str, seed: int
) -> Iterator[dict[str, Any] | None]:
    """The task and so many variants of it, as lines of the output; None for one that is no good."""
    try:
        plain, errors = play(task, shown("eval", random.Random(0), tool_format), None, 0.0)
    except EpisodeOver:  # a turn has more calls than it may have steps
        yield from [None] * (1 + variants)
        return
    yield {**plain, "kind": "plain"} if plain["reward"] == 1.0 else None
    for number in range(variants):
        rng = random.Random(f"{seed}/{task.task_id}/{number}")
        variant = renamed(task, rng)
        options = shown("train" if rng.random() < shares.interface else "eval", rng, tool_format)
        try:
            line, more = play(variant, options, rng, shares.mistakes)
        except ValueError:  # a renamed reference that is no call any more
            yield None
            continue
        kept = line["reward"] == 1.0 and more <= errors
        yield {**line, "kind": "variant"} if kept else None


def play(
    task: BfclTask, options: EpisodeOptions, rng: random.Random | None, mistakes: float
) -> tuple[dict[str, Any], int]:
    """One dialogue as a line of the output, and the number of learnt calls that gave an error."""
    dialogue = Demonstration(task, options)
    errors = 0
    for calls in reference_calls(task):
        for call in calls:
            if rng is not None and rng.random() < mistakes:
                _fail(dialogue, call, rng)
            errors += has_error(dialogue.call([call]))
        if dialogue.say(CLOSING if calls else ASKING).terminated:
            break
    return dialogue.line(), errors


def _fail(dialogue: Demonstration, call: ToolCall, rng: random.Random) -> None:
    attempt = attempt_with(rng.choice(MISTAKES), [call], rng, dialogue.options.tool_format)
    if attempt is not None:
        dialogue.say(attempt.text, learn=False)
