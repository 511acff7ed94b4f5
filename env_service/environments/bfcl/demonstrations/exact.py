"""Demonstrations for a language model: the reference, call by call, of a task or a variant of it.

Each message makes one call, so that the model sees a result before it goes on. In a file system the
demonstrator lists the folder before it names something there, and again after a failed call: a
model that only ever sees correct names learns to invent them. Sometimes a wrong call comes first,
once or several times. The model sees that it fails, does not learn it, and learns the repair.

A dialogue is kept only if it meets three conditions. The official checker passes it. It holds no
errors besides the task's own. Every value that the task shows before its use is also shown in the
variant: a model that must use values it has not seen learns to guess.
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
"""Said in a turn without calls: its request lacks a value or a tool."""
MISTAKES = (Mistake.UNKNOWN_TOOL, Mistake.MISSING_ARGUMENT, Mistake.WRONG_VALUE)
"""Mistakes after which the environment returns an error, or the checker fails the episode."""
LOOK = ToolCall("ls", {"a": True})
"""Lists the folder. The reference has no such call, and the checker accepts it."""
NAMING = frozenset({"cat", "cd", "cp", "diff", "grep", "mv", "rm", "rmdir", "sort", "tail", "wc"})
"""Tools whose arguments name something that exists."""
TRIES = (1, 1, 1, 2, 3)
"""How often a wrong call is made, drawn uniformly: the model sees that repeating does not help."""


@dataclass(frozen=True)
class Shares:
    """How often something happens, each from 0 to 1."""

    interface: float
    """A variant is shown in mode train, with a random learning interface."""
    mistakes: float
    """A wrong call precedes a call."""


@dataclass(frozen=True)
class Played:
    """A dialogue that has been played to its end."""

    line: dict[str, Any]
    """As a line of the output."""
    errors: int
    """Learnt calls that returned an error."""
    shown: tuple[bool, ...]
    """For each value in the reference, in order: whether the dialogue shows it before its call."""


def demonstrations(
    task: BfclTask, variants: int, shares: Shares, tool_format: str, seed: int
) -> Iterator[dict[str, Any] | None]:
    """The task and its variants as lines of the output; None for a dialogue that is not kept."""
    try:
        plain = play(task, shown("eval", random.Random(0), tool_format), None, 0.0)
    except EpisodeOver:  # a turn has more calls than the step limit allows
        yield from [None] * (1 + variants)
        return
    yield {**plain.line, "kind": "plain"} if plain.line["reward"] == 1.0 else None
    for number in range(variants):
        rng = random.Random(f"{seed}/{task.task_id}/{number}")
        variant = renamed(task, rng)
        options = shown("train" if rng.random() < shares.interface else "eval", rng, tool_format)
        try:
            played = play(variant, options, rng, shares.mistakes)
        except ValueError:  # a renamed reference that is no longer a call
            yield None
            continue
        yield {**played.line, "kind": "variant"} if _teaches(plain, played) else None


def play(
    task: BfclTask, options: EpisodeOptions, rng: random.Random | None, mistakes: float
) -> Played:
    """Play one dialogue along the reference; with `rng`, wrong calls precede some calls."""
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
        if dialogue.say(CLOSING if calls else ASKING).is_terminated:
            break
    return Played(dialogue.line(), errors, tuple(seen))


def _teaches(plain: Played, variant: Played) -> bool:
    return (
        variant.line["reward"] == 1.0
        and variant.errors <= plain.errors
        and all(now for was, now in zip(plain.shown, variant.shown, strict=True) if was)
    )


def _fail(dialogue: Demonstration, call: ToolCall, rng: random.Random) -> bool:
    """Make a wrong version of a call; False if there is none."""
    attempt = attempt_with(rng.choice(MISTAKES), [call], rng, dialogue.options.tool_format)
    if attempt is None:
        return False
    for _ in range(rng.choice(TRIES)):
        dialogue.say(attempt.text, learn=False)
    return True
