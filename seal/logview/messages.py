r"""The text of a dialogue, cut into messages and turns.

In: prompt and response of a rollout as verl dumps them. They are decoded without special tokens, so
only the role names of the chat template are left: ChatML leaves each on a line of its own, Llama 3
at the start of a message before an empty line. Out: messages with role and turn, which together
hold the whole text. Pure functions.

A policy can write such a line itself, and the text alone does not show it. The loop log does: it
says in which turn each message of the policy stands. If the cut gives other turns, `verified` is
False and the page says so.

>>> prompt = "system\nBe brief.\nuser\nHi\nassistant\n"
>>> cut = cut_dialogue(prompt, "Hello\nuser\nBye\nassistant\nBye")
>>> [(m.role, m.text, m.turn) for m in cut.messages]  # doctest: +NORMALIZE_WHITESPACE
[('system', 'Be brief.', None), ('user', 'Hi', 0), ('assistant', 'Hello', 0),
 ('user', 'Bye', 1), ('assistant', 'Bye', 1)]
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

_CHATML = re.compile(r"(?:^|\n)(system|user|assistant|tool)\n")
_LLAMA_3 = re.compile(r"(system|user|assistant|tool|ipython)\n\n")
_TOOL_RESULT = "<tool_response>"
"""Start of a tool's result in Qwen's templates, which give it the role of the user."""


@dataclass(frozen=True)
class Message:
    """One message of a dialogue."""

    role: str
    """system, user, assistant or tool; "text" for what stands before the first header."""
    text: str
    """As written, without the line ends around it that templates add."""
    turn: int | None
    """Index of the turn, from 0; None before the first."""


@dataclass(frozen=True)
class Cut:
    """A dialogue cut into messages."""

    messages: tuple[Message, ...]
    verified: bool
    """Whether the policy's messages stand in the turns that the loop log gives."""


def cut_dialogue(prompt: str, response: str, spans: Sequence[Sequence[int]] = ()) -> Cut:
    """Cut a dialogue into messages.

    Args:
        prompt: Text before the policy's first word, from the system message to its own header.
        response: Text from there on.
        spans: (turn, start, end) of each assistant message, from the loop log; empty for a
            validation, whose log does not hold them.
    """
    header = _LLAMA_3 if prompt.endswith("assistant\n\n") else _CHATML
    cut: list[Message] = []
    turn = -1
    for role, text in _messages(header, prompt + response):
        turn += role == "user"
        cut.append(Message(role, text.strip("\n"), turn if turn >= 0 else None))
    turns = [message.turn for message in cut if message.role == "assistant"]
    # The last header of the prompt is that of the first message in the response.
    earlier = sum(role == "assistant" for role, _ in _messages(header, prompt)) - 1
    verified = bool(spans) and turns[max(0, earlier) :] == [span[0] for span in spans]
    return Cut(tuple(cut), verified)


def _messages(header: re.Pattern[str], text: str) -> list[tuple[str, str]]:
    """(role, text) of each message."""
    pieces = header.split(text)
    messages = [("text", pieces[0])] if pieces[0].strip() else []
    messages += zip(pieces[1::2], pieces[2::2], strict=True)
    return [(_role(role, content), content) for role, content in messages]


def _role(role: str, content: str) -> str:
    is_result = role == "ipython" or (role == "user" and content.lstrip().startswith(_TOOL_RESULT))
    return "tool" if is_result else role
