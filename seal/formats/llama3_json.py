"""Calls as bare JSON objects: `{"name": ..., "parameters": {...}}; {...}`.

Read as bfcl-eval's LlamaHandler_3_1 reads it: the whole message is calls or none. Several stand
next to each other with `;`, or in a list or with commas. `<|python_tag|>` is taken out. Without a
`;` the official reading is Python's `eval`, so a Python literal is one, too; nothing is evaluated
here. JSON's own true, false and null, which `eval` does not know, are read as well: the model's
chat template writes them.
"""

import ast
import json
import re
import warnings
from collections.abc import Sequence
from typing import Any

from seal.formats.message import (
    MAX_FAULTS,
    TOO_MANY,
    ParsedMessage,
    ParseFault,
    Refused,
    ToolCall,
    Unreadable,
    json_at,
    mask_thinking,
    named_call,
    only_named_tool,
    skip_space,
)

PYTHON_TAG = "<|python_tag|>"

_ATTEMPT = re.compile(r"""^[ \t]*(?:\[\s*)?\{\s*["']name["']""", re.MULTILINE)
"""Begins what is meant as a call in a message that begins with something else."""
_MAX_LITERAL = 50_000
"""Characters of a Python literal: Python's parser takes more than linear time on some texts."""


def read(text: str) -> ParsedMessage:
    """Read a message; prose without an object or the tag is a plain answer."""
    visible = mask_thinking(text)
    start = skip_space(visible, 0)
    calls: list[ToolCall] = []
    faults: list[ParseFault] = []
    try:
        for value in _values(visible.replace(PYTHON_TAG, "")):
            if len(faults) == MAX_FAULTS:
                faults.append(ParseFault(start, TOO_MANY))
                break
            try:
                calls.append(named_call(value, start, "parameters"))
            except Unreadable as fault:
                if isinstance(fault, Refused):
                    raise
                # Of another form it would have been refused: it is an object with a name.
                tool = value["name"] if isinstance(value["name"], str) else None
                faults.append(ParseFault(start, fault.reason, tool))
    except Unreadable as fault:
        attempt = _attempt(visible, start)
        if attempt is None:
            return ParsedMessage(visible.strip(), (), ())
        refused = ParseFault(attempt, fault.reason, only_named_tool(visible[attempt:]))
        return ParsedMessage(visible.strip(), (), (refused,))
    return ParsedMessage("" if calls or faults else visible.strip(), tuple(calls), tuple(faults))


def render(calls: Sequence[ToolCall]) -> str:
    """Objects separated by `; `."""
    return "; ".join(
        json.dumps(
            {"name": call.name, "parameters": call.arguments}, ensure_ascii=False, allow_nan=False
        )
        for call in calls
    )


def _attempt(visible: str, start: int) -> int | None:
    """Where something begins that is meant as a call, in a message that cannot be read as calls."""
    if visible.startswith(("{", PYTHON_TAG), start):
        return start
    found = _ATTEMPT.search(visible)
    if found is not None:
        return found.start()
    tag = visible.find(PYTHON_TAG)
    return None if tag == -1 else tag


def _values(source: str) -> Sequence[Any]:
    """What stands for calls in a message."""
    value = None if ";" in source else _literal(source)
    if value is None:
        values = _json_values(source)
        # A list is read as `eval` reads it, and so stands alone.
        return values[0] if len(values) == 1 and isinstance(values[0], list) else values
    return value if isinstance(value, list | tuple) else [value]


def _json_values(source: str) -> list[Any]:
    """JSON values with `;` between them."""
    values: list[Any] = []
    position = 0
    while True:
        value, end = json_at(source, skip_space(source, position))
        values.append(value)
        end = skip_space(source, end)
        if end == len(source):
            return values
        if source[end] != ";":
            raise Refused(end, "text beside the calls, or no ';' between two of them")
        position = end + 1


def _literal(source: str) -> Any:
    """The Python literal that a text is, or None."""
    if len(source) > _MAX_LITERAL:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "\d" in a string is the model's business
            return ast.literal_eval(source)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None
