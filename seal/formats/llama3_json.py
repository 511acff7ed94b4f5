"""Calls as bare JSON objects: `{"name": ..., "parameters": {...}}; {...}`.

A message is read as calls if it starts with an object or holds `<|python_tag|>`; any other message
is a plain answer. Objects stand one after the other, separated by `;` or a line break. `arguments`
is read as `parameters`, since Llama models mix the two.
"""

import json
from collections.abc import Sequence

from seal.formats.message import (
    MAX_FAULTS,
    TOO_MANY,
    ParsedMessage,
    ParseFault,
    ToolCall,
    Unreadable,
    json_at,
    mask_thinking,
    named_call,
    named_tool,
    skip_space,
)

PYTHON_TAG = "<|python_tag|>"


def read(text: str) -> ParsedMessage:
    """Read a message."""
    visible = mask_thinking(text)
    start = skip_space(visible, 0)
    tag = -1 if visible.startswith("{", start) else visible.find(PYTHON_TAG)
    if tag == -1 and not visible.startswith("{", start):
        return ParsedMessage(visible.strip(), (), ())
    content = [visible[:tag]] if tag != -1 else []
    position = start if tag == -1 else skip_space(visible, tag + len(PYTHON_TAG))
    if not visible.startswith("{", position):
        reason = f"expected a JSON object after {PYTHON_TAG}"
        fault = ParseFault(position, reason, named_tool(visible[position:]))
        return ParsedMessage(visible[:tag].strip(), (), (fault,))
    calls: list[ToolCall] = []
    faults: list[ParseFault] = []
    while position < len(visible):
        if len(faults) == MAX_FAULTS:
            faults.append(ParseFault(position, TOO_MANY))
            break
        start = position
        broken: Unreadable | None = None
        try:
            value, end = json_at(visible, start)
        except Unreadable as error:
            broken = error
            end = max(error.position, start + 1)
            separated = False
        else:
            separated = True
            try:
                calls.append(named_call(value, start, ("parameters", "arguments")))
            except Unreadable as error:
                broken = error
        position = _next_object(visible, end, separated)
        if broken is not None:
            tool = named_tool(visible[start : end if separated else position])
            faults.append(ParseFault(broken.position, broken.reason, tool))
        content.append(visible[end:position])
    return ParsedMessage("".join(content).strip("; \n\t\r"), tuple(calls), tuple(faults))


def render(calls: Sequence[ToolCall]) -> str:
    """Objects separated by `; `."""
    return "; ".join(
        json.dumps(
            {"name": call.name, "parameters": call.arguments}, ensure_ascii=False, allow_nan=False
        )
        for call in calls
    )


def _next_object(text: str, position: int, separated: bool) -> int:
    """Where the next object stands: behind a `;` or a line break.

    Args:
        text: The message.
        position: Where to look from.
        separated: An object ends at `position`, so that another may follow at once; inside a
            broken one it may not.
    """
    behind = position
    at = text.find("{", position)
    while at != -1:
        between = text[behind:at].rstrip(" \t\r")
        if between.endswith((";", "\n")) or (separated and not between):
            return at
        separated = False
        behind = at + 1
        at = text.find("{", behind)
    return len(text)
