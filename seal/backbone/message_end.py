"""How an assistant message ends: stop tokens, and what the chat template writes behind its text.

In: a tokenizer, verl's token builder of the model, and sampled tokens. Out: token ids. A policy
stops at the first token of the template's end, at another stop token, or at the length limit of a
message. In each case the next message must follow a closed one: no model was trained on dialogues
that go on inside a message.
"""

import os
from collections.abc import Sequence
from typing import Any

from seal.wire import Message

_REQUEST: Message = {"role": "user", "content": "Is it on?"}
_NEXT: Message = {"role": "user", "content": "Go on."}
_ANSWERS = ("Yes", "No")
"""Any two texts that do not end in the same token."""


def stop_token_ids(tokenizer: Any, tokens: Sequence[str]) -> list[int]:
    """Ids of the recipe's stop tokens (`env_service.stop_tokens`), one for each.

    The rollout engine also stops at the tokens of the model's own generation_config.json.

    Raises:
        ValueError: The tokenizer lacks a token, so the recipe is for another backbone.
    """
    ids = [tokenizer.convert_tokens_to_ids(token) for token in tokens]
    # For an unknown token the answer is None or the id of unk_token. In Qwen2 the unk_token is
    # <|endoftext|>, which is also a stop token.
    unknown = (None, tokenizer.unk_token_id)
    missing = [
        token
        for token, token_id in zip(tokens, ids, strict=True)
        if token_id in unknown and token != tokenizer.unk_token
    ]
    if missing:
        raise ValueError(
            f"env_service.stop_tokens names {', '.join(missing)}, which the tokenizer does not "
            "have; choose the model's own group: -- backbone=NAME (docs/backbones.md)"
        )
    return ids


def message_end(builder: Any) -> list[int]:
    """Token ids between the text of an assistant message and the next message.

    They are `<|im_end|>` and a line break for Qwen, `<|eot_id|>` for Llama 3.1. Two dialogues that
    differ only in this text have the same tokens from its end on. Of these, the tokens that verl's
    builder (ContinuousTokenBuilder) appends for the next message are removed.

    Raises:
        ValueError: The builder appends a message with other tokens than the template.
    """
    dialogues = [[_REQUEST, {"role": "assistant", "content": text}] for text in _ANSWERS]
    first, second = (builder.build_initial_tokens([*seen, _NEXT]) for seen in dialogues)
    shared = len(os.path.commonprefix([first[::-1], second[::-1]]))
    behind = first[len(first) - shared :]
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
    """The tokens of `end` that `sampled` lacks; it may already end with the first ones."""
    for written in range(min(len(end), len(sampled)), 0, -1):
        if list(sampled[-written:]) == list(end[:written]):
            return list(end[written:])
    return list(end)
