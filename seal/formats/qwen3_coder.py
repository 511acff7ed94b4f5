r"""Calls as tags all the way down, values written bare.

    <tool_call>
    <function=cd>
    <parameter=folder>
    documents
    </parameter>
    </function>
    </tool_call>

A message is read as vLLM's parser of this name reads it; bfcl-eval has none. A call is the text
between `<function=` and `</function>`, wherever it stands. Only the tool's doc can tell what the
value 94016 means: a string, unless the doc declares another type.

>>> read("<tool_call><function=f><parameter=n>1</parameter></function></tool_call>", None).calls
(ToolCall(name='f', arguments={'n': 1}),)
"""

import contextlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from seal.formats.message import (
    THINK_CLOSE,
    ParsedMessage,
    ParseFault,
    ToolCall,
    Unreadable,
    checked_call,
    json_text,
    json_value,
    named_tool,
)
from seal.formats.tags import CLOSE, OPEN, TagWalk
from seal.wire import ToolDoc

_TAG = re.compile("<function=|</?tool_call>|</?think>")
_FUNCTION_CLOSE = "</function>"
_PARAMETER = re.compile(r"<\s*parameter\s*=\s*|(<\s*/\s*parameter\s*>)")
_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}
_LONGEST_NUMBER = 300
_LONGEST_NAME = 200
_UNWRITABLE = re.compile(rf"{_PARAMETER.pattern}|{_FUNCTION_CLOSE}")


def read(text: str, docs: Mapping[str, ToolDoc] | None) -> ParsedMessage:
    """Read a message; `docs`, by tool name, say what a value is. Without any, JSON is JSON."""
    walk = TagWalk(text)
    opened: int | None = None  # a <tool_call> that no function has followed yet
    for tag in walk.tags(_TAG):
        start = tag.end()
        if tag[0] == THINK_CLOSE:
            opened = None
        elif walk.is_full(tag.start()):
            continue  # only the end of a thinking block can still change anything
        elif tag[0] == OPEN:
            opened = tag.start() if opened is None else opened
        elif tag[0] == CLOSE:
            if opened is not None:
                walk.faults.append(_no_function(text, opened, tag.start()))
            opened = None
        else:
            opened = None
            end = text.find(_FUNCTION_CLOSE, start)
            try:
                if end == -1:
                    reason = f"<function=NAME> is never closed with {_FUNCTION_CLOSE}"
                    raise Unreadable(tag.start(), reason)
                walk.calls.append(_call(text[start:end], start, docs))
            except Unreadable as fault:
                tool = named_tool(text[tag.start() : start + _LONGEST_NAME])
                walk.faults.append(ParseFault(fault.position, fault.reason, tool))
            if end != -1:
                walk.position = end + len(_FUNCTION_CLOSE)
    if opened is not None:
        walk.faults.append(_no_function(text, opened, len(text)))
    return walk.message()


def render(calls: Sequence[ToolCall]) -> str:
    """One tagged block a call, as the Qwen chat templates write it.

    Raises:
        ValueError: A tool's or an argument's name holds `>` or a line break, or a value holds a
            tag of the format: a template would write a text that cannot be read back.
    """
    return "\n".join(_render(call) for call in calls)


def _render(call: ToolCall) -> str:
    for name in (call.name, *call.arguments):
        if not name.strip() or name != name.strip() or re.search(r"[<>\n]", name):
            raise ValueError(f"{name!r} cannot be written as a qwen3_coder tag")
    parameters = "".join(
        f"<parameter={key}>\n{_written(value)}\n</parameter>\n"
        for key, value in call.arguments.items()
    )
    return f"{OPEN}\n<function={call.name}>\n{parameters}{_FUNCTION_CLOSE}\n{CLOSE}"


def _written(value: Any) -> str:
    if not isinstance(value, str):
        # In JSON only a string can hold a `<`.
        return json_text(value).replace("<", "\\u003c")
    if _UNWRITABLE.search(value):
        raise ValueError(f"a string cannot be written as qwen3_coder: {value[:60]!r}")
    return value


def _no_function(text: str, opened: int, end: int) -> ParseFault:
    reason = f"expected <function=NAME> after {OPEN}"
    return ParseFault(opened, reason, named_tool(text[opened:end]))


def _call(body: str, start: int, docs: Mapping[str, ToolDoc] | None) -> ToolCall:
    """The call of one function block, whose body begins at `start` in the message."""
    name, _, rest = body.partition(">")
    name = name.strip()
    declared: Mapping[str, Any] = {}
    if docs is not None and name in docs:
        declared = docs[name]["function"]["parameters"].get("properties", {})
    arguments: dict[str, Any] = {}
    position = 0
    while (mark := _PARAMETER.search(rest, position)) is not None:
        position = mark.end()
        if mark[1]:  # closes nothing
            continue
        named = rest.find(">", position)
        close = None if named == -1 else _PARAMETER.search(rest, named + 1)
        if close is None:  # a value that nothing ends is left out, as in vLLM
            break
        key = rest[position:named]
        bare = rest[named + 1 : close.start()].removeprefix("\n").removesuffix("\n")
        arguments[key] = _value(bare, _type(declared.get(key)) if docs is not None else "any")
        position = close.start()
    return checked_call(name, arguments, start)


def _type(schema: Any) -> str:
    declared = schema.get("type") if isinstance(schema, dict) else None
    return declared if isinstance(declared, str) else "string"


def _value(bare: str, declared: str) -> Any:
    """A bare value by its declared type; if it does not fit the type, JSON decides."""
    match declared:
        case "string":
            return bare
        case "boolean" if bare.strip().lower() in _BOOLEANS:
            return _BOOLEANS[bare.strip().lower()]
        case "integer" | "number" | "float" if len(bare) <= _LONGEST_NUMBER:
            with contextlib.suppress(ValueError, OverflowError):  # no number, or not finite
                number = int(bare) if declared == "integer" else float(bare)
                return int(number) if number == int(number) else number
    try:
        return json_value(bare)
    except Unreadable:
        return bare
