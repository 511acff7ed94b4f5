"""The place of the learning interface's note in a prompt: behind the template's own sentence.

Some chat templates have a default sentence for the system message (Qwen2.5: "You are Qwen, ...").
They leave it out if a dialogue has a system message. In evaluation a dialogue has none. So a note
alone would remove the sentence from training, but the paper's interface only adds (section 3.3).
The sentence is read from the template itself, so it is right for every backbone.
"""

import os
from collections.abc import Sequence
from typing import Any

from seal.wire import Message, ToolDoc

_MARK = "0123456789 system note 9876543210"
"""A text that no template contains; it shows where a template writes the system message."""
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
    """The system message that a chat template writes for a dialogue without one.

    Returns:
        The default sentence; an empty text if the template has none.

    Raises:
        SystemNoteError: The template writes a system message not exactly once, or writes another
            text if the default sentence is given as a message.
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


def _shared_start(text: str, other: str) -> int:
    """Length of the longest common beginning of two texts."""
    return len(os.path.commonprefix([text, other]))
