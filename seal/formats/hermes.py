"""Calls as JSON between tags: `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`."""

import json
from collections.abc import Sequence

from seal.formats.message import (
    ParsedMessage,
    ToolCall,
    Unreadable,
    json_at,
    named_call,
    skip_space,
)
from seal.formats.tags import CLOSE, OPEN, closing_tag, read_tagged


def read(text: str) -> ParsedMessage:
    """Read a message; without any tag it is a plain answer."""
    return read_tagged(text, _read_body)


def render(calls: Sequence[ToolCall]) -> str:
    """One tagged object a call, as the Qwen chat templates write it."""
    return "\n".join(f"{OPEN}\n{_object(call)}\n{CLOSE}" for call in calls)


def _object(call: ToolCall) -> str:
    fields = {"name": call.name, "arguments": call.arguments}
    return json.dumps(fields, ensure_ascii=False, allow_nan=False)


def _read_body(text: str, position: int) -> tuple[ToolCall, int]:
    start = skip_space(text, position)
    try:
        value, end = json_at(text, start)
    except Unreadable:
        closing_tag(text, position, position)  # "never closed" says more than where JSON broke off
        raise
    end = skip_space(text, end)
    if not text.startswith(CLOSE, end):
        closing_tag(text, position, end)
        raise Unreadable(end, f"text between the call's JSON object and {CLOSE}")
    return named_call(value, start, ("arguments",)), end + len(CLOSE)
