"""Where the learning interface's note stands in a prompt: behind what the template says anyway.

Some chat templates have a default sentence for the system message (Qwen2.5: "You are Qwen, ...").
They leave it out as soon as a dialogue brings a system message. Evaluation brings none. So a note
alone would take the sentence away from training, but the paper's interface only adds (section 3.3).
The sentence is read from the template itself, so it is right for every backbone.
"""

from collections.abc import Sequence
from typing import Any

from seal.wire import Message, ToolDoc

_MARK = "0123456789 system note 9876543210"
"""A message that no template contains: where it comes out, a note would stand."""
_USER: Message = {"role": "user", "content": "Hello."}
_TOOL: ToolDoc = {
    "type": "function",
    "function": {
        "name": "hello",
        "description": "Says hello.",
        "parameters": {"type": "object", "properties": {}, "required": []},
    },
}


class SystemNoteError(Exception):
    """The chat template has no place for a note in the system message."""


def default_system(builder: Any, tokenizer: Any) -> str:
    """What a chat template says in the system message of a dialogue that brings none.

    Args:
        builder: verl's builder of rollout tokens (ContinuousTokenBuilder).
        tokenizer: Its tokenizer.

    Returns:
        The default sentence; an empty text where the template has none.

    Raises:
        SystemNoteError: The template shows a system message not at all or more than once, or the
            sentence as a message is not the sentence by default.
    """

    def render(*messages: Message) -> str:
        ids = builder.build_initial_tokens([*messages, _USER], tools=[_TOOL])
        return str(tokenizer.decode(ids))

    plain, marked = render(), render({"role": "system", "content": _MARK})
    if marked.count(_MARK) != 1:
        raise SystemNoteError(
            "the chat template shows a system message "
            f"{marked.count(_MARK)} times, so the learning interface has no place for its note; "
            "set actor_rollout_ref.model.custom_chat_template"
        )
    before, after = marked.split(_MARK)
    start = _shared_start(plain, before)
    end = len(plain) - _shared_start(plain[start:][::-1], after[::-1])
    default = plain[start:end]
    if default and render({"role": "system", "content": default}) != plain:
        raise SystemNoteError(
            f"the chat template has the default system message {default[:80]!r}, but writes "
            "another text when it is given this message; set "
            "actor_rollout_ref.model.custom_chat_template"
        )
    return default


def behind_default(messages: Sequence[Message], default: str) -> list[Message]:
    r"""The same dialogue, with the default sentence in front of its system message.

    >>> note = {"role": "system", "content": "Look first."}
    >>> behind_default([note, {"role": "user", "content": "Go."}], "You are kind.")[0]["content"]
    'You are kind.\n\nLook first.'
    >>> behind_default([{"role": "user", "content": "Go."}], "You are kind.")
    [{'role': 'user', 'content': 'Go.'}]
    """
    if not default or messages[0]["role"] != "system":
        return list(messages)
    note = messages[0]
    return [{**note, "content": f"{default}\n\n{note['content']}"}, *messages[1:]]


def _shared_start(one: str, other: str) -> int:
    """Characters that two texts begin with in common."""
    for place, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return place
    return min(len(one), len(other))
