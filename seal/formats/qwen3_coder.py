r"""Calls as tags all the way down, values written bare.

    <tool_call>
    <function=cd>
    <parameter=folder>
    documents
    </parameter>
    </function>
    </tool_call>

A string stands as it is, everything else as JSON. What the value 94016 means, only the tool's doc
can tell; without one it is read as JSON if it is JSON. A string that would be misread is written
with JSON quotes, and quotes around a whole string are taken off.

>>> read("<tool_call><function=f><parameter=n>1</parameter></function></tool_call>", {}).calls
(ToolCall(name='f', arguments={'n': 1}),)
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from seal.formats.message import ParsedMessage, ToolCall, Unreadable, checked_call, json_value
from seal.formats.tags import CLOSE, OPEN, closing_tag, read_tagged
from seal.wire import ToolDoc

_FUNCTION = re.compile(r"\s*<function=([^>\n]*)>")
_PARAMETER = re.compile(r"\s*<parameter=([^>\n]*)>")
_PARAMETER_CLOSE = "</parameter>"
_END = re.compile(r"\s*</function>\s*")


def read(text: str, docs: Mapping[str, ToolDoc]) -> ParsedMessage:
    """Read a message; `docs`, by tool name, say which arguments are strings."""
    return read_tagged(text, lambda text, position: _read_body(text, position, docs))


def render(calls: Sequence[ToolCall]) -> str:
    """One tagged block a call.

    Raises:
        ValueError: A tool's or an argument's name holds `>` or a line break.
    """
    return "\n".join(_render(call) for call in calls)


def _render(call: ToolCall) -> str:
    for name in (call.name, *call.arguments):
        if not name.strip() or name != name.strip() or re.search(r"[>\n]", name):
            raise ValueError(f"{name!r} cannot be written as a qwen3_coder tag")
    parameters = "".join(
        f"<parameter={key}>\n{_written(value)}\n{_PARAMETER_CLOSE}\n"
        for key, value in call.arguments.items()
    )
    return f"{OPEN}\n<function={call.name}>\n{parameters}</function>\n{CLOSE}"


def _written(value: Any) -> str:
    if isinstance(value, str) and not any(mark in value for mark in "<\r"):
        if _value(value, None) == value:
            return value
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    return text.replace("<", "\\u003c")  # only strings can hold one


def _read_body(text: str, position: int, docs: Mapping[str, ToolDoc]) -> tuple[ToolCall, int]:
    end = closing_tag(text, position, position)
    function = _FUNCTION.match(text, position, end)
    if function is None:
        raise Unreadable(position, f"expected <function=NAME> after {OPEN}")
    name = function[1].strip()
    declared = docs[name]["function"]["parameters"].get("properties", {}) if name in docs else {}
    arguments: dict[str, Any] = {}
    at = function.end()
    while (parameter := _PARAMETER.match(text, at, end)) is not None:
        key = parameter[1].strip()
        close = text.find(_PARAMETER_CLOSE, parameter.end(), end)
        if close == -1:
            raise Unreadable(parameter.start(1), f"<parameter={key[:60]}> is never closed")
        if not key or key in arguments:
            fault = "is given twice" if key else "has no name"
            raise Unreadable(parameter.start(1), f"argument {key[:60]!r} {fault}")
        bare = text[parameter.end() : close].removeprefix("\n").removesuffix("\n")
        arguments[key] = _value(bare, declared[key].get("type") if key in declared else None)
        at = close + len(_PARAMETER_CLOSE)
    closing = _END.match(text, at, end)
    if closing is None or closing.end() != end:
        raise Unreadable(at, f"expected <parameter=NAME> or </function> and {CLOSE}")
    return checked_call(name, arguments, function.start(1)), end + len(CLOSE)


def _value(bare: str, declared: str | None) -> Any:
    """A bare value; `declared` is the type in the tool's doc, None if there is no doc."""
    if declared == "boolean" and bare.strip().lower() in ("true", "false"):
        return bare.strip().lower() == "true"
    try:
        value = json_value(bare)
    except Unreadable:
        return bare
    return bare if declared == "string" and not isinstance(value, str) else value
