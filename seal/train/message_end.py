"""How a chat template closes an assistant message, and what a sampled one lacks of that.

In: verl's token builder of the model, and sampled tokens. Out: tokens. A policy stops at the first
token of the template's end, at another stop token, or at the limit of a message. What follows must
stand behind a closed message all the same: no model has seen a dialogue that goes on inside one.
Called by the agent loop and by seal/train/backbone_checks.py.
"""

import itertools
from collections.abc import Sequence
from typing import Any

from seal.wire import Message

_REQUEST: Message = {"role": "user", "content": "Is it on?"}
_NEXT: Message = {"role": "user", "content": "Go on."}
_ANSWERS = ("Yes", "No")
"""Any two texts that do not end in the same token."""


def message_end(builder: Any) -> list[int]:
    """Token ids that stand between an assistant message's text and the tokens of the next message.

    `<|im_end|>` and a line break for Qwen, `<|eot_id|>` for Llama 3.1. They are read off the
    template: two dialogues that differ in that text alone have the same tokens from its end on.
    What verl's builder (ContinuousTokenBuilder) appends for the next message is cut off from them.

    Raises:
        ValueError: The builder appends a message with other tokens than the template's.
    """
    dialogues = [[_REQUEST, {"role": "assistant", "content": text}] for text in _ANSWERS]
    one, other = (builder.build_initial_tokens([*seen, _NEXT]) for seen in dialogues)
    pairs = zip(reversed(one), reversed(other), strict=False)
    shared = len(list(itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)))
    behind = one[len(one) - shared :]
    appended = builder.tokenize_context_incremental_messages(dialogues[0], [*dialogues[0], _NEXT])
    end = len(behind) - len(appended)
    if end < 0 or behind[end:] != appended:
        raise ValueError(
            f"the chat template does not suit {type(builder).__name__}, verl's token builder for "
            "this type of model: for a user's message it writes the tokens "
            f"{behind[-len(appended) :]}, but the builder appends {appended}"
        )
    return list(behind[:end])


def unwritten_end(sampled: Sequence[int], end: Sequence[int]) -> list[int]:
    """The tokens of `end` that come behind those with which `sampled` already closes."""
    for written in range(min(len(end), len(sampled)), 0, -1):
        if list(sampled[-written:]) == list(end[:written]):
            return list(end[written:])
    return list(end)
