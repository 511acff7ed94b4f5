"""Calls as a Python list: `[f(a=1), g(b='x')]`.

A message is read as calls if a line starts with `[name(`; any other message is a plain answer. The
list is cut into calls first, so that each stands or falls alone; then each is parsed with `ast`,
and its arguments must be named literals. Nothing is evaluated.
"""

import ast
import keyword
import math
import re
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from seal.formats.message import (
    MAX_FAULTS,
    TOO_MANY,
    ParsedMessage,
    ParseFault,
    ToolCall,
    Unreadable,
    checked_call,
    mask_thinking,
    named_tool,
)

_LIST = re.compile(r"^[ \t]*(\[)\s*[^\W\d][\w.]*[ \t]*\(", re.MULTILINE)
_SPECIAL = re.compile(r"""['"\[\](){},]""")
_STRING_END = {
    "'": re.compile(r"\\.|'|\n", re.DOTALL),
    '"': re.compile(r'\\.|"|\n', re.DOTALL),
    "'''": re.compile(r"\\.|'''", re.DOTALL),
    '"""': re.compile(r'\\.|"""', re.DOTALL),
}
_PARTNER = {"(": ")", "[": "]", "{": "}"}
_MAX_DEPTH = 30
"""Brackets in brackets; keeps Python's parser from trying for long."""
_MAX_LENGTH = 50_000
"""Characters of one call: Python's parser takes more than linear time on some texts."""
_MAX_LIST = 200_000
"""Characters of all calls."""
_MAX_CALLS = 1000


def read(text: str) -> ParsedMessage:
    """Read a message."""
    visible = mask_thinking(text)
    found = _LIST.search(visible)
    if found is None:
        return ParsedMessage(visible.strip(), (), ())
    pieces, end, broken = _cut(visible, found.start(1))
    if end - found.start(1) > _MAX_LIST:
        reason = f"the list of calls has more than {_MAX_LIST} characters"
        fault = ParseFault(found.start(1), reason, named_tool(found[0]))
        return ParsedMessage("", (), (fault,))
    calls: list[ToolCall] = []
    faults: list[ParseFault] = []
    for start, piece in pieces:
        if len(faults) == MAX_FAULTS:
            faults.append(ParseFault(start, TOO_MANY))
            break
        if len(calls) == _MAX_CALLS:
            faults.append(ParseFault(start, f"more than {_MAX_CALLS} calls: the rest was not read"))
            break
        try:
            calls.append(_call(piece, start))
        except Unreadable as error:
            faults.append(ParseFault(error.position, error.reason, named_tool(piece)))
    if broken is not None:
        rest = pieces[-1][0] + len(pieces[-1][1]) if pieces else found.start(1)
        faults.append(replace(broken, tool=named_tool(visible[rest:])))
    content = visible[: found.start(1)] + visible[end:]
    return ParsedMessage(content.strip(), tuple(calls), tuple(faults))


def render(calls: Sequence[ToolCall]) -> str:
    """One list.

    Raises:
        ValueError: A tool's or an argument's name is no Python name.
    """
    return f"[{', '.join(_render(call) for call in calls)}]"


def _render(call: ToolCall) -> str:
    for name in (*call.name.split("."), *call.arguments):
        if not name.isidentifier() or keyword.iskeyword(name) or not name.isascii():
            raise ValueError(f"{name!r} is no Python name and cannot be written as pythonic")
    arguments = ", ".join(f"{key}={value!r}" for key, value in call.arguments.items())
    return f"{call.name}({arguments})"


def _cut(text: str, start: int) -> tuple[list[tuple[int, str]], int, ParseFault | None]:
    """Cut a list at its commas: pieces with their offsets, where it ends, what broke it off."""
    pieces: list[tuple[int, str]] = []
    stack: list[str] = []
    piece_start = start + 1
    position = start
    while (found := _SPECIAL.search(text, position)) is not None:
        at, mark = found.start(), found[0]
        position = at + 1
        if mark in "'\"":
            closed = _string_end(text, at)
            if closed is None:
                return pieces, len(text), ParseFault(at, "a string is never closed")
            position = closed
        elif mark in _PARTNER:
            stack.append(_PARTNER[mark])
            if len(stack) > _MAX_DEPTH:
                return pieces, len(text), ParseFault(at, "the call is nested too deeply")
        elif mark == ",":
            if len(stack) == 1:
                pieces.append((piece_start, text[piece_start:at]))
                piece_start = position
        elif stack.pop() != mark:
            return pieces, len(text), ParseFault(at, f"{mark!r} closes a bracket of another kind")
        elif not stack:
            if text[piece_start:at].strip():  # a comma may end the list
                pieces.append((piece_start, text[piece_start:at]))
            return pieces, position, None
    return pieces, len(text), ParseFault(start, "the list of calls is never closed with ']'")


def _string_end(text: str, at: int) -> int | None:
    """Where the string literal that opens at `at` ends, None if it does not."""
    quote = text[at] * 3 if text.startswith(text[at] * 3, at) else text[at]
    position = at + len(quote)
    while (found := _STRING_END[quote].search(text, position)) is not None:
        if found[0] == quote:
            return found.end()
        if found[0] == "\n":
            return None
        position = found.end()
    return None


def _call(piece: str, offset: int) -> ToolCall:
    if len(piece) > _MAX_LENGTH:
        raise Unreadable(offset, f"a call has more than {_MAX_LENGTH} characters")
    source = piece.strip()
    offset += len(piece) - len(piece.lstrip())
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "\d" in a string is the model's business
            node = ast.parse(source, mode="eval").body
        return _checked(node, offset)
    except SyntaxError as error:
        raise Unreadable(offset, f"not a call in Python syntax: {error.msg}") from None
    except ValueError:
        raise Unreadable(offset, "not a call in Python syntax: null byte") from None
    except (RecursionError, MemoryError):
        raise Unreadable(offset, "the call is nested too deeply") from None


def _checked(node: ast.expr, offset: int) -> ToolCall:
    if not isinstance(node, ast.Call):
        raise Unreadable(offset, "expected a call like name(argument=value)")
    name = _dotted(node.func)
    if name is None:
        raise Unreadable(offset, "the called thing is not a plain tool name")
    if node.args:
        raise Unreadable(offset, f"an argument of {name[:60]!r} is given without its name")
    arguments: dict[str, Any] = {}
    for argument in node.keywords:
        if argument.arg is None or argument.arg in arguments:
            raise Unreadable(offset, f"arguments of {name[:60]!r} are unpacked or given twice")
        try:
            arguments[argument.arg] = _literal(argument.value)
        except _NotLiteral as error:
            reason = f"argument {argument.arg[:60]!r} of {name[:60]!r} {error}"
            raise Unreadable(offset, reason) from None
    return checked_call(name, arguments, offset)


class _NotLiteral(Exception):
    """A value is more than a literal; the text completes "argument 'x' of 'f' ..."."""


def _dotted(node: ast.expr) -> str | None:
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return None
    return ".".join([node.id, *reversed(parts)])


def _literal(node: ast.expr) -> Any:
    match node:
        case ast.Constant(value=str() | bool() | int() | None as value):
            return value
        case ast.Constant(value=float() as value):
            if not math.isfinite(value):
                raise _NotLiteral("is a number that is too large")
            return value
        case ast.UnaryOp(op=ast.USub() | ast.UAdd() as sign, operand=ast.Constant() as operand):
            value = _literal(operand)
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise _NotLiteral("has a sign but is no number")
            return -value if isinstance(sign, ast.USub) else value
        case ast.List(elts=items) | ast.Tuple(elts=items):
            return [_literal(item) for item in items]
        case ast.Dict(keys=keys, values=values):
            names = [None if key is None else _literal(key) for key in keys]
            if not all(isinstance(name, str) for name in names):
                raise _NotLiteral("has a key that is no string")
            return dict(zip(names, map(_literal, values), strict=True))
    raise _NotLiteral("is not a literal")
