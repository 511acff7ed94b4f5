"""What an argument can be drawn from: the live state, the dialogue so far, and fresh words.

In: live tool instances and a random generator. Out: values for arguments (`Source`), and how a
value can be said without naming it (`Memory`). The entries of tools/ are written with these.
"""

import ast
import contextlib
import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

from env_service.environments.bfcl.demonstrations.variants import SMALL, WORDS, leaves
from seal.formats import ToolCall

Value = TypeVar("Value")
Leaf: TypeAlias = str | int | float
Arguments: TypeAlias = dict[str, Any]

RECENT = 2
"""Calls after which "that order" is no longer clear."""
OLD_SHARE = 0.6
"""Probability that a source takes the value that the dialogue is about, if it fits."""


@dataclass(frozen=True)
class Tool:
    """All that synthesis knows about one tool of the benchmark."""

    arguments: Callable[["Source", Any], Arguments | None]
    """Arguments that are valid now, from a source and the live instance of the tool's class. None:
    the tool has no use in this state."""
    wordings: tuple[str, ...]
    """Clauses that ask for a call, beginning with a verb, with each argument in braces."""
    phrases: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Argument -> a value as text -> what a user says instead of it."""
    kinds: Mapping[str, str] = field(default_factory=dict)
    """Argument or key of the result -> the noun for what its value identifies, e.g. order."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Key of the result -> the argument whose value is a name for the key's value, e.g. a zip
    code's city."""


@dataclass
class Memory:
    """What the dialogue has shown."""

    mentioned: dict[str, tuple[Leaf, int]] = field(default_factory=dict)
    """Noun -> the one value of this kind that was mentioned last, and the call's number."""
    names: dict[Leaf, str] = field(default_factory=dict)
    """Value -> the name by which it was looked up."""
    shown: set[Leaf] = field(default_factory=set)
    """Values in results (`values_of`)."""
    results: set[str] = field(default_factory=set)
    """The results."""
    calls: int = 0
    """Calls so far."""

    def learn(self, tool: Tool, call: ToolCall, result: str) -> None:
        """Take in one call and its result."""
        content = content_of(result)
        self.calls += 1
        self.results.add(result)
        self.shown |= values_of(content)
        mentioned: dict[str, set[Leaf]] = {}
        for place in (call.arguments, content):  # what a result says of a noun counts more
            of_noun = {noun: {*leaves([*_under(place, key)])} for key, noun in tool.kinds.items()}
            mentioned |= {noun: values for noun, values in of_noun.items() if values}
        for noun, values in mentioned.items():
            # After a list of orders nobody knows which one is "that order".
            self.mentioned.pop(noun, None)
            if len(values) == 1:
                self.mentioned[noun] = (values.pop(), self.calls)
        for key, argument in tool.names.items():
            for value in _under(content, key):
                self.names[value] = call.arguments[argument]

    def latest(self, noun: str) -> Leaf | None:
        """The value that "that order" stands for, if it is clear."""
        value, number = self.mentioned.get(noun, (None, 0))
        return value if self.calls - number < RECENT else None

    def indirect(self, tool: Tool, argument: str, value: object) -> str | None:
        """How an argument can be said without its value, or None."""
        if not isinstance(value, str | int | float):
            return None
        if value in self.names:
            return self.names[value]
        noun = tool.kinds.get(argument)
        return f"that {noun}" if noun is not None and self.latest(noun) == value else None

    def uses_result(self, arguments: Arguments) -> bool:
        """Whether a result has shown one of the values."""
        return any(value in self.shown for value in leaves(arguments))


class Source:
    """Draws values.

    Args:
        rng: The generator.
        memory: What the dialogue has shown.
    """

    def __init__(self, rng: random.Random, memory: Memory) -> None:
        self.rng = rng
        self.memory = memory

    def pick(self, values: Sequence[Value]) -> Value:
        """One of some values."""
        return self.rng.choice(values)

    def two(self, values: Sequence[Value]) -> list[Value]:
        """Two different ones of at least two values, in any order."""
        return self.rng.sample(values, 2)

    def old(self, noun: str, values: Sequence[Value]) -> Value:
        """The value of this kind that was mentioned last, if it is among those that fit."""
        latest: Any = self.memory.latest(noun)
        if latest in values and self.rng.random() < OLD_SHARE:
            return values[values.index(latest)]
        return self.rng.choice(values)

    def latest(self, noun: str) -> Any:
        """The value of this kind that was mentioned last, or, sometimes, None."""
        return self.memory.latest(noun) if self.rng.random() < OLD_SHARE else None

    def named(self, values: Sequence[str]) -> list[str]:
        """Those of some values that were looked up by a name."""
        return [value for value in values if value in self.memory.names]

    def number(self, low: int, high: int) -> int:
        """A whole number, both ends included."""
        return self.rng.randint(low, high)

    def word(self) -> str:
        """A word for a new name."""
        return self.rng.choice(WORDS)

    def name(self) -> str:
        """A person's name."""
        return self.word().capitalize()

    def sentence(self) -> str:
        """A sentence of 3 to 6 words, without its full stop."""
        count = self.number(3, 6)
        return " ".join(self.rng.choice(WORDS) for _ in range(count)).capitalize()

    def secret(self) -> str:
        """A password."""
        return self.word() + str(self.number(10, 99))

    def date(self, first_year: int = 2025, last_year: int = 2027) -> str:
        """A day, as YYYY-MM-DD."""
        year = self.number(first_year, last_year)
        return f"{year}-{self.number(1, 12):02d}-{self.number(1, 28):02d}"


def content_of(result: str) -> Any:
    """A result as a value; the text itself if it is neither JSON nor a literal of Python."""
    for read in (json.loads, ast.literal_eval):
        with contextlib.suppress(ValueError, SyntaxError):
            return read(result)
    return result


def values_of(content: Any) -> set[Leaf]:
    """Values that a result shows; small numbers are left out, as they are in everything."""
    keys = {key for key in _keys(content) if key.isdigit()}  # of tables by number
    return keys | {leaf for leaf in leaves(content) if leaf not in range(SMALL + 1)}


def _keys(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from value
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _keys(item)


def _under(value: Any, key: str) -> Iterator[Any]:
    """What stands under a key, at any depth."""
    if isinstance(value, dict):
        for name, item in value.items():
            if name == key:
                yield item
            else:
                yield from _under(item, key)
    elif isinstance(value, list):
        for item in value:
            yield from _under(item, key)
