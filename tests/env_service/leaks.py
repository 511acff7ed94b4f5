"""What a text that the learning interface adds may say, and what of a reference it may not.

In: a piece of added text, what the policy could read before it, and a task. Out: a `Finding` for
each rule that it breaks. Of each piece:

- begun: it follows what the benchmark shows, which stands before it unchanged (see twins.py).
- value: it holds no argument value of the reference that was not to be read before: in what the
  benchmark has shown so far or in what the policy itself has said.
- name: it names no tool but what the call at hand, or the doc that is marked, names itself.
- template: without what it quotes of call and doc, it is one of a finite set of sentences, the same
  for every task.
"""

import functools
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from env_service.environments.bfcl.execution import ToolExecutor
from env_service.environments.bfcl.tasks import BfclTask, reference_calls
from env_service.environments.bfcl.tool_classes import tool_names
from seal.coevolution import texts

NOTE_LINES = {
    "",
    texts.SCHEMA_NOTE,
    texts.AFFORDANCE_NOTE,
    texts.GUIDELINES_HEAD,
    *(f"- {sentence}" for sentence in texts.GUIDELINES.values()),
}
TYPES = ("a boolean", "an integer", "a number", "a string", "an array", "an object", "null")
MARKS = {
    f"{mark}{cue}"
    for mark in (texts.REQUIRED_MARK, texts.OPTIONAL_MARK)
    for cue in (
        "",
        *(f" {texts.TYPE_MARK.format(kind)}" for kind in TYPES),
        *(
            f" {texts.TYPE_MARK.format(f'{kind}, each item {item}')}"
            for kind in TYPES
            for item in TYPES
        ),
    )
}
VIOLATIONS = {
    "missing required argument NAME",
    "unknown argument NAME",
    "argument NAME must be TYPE, got TYPE",
    "argument NAME is not one of the values that the tool allows",
}
HINTS = {
    texts.UNKNOWN_TOOL_HINT,
    texts.EXECUTION_HINT,
    *(
        texts.ARGUMENT_HINT.format("; ".join(some))
        for count in (1, 2, 3)
        for some in itertools.product(sorted(VIOLATIONS), repeat=count)
    ),
}
FIXED = "\n".join(
    [*NOTE_LINES, *texts.SCHEMA_TEXTS, *texts.RECOVERY_TEXTS, *TYPES, *VIOLATIONS]
).casefold()
FIXED_WORDS = {*re.findall(r"\w+", FIXED)}
TYPE_WORDS = re.compile("|".join(map(re.escape, TYPES)))
NUMBERS = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?!\w)")


@dataclass(frozen=True)
class Added:
    """One piece of text that the interface has added."""

    kind: str
    """Where: note, marks, revealed marks, hint, parse feedback."""
    text: str
    """The piece."""
    quotable: str
    """What it may name tools of: the message and the doc at hand."""
    is_template: bool
    """Without what it quotes, it is one of the fixed sentences."""


@dataclass(frozen=True)
class Finding:
    """A rule that a text breaks."""

    rule: str
    """begun, value, name, template, reason."""
    task_id: str
    what: str
    """The value, the name or the place."""
    text: str


def skeleton(phrases: str, names: Iterable[str]) -> str:
    """Phrases of violated rules without what they quote."""
    for name in sorted(map(repr, names), key=len, reverse=True):
        phrases = phrases.replace(name, "NAME")
    return TYPE_WORDS.sub("TYPE", phrases)


def paths_of_doc(schema: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """Names of a doc's arguments as phrases write them: a, a.b, a[]."""
    yield path
    for name, field in schema.get("properties", {}).items():
        yield from paths_of_doc(field, f"{path}.{name}" if path else name)
    if isinstance(schema.get("items"), dict):
        yield from paths_of_doc(schema["items"], f"{path}[]")


def paths_of_value(value: Any, path: str = "") -> Iterator[str]:
    """Names of a call's arguments as phrases write them, cut as they cut them."""
    yield path
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from paths_of_value(inner, f"{path}.{name[:60]}" if path else name[:60])
    elif isinstance(value, list):
        for inner in value:
            yield from paths_of_value(inner, f"{path}[]")


def leaves(value: Any) -> Iterator[Any]:
    """Values inside lists and objects, and names inside objects."""
    if isinstance(value, dict):
        yield from value
        value = [*value.values()]
    if isinstance(value, list):
        for inner in value:
            yield from leaves(inner)
    else:
        yield value


class Secrets:
    """What of a task's reference a text could give away."""

    def __init__(self, task: BfclTask) -> None:
        self.task = task
        self.task_id = task.task_id
        self.program = reference_calls(task)
        arguments = (call.arguments.values() for calls in self.program for call in calls)
        values = [one for some in arguments for value in some for one in leaves(value)]
        self.strings = {one for one in values if isinstance(one, str) and len(one) >= 3}
        self.numbers = {float(one) for one in values if type(one) in (int, float)}
        self.tools = {name for owner in task.involved_classes for name in tool_names(owner)}

    @functools.cached_property
    def attributes(self) -> set[str]:
        """Public attributes of the task's tool classes, and the classes: no secrets."""
        instances = ToolExecutor(self.task).instances
        names = {f"{owner}.{name}" for owner, one in instances.items() for name in vars(one)}
        return names | {*instances}

    def hidden(self, visible: Sequence[str]) -> int:
        """How many of its values stand in no visible text."""
        strings = sum(not any(value in shown for shown in visible) for value in self.strings)
        return strings + len(self.numbers.difference(*map(numbers_in, visible)))

    def values_in(self, text: str, visible: Sequence[str]) -> list[str]:
        """Values of the reference in a text that stand in no visible one."""
        folded = text.casefold()
        found = [
            value
            for value in self.strings
            if is_token(value.casefold(), folded)
            and not is_token(value.casefold(), FIXED)
            and not any(value in shown for shown in visible)
        ]
        numbers = self.numbers & numbers_in(text)
        if numbers:
            numbers = numbers.difference(*map(numbers_in, visible))
        return [*found, *map(str, numbers)]

    def findings(self, added: Added, visible: Sequence[str]) -> Iterator[Finding]:
        """The rules that a piece of added text breaks."""
        if not added.is_template:
            yield Finding("template", self.task_id, added.kind, added.text)
        for value in self.values_in(added.text, visible):
            yield Finding("value", self.task_id, value, added.text)
        named = self.tools & {*re.findall(r"\w+", added.text)} - FIXED_WORDS
        for name in named.difference(re.findall(r"\w+", added.quotable)):
            yield Finding("name", self.task_id, name, added.text)


def is_token(value: str, text: str) -> bool:
    """Whether a value stands in a text, and not within a word."""
    return value in text and bool(re.search(rf"(?<!\w){re.escape(value)}(?!\w)", text))


def numbers_in(text: str) -> set[float]:
    """Numbers that stand alone in a text."""
    return {*map(float, NUMBERS.findall(text))}
