"""The user's requests: what the calls of a turn sound like.

In: the calls of a turn and, for each, how its arguments could be said without their values. Out: a
`Request`, from which a value can still be taken back (miss_param). The clauses themselves stand
beside the tools, in tools/.
"""

import hashlib
import json
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from env_service.environments.bfcl.synthesis.sources import Tool
from env_service.environments.bfcl.synthesis.tools import every_tool
from seal.formats import ToolCall

LITERALS: Mapping[str, str] = {
    "access token": "the access token {}",
    "amount": "{} gallons",
    "booking": "booking {}",
    "card": "card {}",
    "distance": "{} miles",
    "folder": "the folder {}",
    "order": "order {}",
    "post": "post {}",
    "price": "{} dollars",
    "ticket": "ticket {}",
}
"""How a value is said that identifies or measures something; any other is said as it is."""
QUESTION = "Could you "
OPENERS = ("", "Please ", QUESTION, "I want you to ", "Next, ", "Now ", "I need you to ")
JOINTS = (", then ", " and ", ", and after that ")
"""Between two clauses of a sentence."""
NEW_SENTENCES = (". Then ", ". After that, ", ". Also, ")
"""Between two sentences; a question is one sentence."""
GIVEN_LATER = (
    "Sorry, I forgot to say: the {} is {}.",
    "What I left out is the {}: {}.",
    "The {} is {}.",
)
LEFT_OPEN = "a certain {}"
"""Stands for a value that the user has not yet given."""


@dataclass(frozen=True)
class Request:
    """What the user says in one turn."""

    template: str
    """The text, with a key in braces for each argument."""
    words: Mapping[str, str]
    """Key -> what is said for the argument."""
    removable: Mapping[str, str]
    """Key -> value, for names and the like that are said as they are."""
    nouns: Mapping[str, str]
    """Key -> what the value is."""

    @property
    def text(self) -> str:
        """The whole request."""
        return as_sentence(self.template.format(**self.words))

    def without(self, key: str) -> str:
        """The request with one value left open."""
        left_open = LEFT_OPEN.format(self.nouns[key])
        return as_sentence(self.template.format(**{**self.words, key: left_open}))

    def given_later(self, key: str, rng: random.Random) -> str:
        """What the user says to give the value after all."""
        return rng.choice(GIVEN_LATER).format(self.nouns[key], self.removable[key])


def request(
    calls: Sequence[ToolCall],
    indirect: Sequence[Mapping[str, str]],
    share: float,
    rng: random.Random,
) -> Request:
    """Ask for the calls of a turn.

    Args:
        calls: The calls, in order.
        indirect: For each call, what may be said for some of its arguments instead of the value.
        share: Probability that it is said.
        rng: Chooses the wordings.
    """
    opener = rng.choice(OPENERS)
    joints = JOINTS if opener == QUESTION else JOINTS + NEW_SENTENCES
    template, words = opener, dict[str, str]()
    removable, nouns = dict[str, str](), dict[str, str]()
    for number, (call, other) in enumerate(zip(calls, indirect, strict=True)):
        tool = every_tool()[call.name]
        clause = rng.choice(tool.wordings)
        for argument, value in call.arguments.items():
            key = f"{argument}_{number}"
            nouns[key] = _noun(tool, argument)
            phrase = phrase_for(tool, argument, value)
            if phrase is None and argument in other and rng.random() < share:
                words[key] = other[argument]
                continue
            words[key] = phrase or _literal(tool, argument, value)
            # In quotes, "a certain text" would be a text itself.
            if phrase is None and isinstance(value, str) and f"'{{{argument}}}'" not in clause:
                removable[key] = value
        keys = {argument: f"{{{argument}_{number}}}" for argument in call.arguments}
        template += (rng.choice(joints) if number else "") + clause.format(**keys)
    ending = "?" if opener == QUESTION else "."
    return Request(template + ending, words, removable, nouns)


def phrase_for(tool: Tool, argument: str, value: object) -> str | None:
    """What is said for a value that no user would say as it is, or None."""
    return tool.phrases.get(argument, {}).get(spoken(value))


def spoken(value: object) -> str:
    """A value as a user says it: without the brackets of lists and the ".0" of whole numbers."""
    if isinstance(value, list):
        parts = [spoken(item) for item in value]
        return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)
    if isinstance(value, dict):
        return ", ".join(f"{key} {_quoted(item)}" for key, item in value.items())
    if isinstance(value, float):
        return str(value).removesuffix(".0")
    return str(value)


def as_sentence(text: str) -> str:
    """A text with a capital letter at its beginning."""
    return text[0].upper() + text[1:]


def fingerprint() -> str:
    """Hash of everything that is said: another wording makes another pool."""
    parts = [
        {name: [tool.wordings, tool.phrases] for name, tool in every_tool().items()},
        [LITERALS, OPENERS, JOINTS, NEW_SENTENCES, GIVEN_LATER, LEFT_OPEN],
    ]
    content = json.dumps(parts, sort_keys=True, default=dict)
    return hashlib.sha256(content.encode()).hexdigest()


def _quoted(value: object) -> str:
    return f"'{value}'" if isinstance(value, str) else spoken(value)


def _literal(tool: Tool, argument: str, value: object) -> str:
    return LITERALS.get(tool.kinds.get(argument, ""), "{}").format(spoken(value))


def _noun(tool: Tool, argument: str) -> str:
    """What a value is, e.g. "travel date"."""
    words = re.sub(r"(?<=[a-z])(?=[A-Z])|_", " ", argument).lower().rstrip("0123456789 ")
    return tool.kinds.get(argument, words)
