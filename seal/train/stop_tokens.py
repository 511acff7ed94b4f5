"""Ids of the tokens that end an assistant message.

In: a tokenizer and the texts of `env_service.stop_tokens` (exp/backbone/). Out: ids for the rollout
engine, which stops as well at those of the model's own generation_config.json. Called by the agent
loop and by `seal.train.backbone`.
"""

from collections.abc import Sequence
from typing import Any


def stop_token_ids(tokenizer: Any, tokens: Sequence[str]) -> list[int]:
    """One id a token.

    Raises:
        ValueError: The tokenizer does not have a token: the backbone of the recipe is another one.
    """
    ids = [tokenizer.convert_tokens_to_ids(token) for token in tokens]
    # What a tokenizer does not have is None or its own mark for that, which Qwen2's has as well for
    # a token of use, <|endoftext|>.
    unknown = (None, tokenizer.unk_token_id)
    missing = [
        token
        for token, found in zip(tokens, ids, strict=True)
        if found in unknown and token != tokenizer.unk_token
    ]
    if missing:
        raise ValueError(
            f"env_service.stop_tokens names {', '.join(missing)}, which the tokenizer does not "
            "have; choose the model's own group: -- backbone=NAME (docs/backbones.md)"
        )
    return ids
