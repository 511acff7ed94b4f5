"""Demonstrations for a language model: the reference, call by call, of a task or a variant of it.

Each message makes one call, so that the model sees a result before it goes on. In a file system it
looks around before it names something there, and again where a call has failed: a model that only
ever sees names that are right learns to make them up. Now and then a wrong call comes first, once
or several times; the model sees it fail, learns nothing of it, and learns the repair. A dialogue is
kept only if the official checker passes it, it holds no other errors than the task's own, and
whatever value the task shows before it is used, the variant shows as well: a model that is to use
what it has not been shown learns to guess.
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
from env_service.environments.bfcl.demonstrations.variants import leaves, renamed
from env_service.environments.bfcl.tasks import BfclTask, reference_calls
from seal.formats import ToolCall

ASKING = "I cannot do that yet: something is missing."
"""Said in a turn without calls, whose request lacks a value or a tool."""
MISTAKES = (Mistake.UNKNOWN_TOOL, Mistake.MISSING_ARGUMENT, Mistake.WRONG_VALUE)
"""Mistakes that the environment answers with an error, or that the checker fails."""


LOOK = ToolCall("ls", {"a": True})
"""The reference does not have it, and the checker does not mind."""
NAMING = frozenset({"cat", "cd", "cp", "diff", "grep", "mv", "rm", "rmdir", "sort", "tail", "wc"})
"""Tools whose arguments name something that is there."""
TRIES = (1, 1, 1, 2, 3)
"""How often a wrong call is made, drawn evenly: its repetition is seen to be no repair."""


@dataclass(frozen=True)
class Shares:
    """How often something happens, each from 0 to 1."""

    interface: float
    """A variant is shown in mode train, with a random learning interface."""
    mistakes: float
    """A call is preceded by a wrong one."""


@dataclass(frozen=True)
class Played:
    """A dialogue that was led to its end."""

    line: dict[str, Any]
    """As a line of the output."""
    errors: int
    """Learnt calls that gave an error."""
    shown: tuple[bool, ...]
    """Of each value in the reference, in order: whether the dialogue shows it before its call."""


def demonstrations(
    task: BfclTask, variants: int, shares: Shares, tool_format: str, seed: int
) -> Iterator[dict[str, Any] | None]:
    """The task and so many variants of it, as lines of the output; None for one that is no good."""
    try:
        plain = play(task, shown("eval", random.Random(0), tool_format), None, 0.0)
    except EpisodeOver:  # a turn has more calls than it may have steps
        yield from [None] * (1 + variants)
        return
    yield {**plain.line, "kind": "plain"} if plain.line["reward"] == 1.0 else None
    for number in range(variants):
        rng = random.Random(f"{seed}/{task.task_id}/{number}")
        variant = renamed(task, rng)
        options = shown("train" if rng.random() < shares.interface else "eval", rng, tool_format)
        try:
            played = play(variant, options, rng, shares.mistakes)
        except ValueError:  # a renamed reference that is no call any more
            yield None
            continue
        yield {**played.line, "kind": "variant"} if _teaches(plain, played) else None


def play(
    task: BfclTask, options: EpisodeOptions, rng: random.Random | None, mistakes: float
) -> Played:
    """Lead one dialogue by the reference; with `rng`, some calls are wrong at first."""
    dialogue = Demonstration(task, options)
    errors, seen, looked = 0, list[bool](), False
    for turn, calls in enumerate(reference_calls(task)):
        # In long_context a folder has hundreds of files.
        can_look = LOOK.name in task.docs_at(turn) and not task.long_context
        for call in calls:
            naming = can_look and call.name in NAMING
            if naming and not looked:
                dialogue.call([LOOK])
            seen += [dialogue.shows(value) for value in leaves(call.arguments)]
            if rng is not None and rng.random() < mistakes and _fail(dialogue, call, rng):
                if naming:
                    dialogue.call([LOOK])
            errors += has_error(dialogue.call([call]))
            looked = (looked or naming or call.name == LOOK.name) and call.name != "cd"
        if dialogue.say(CLOSING if calls else ASKING).terminated:
            break
    return Played(dialogue.line(), errors, tuple(seen))


def _teaches(plain: Played, variant: Played) -> bool:
    return (
        variant.line["reward"] == 1.0
        and variant.errors <= plain.errors
        and all(now for was, now in zip(plain.shown, variant.shown, strict=True) if was)
    )


def _fail(dialogue: Demonstration, call: ToolCall, rng: random.Random) -> bool:
    """Make a wrong call in place of the right one; False where none can be made of it."""
    attempt = attempt_with(rng.choice(MISTAKES), [call], rng, dialogue.options.tool_format)
    if attempt is None:
        return False
    for _ in range(rng.choice(TRIES)):
        dialogue.say(attempt.text, learn=False)
    return True
