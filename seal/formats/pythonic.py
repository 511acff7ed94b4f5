r"""Calls as a Python list: `[f(a=1), g(b='x')]`.

A message is read as bfcl-eval reads the models that it prompts for such a list, e.g. ToolACE. Back
quotes and spaces around the message are removed, missing brackets are added, and the rest must be
one Python expression, a list of calls. Anything else refuses the whole message. Some rules are
surprising: an argument without a name is left out, a bare word is a string, and any sign means
minus. The text is parsed with `ast` and never evaluated; docs/backbones.md lists the differences.

>>> read("```\nmv(source='a', n=2*3)\n```").calls
(ToolCall(name='mv', arguments={'source': 'a', 'n': 6}),)
"""

import ast
import keyword
import operator
import re
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from seal.formats.message import (
    ParsedMessage,
    ParseFault,
    Refused,
    ToolCall,
    Unreadable,
    checked_call,
    mask_thinking,
    read_each,
    refused_message,
)

_ATTEMPT = re.compile(r"^[ \t`]*(?:\[\s*[^\W\d][\w.]*[ \t]*|[^\W\d][\w.]*)\(", re.MULTILINE)
"""The beginning of a call in a message that cannot be read as calls."""
_AROUND = "`\n "
"""Characters that are removed at both ends of a message."""
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n|$)")
_MAX_LENGTH = 50_000
"""Characters of a message: Python's parser takes more than linear time on some texts."""
_MAX_BITS = 1000
"""Bits of an integer that arithmetic may give: about 300 digits, as in every format."""
_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}


def read(text: str) -> ParsedMessage:
    """Read a message; prose that is no list of calls is a plain answer."""
    visible = mask_thinking(text)
    inner = visible.strip(_AROUND)
    source = f"{'' if inner.startswith('[') else '['}{inner}{'' if inner.endswith(']') else ']'}"
    start = len(visible) - len(visible.lstrip(_AROUND)) - (not inner.startswith("["))

    def fault(node: ast.Call, reason: str) -> ParseFault:
        position = max(start + _offset(source, node), 0)
        return ParseFault(position, reason, _name(node.func) or None)

    try:
        calls, faults = read_each(_list(source), _call, fault)
    except Unreadable as error:
        attempt = _ATTEMPT.search(visible)
        return refused_message(visible, attempt.start() if attempt else None, error.reason)
    return ParsedMessage("" if calls or faults else visible.strip(), calls, faults)


def render(calls: Sequence[ToolCall]) -> str:
    """One list.

    Raises:
        ValueError: The name of a tool or an argument is no Python name.
    """
    return f"[{', '.join(_render(call) for call in calls)}]"


def _render(call: ToolCall) -> str:
    for name in (*call.name.split("."), *call.arguments):
        if not name.isidentifier() or keyword.iskeyword(name) or not name.isascii():
            raise ValueError(f"{name!r} is no Python name and cannot be written as pythonic")
    arguments = ", ".join(f"{key}={value!r}" for key, value in call.arguments.items())
    return f"{call.name}({arguments})"


def _list(source: str) -> list[ast.Call]:
    """The calls of a list, as syntax trees."""
    if len(source) > _MAX_LENGTH:
        raise Refused(0, f"the message has more than {_MAX_LENGTH} characters")
    try:
        with warnings.catch_warnings(action="ignore"):  # e.g. of "\d" in a string
            body = ast.parse(source, mode="eval").body
    except SyntaxError as error:
        raise Refused(0, f"not a list of calls in Python syntax: {error.msg}") from None
    except ValueError:
        reason = "not a list of calls in Python syntax: a character that Python does not read"
        raise Refused(0, reason) from None
    except (RecursionError, MemoryError):
        raise Refused(0, "the calls are nested too deeply") from None
    # A comment may hide the closing bracket that was added; then the body is no list.
    elements = body.elts if isinstance(body, ast.List | ast.Tuple) else [body]
    calls = [node for node in elements if isinstance(node, ast.Call)]
    if len(calls) < len(elements):
        raise Refused(0, "expected nothing but calls like name(argument=value)")
    return calls


def _offset(source: str, node: ast.expr) -> int:
    """Where a node begins, in characters (`ast` counts bytes within the line)."""
    lines = _LINE.findall(source)[: node.lineno]
    behind = lines.pop().encode()[: node.col_offset].decode()
    return sum(map(len, lines)) + len(behind)


def _call(node: ast.Call) -> ToolCall:
    """One call. Arguments without a name are left out; of two with one name the last one counts."""
    try:
        name = _name(node.func)
        arguments = {
            argument.arg: _value(argument.value, f"argument {argument.arg!r:.62} of {name!r:.62}")
            for argument in node.keywords
        }
    except RecursionError:
        raise Refused(0, "a call is nested too deeply") from None
    if not name:
        raise Unreadable(0, "the called thing is not a plain tool name")
    if None in arguments:
        raise Unreadable(0, f"arguments of {name!r:.62} are unpacked")
    return checked_call(name, arguments, 0)


def _name(node: ast.expr) -> str:
    """The dotted name; an expression before it that is no name is left out."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if isinstance(node, ast.Name):
        parts.append(node.id)
    return ".".join(reversed(parts))


def _value(node: ast.expr, whose: str) -> Any:
    """An argument's value; `checked_call` finds values that are no JSON.

    Raises:
        Refused: bfcl-eval reads no message with such a value, or only by evaluating text.
        Unreadable: The value is the result of another call.
    """
    match node:
        case ast.Constant(value=value):
            return "..." if value is ... else value
        case ast.UnaryOp(operand=ast.Constant(value=int() | float() | complex() as value)):
            return -value  # for any sign, as in bfcl-eval
        case ast.List(elts=items) | ast.Tuple(elts=items):
            return [_value(item, whose) for item in items]
        case ast.Dict(keys=keys, values=values):
            return _object(keys, [_value(value, whose) for value in values], whose)
        case ast.BinOp():
            try:
                return _computed(node)
            except (_NotArithmetic, ArithmeticError, TypeError):
                raise Refused(0, f"{whose} cannot be computed") from None
        case ast.Name(id=name):
            return name
        case ast.Call(keywords=[]):
            return _source(node, whose)
        case ast.Call(keywords=inner):
            for argument in inner:
                _value(argument.value, whose)
            raise Unreadable(0, f"{whose} is another call")
        case ast.Subscript(value=value, slice=index):
            return f"{_source(value, whose)}[{_source(index, whose)}]"
    raise Refused(0, f"{whose} is not a literal")


def _source(node: ast.expr, whose: str) -> str:
    """The text of an expression, as Python writes it."""
    try:
        return ast.unparse(node)
    except ValueError:  # some f-strings and long numbers cannot be written
        raise Refused(0, f"{whose} is not a literal") from None


def _object(keys: list[ast.expr | None], values: list[Any], whose: str) -> dict[str, Any]:
    if None in keys:
        raise Refused(0, f"{whose} unpacks another object")
    names = [_value(key, whose) for key in keys if key is not None]
    if not all(isinstance(name, str) for name in names):
        raise Unreadable(0, f"{whose} has a key that is no string")
    return dict(zip(names, values, strict=True))


class _NotArithmetic(Exception):
    """An expression holds more than numbers and strings, or its value would be huge."""


def _computed(node: ast.expr) -> Any:
    """The value of arithmetic on written numbers; strings can be joined."""
    match node:
        case ast.Constant(value=int() | float() | str() as value):
            return value
        case ast.UnaryOp(op=ast.UAdd() | ast.USub() as sign, operand=operand):
            value = _computed(operand)
            if isinstance(value, str):
                raise _NotArithmetic
            return -value if isinstance(sign, ast.USub) else +value
        case ast.BinOp(left=left, op=operation, right=right) if type(operation) in _OPERATORS:
            a, b = _computed(left), _computed(right)
            joined = isinstance(operation, ast.Add) and isinstance(b, str)
            if isinstance(a, str) != joined or isinstance(b, str) != joined:
                raise _NotArithmetic
            if isinstance(operation, ast.Pow) and isinstance(a, int) and isinstance(b, int):
                if a.bit_length() * b > _MAX_BITS:
                    raise _NotArithmetic
            return _bounded(_OPERATORS[type(operation)](a, b))
    raise _NotArithmetic


def _bounded(value: Any) -> Any:
    if isinstance(value, int) and value.bit_length() > _MAX_BITS:
        raise _NotArithmetic
    return value
