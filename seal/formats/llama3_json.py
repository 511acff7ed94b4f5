"""Calls as bare JSON objects: `{"name": ..., "parameters": {...}}; {...}`.

A message is read as bfcl-eval's LlamaHandler_3_1 reads it: either all of it is calls, or none.
Several calls are separated by `;` or by commas, or stand in a list. `<|python_tag|>` is removed.
Without a `;` the official reading is Python's `eval`, so Python literals are accepted, too; nothing
is evaluated here. JSON's true, false and null, which `eval` does not know, are accepted as well,
because the model's chat template writes them.
"""

import ast
import re
import warnings
from collections.abc import Sequence
from typing import Any

from seal.formats.message import (
    ParsedMessage,
    ParseFault,
    Refused,
    ToolCall,
    Unreadable,
    json_at,
    json_text,
    mask_thinking,
    named_call,
    read_each,
    refused_message,
    skip_space,
)

PYTHON_TAG = "<|python_tag|>"

_ATTEMPT = re.compile(r"""^[ \t]*(?:\[\s*)?\{\s*["']name["']""", re.MULTILINE)
"""The beginning of a call in a message that begins with something else."""
_MAX_LITERAL = 50_000
"""Characters of a Python literal: Python's parser takes more than linear time on some texts."""


def read(text: str) -> ParsedMessage:
    """Read a message; prose without an object or the tag is a plain answer."""
    visible = mask_thinking(text)
    start = skip_space(visible, 0)

    def call(value: Any) -> ToolCall:
        return named_call(value, start, "parameters")

    def fault(value: Any, reason: str) -> ParseFault:
        # A value of another form refuses the message: this one is an object with a name.
        return ParseFault(start, reason, value["name"] if isinstance(value["name"], str) else None)

    try:
        calls, faults = read_each(_values(visible.replace(PYTHON_TAG, "")), call, fault)
    except Unreadable as error:
        return refused_message(visible, _attempt(visible, start), error.reason)
    return ParsedMessage("" if calls or faults else visible.strip(), calls, faults)


def render(calls: Sequence[ToolCall]) -> str:
    """Objects separated by `; `."""
    return "; ".join(json_text({"name": call.name, "parameters": call.arguments}) for call in calls)


def _attempt(visible: str, start: int) -> int | None:
    """Where a call was attempted in a message that cannot be read; None if nowhere."""
    if visible.startswith(("{", PYTHON_TAG), start):
        return start
    attempt = _ATTEMPT.search(visible)
    if attempt is not None:
        return attempt.start()
    tag = visible.find(PYTHON_TAG)
    return None if tag == -1 else tag


def _values(source: str) -> Sequence[Any]:
    """The values of a message that should be calls."""
    value = None if ";" in source else _literal(source)
    if value is None:
        values = _json_values(source)
        # A list is what `eval` gives, so nothing may stand beside it.
        return values[0] if len(values) == 1 and isinstance(values[0], list) else values
    return value if isinstance(value, list | tuple) else [value]


def _json_values(source: str) -> list[Any]:
    """JSON values that are separated by `;`."""
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
    """The value of a text that is one Python literal, else None."""
    if len(source) > _MAX_LITERAL:
        return None
    try:
        with warnings.catch_warnings(action="ignore"):  # e.g. of "\d" in a string
            return ast.literal_eval(source)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None
