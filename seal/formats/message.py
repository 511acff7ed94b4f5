"""What every format reads a message into, and the checks that all of them share.

In: pieces of a message. Out: calls and faults. Other packages import them from `seal.formats`.
"""

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

Item = TypeVar("Item")

THINK_OPEN = "<think>"
THINK_CLOSE = "</think>"

MAX_FAULTS = 64
"""After this many unreadable calls the rest of a message is not read: each one costs time."""
TOO_MANY = f"more than {MAX_FAULTS} unreadable calls: the rest of the message was not read"

NO_NAME = "the call has no tool name: 'name' must be a non-empty string"

_MAX_DEPTH = 100
_MAX_DIGITS = 300
"""An integer with more digits fits no float, and converting it takes quadratic time."""
_TOO_LARGE = 10**_MAX_DIGITS
_NAMED = (
    re.compile(r"""["']name["']\s*:\s*["']([\w.-]{1,128})(?=[^\w.-])"""),  # {"name": "grep"
    re.compile(r"""<function=\s*([\w.-]{1,128})(?=[^\w.-])"""),  # <function=grep>
    re.compile(r"""(?<![\w.])([^\W\d][\w.]{0,127})\("""),  # grep(
)
"""How a call names its tool in any format, the surest way first. A name that ends with the text may
be cut, so it does not count."""
_TYPE_CLASSES: Mapping[type, str] = {
    **{type(None): "null", bool: "a boolean", int: "an integer", float: "a number"},
    **{str: "a string", list: "an array", tuple: "an array", dict: "an object"},
}
_THINK_LINE = re.compile(r"^[ \t]*<think>", re.MULTILINE)
_SPACE = re.compile(r"[ \t\n\r]*")
"""Spaces in JSON."""


@dataclass(frozen=True)
class ToolCall:
    """One call that could be read."""

    name: str
    """Name of the tool; not empty."""
    arguments: dict[str, Any]
    """Argument values by name: JSON values, numbers finite."""


@dataclass(frozen=True)
class ParseFault:
    """One thing that was meant as a call and cannot be read."""

    position: int
    """Offset in the message, in characters; in a structured message the index of the entry."""
    reason: str
    """What is wrong, as a phrase without a full stop."""
    tool: str | None = None
    """The tool that the unreadable text names, the first of several; None if it names none."""


@dataclass(frozen=True)
class ParsedMessage:
    """An assistant message, taken apart."""

    content: str
    """The text that is neither thinking nor a call, stripped."""
    calls: tuple[ToolCall, ...]
    """Readable calls in order."""
    faults: tuple[ParseFault, ...]
    """Unreadable calls in order."""


class Unreadable(Exception):
    """A call cannot be read; raised and caught inside this package only."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(reason)
        self.position = position
        self.reason = reason


class Refused(Unreadable):
    """A call cannot be read, and therefore no call of the message counts.

    bfcl-eval decodes a message as a whole: if its decoding raises an error, nothing runs.
    """


def read_each(
    items: Iterable[Item],
    read: Callable[[Item], ToolCall],
    fault: Callable[[Item, str], ParseFault],
) -> tuple[tuple[ToolCall, ...], tuple[ParseFault, ...]]:
    """The calls of a message, and a fault for each item that `read` cannot read.

    Raises:
        Refused: An item refuses the whole message.
    """
    calls: list[ToolCall] = []
    faults: list[ParseFault] = []
    for item in items:
        if len(faults) == MAX_FAULTS:
            faults.append(ParseFault(faults[-1].position, TOO_MANY))
            break
        try:
            calls.append(read(item))
        except Refused:
            raise
        except Unreadable as error:
            faults.append(fault(item, error.reason))
    return tuple(calls), tuple(faults)


def refused_message(visible: str, attempt: int | None, reason: str) -> ParsedMessage:
    """A message, without its thinking, that cannot be read as calls.

    It is one fault if a call was attempted (at the position `attempt`), else a plain answer.
    """
    if attempt is None:
        return ParsedMessage(visible.strip(), (), ())
    fault = ParseFault(attempt, reason, only_named_tool(visible[attempt:]))
    return ParsedMessage(visible.strip(), (), (fault,))


def json_text(value: object) -> str:
    """A JSON value as text; ValueError for a number that is not finite."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def json_at(text: str, position: int) -> tuple[Any, int]:
    """Decode the JSON value that starts at a position; returns it and its end.

    It is stricter than `json`: NaN, Infinity and numbers that overflow are Unreadable.
    """
    try:
        return _DECODER.raw_decode(text, position)
    except json.JSONDecodeError as error:
        reason = f"the call is not valid JSON: {error.msg}"
        raise Unreadable(min(error.pos, len(text)), reason) from None
    except ValueError as error:  # from the number hooks below
        raise Unreadable(position, str(error)) from None
    except RecursionError:
        raise Unreadable(position, "the call is nested too deeply") from None


def json_value(text: str) -> Any:
    """Decode a text that is one JSON value and nothing else, or raise Unreadable."""
    start = skip_space(text, 0)
    value, end = json_at(text, start)
    if skip_space(text, end) < len(text):
        raise Unreadable(end, "the call is not valid JSON: Extra data")
    return value


def checked_call(
    name: object, arguments: object, position: int, arguments_key: str = "arguments"
) -> ToolCall:
    """A call, or Unreadable if the name is no name or the arguments no object of JSON values."""
    if not isinstance(name, str) or not name.strip():
        raise Unreadable(position, NO_NAME)
    if not isinstance(arguments, dict):
        raise Unreadable(position, _no_object(arguments_key, arguments))
    if _deeper(arguments, _MAX_DEPTH):
        raise Unreadable(position, f"arguments are nested more than {_MAX_DEPTH} deep")
    try:
        plain: dict[str, Any] = _json_form(arguments)
        # Encoding finds lone surrogates, which no later JSON reply could carry.
        json_text([name, plain]).encode("utf-8")
    except (TypeError, ValueError) as error:  # UnicodeEncodeError is a ValueError
        raise Unreadable(position, f"an argument is no JSON value: {_first_line(error)}") from None
    except RecursionError:
        raise Unreadable(position, "the call is nested too deeply") from None
    return ToolCall(name, plain)


def _json_form(value: Any) -> Any:
    """The value with lists for tuples.

    Raises:
        TypeError: A key is no string.
        ValueError: An integer has too many digits.
    """
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise TypeError("an object's key is no string")
        return {key: _json_form(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_json_form(inner) for inner in value]
    if isinstance(value, int) and abs(value) >= _TOO_LARGE:
        raise ValueError(f"an integer has more than {_MAX_DIGITS} digits")
    return value


def _deeper(value: object, limit: int) -> bool:
    """Whether a value is nested deeper than the limit. Tools copy and print values recursively."""
    level = [value]
    for _ in range(limit):
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list | tuple)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
        if not level:
            return False
    return any(isinstance(inner, dict | list | tuple) for inner in level)


def named_call(value: object, position: int, key: str) -> ToolCall:
    """A call from {"name": ..., key: {...}}.

    Raises:
        Refused: It has another form.
        Unreadable: The name or a value cannot be used in a call.
    """
    if not isinstance(value, dict):
        raise Refused(position, f"a call must be a JSON object, got {type_class(value)}")
    if "name" not in value:
        raise Refused(position, NO_NAME)
    arguments = value.get(key)
    if not isinstance(arguments, dict):
        raise Refused(position, _no_object(key, arguments))
    return checked_call(value["name"], arguments, position, key)


def named_tool(stretch: str) -> str | None:
    """The tool that an unreadable text names in any format; the first of several.

    >>> named_tool('{"name": "grep", "arguments": {'), named_tool("<function=cd><param")
    ('grep', 'cd')
    >>> named_tool("mv(source='a', "), named_tool('{"name": "rm'), named_tool("no call")
    ('mv', None, None)
    """
    return next(iter(_named(stretch)), None)


def only_named_tool(stretch: str) -> str | None:
    """The same for a message that is refused whole; None if it names several tools.

    If one of several tools runs later, this does not repair the calls of the others.

    >>> only_named_tool("[cd(folder='a'), grep(pattern=)]"), only_named_tool("[cd(folder=)]")
    (None, 'cd')
    """
    names = _named(stretch)
    return names[0] if len(names) == 1 else None


def _named(stretch: str) -> list[str]:
    """The first two tools that a text names, by the surest pattern that finds one.

    Models mix the formats, so the patterns of all formats are tried. This takes time linear in the
    length: a name has at most 128 characters, and each pattern tries each word once.
    """
    for pattern in _NAMED:
        names: dict[str, None] = {}
        for match in pattern.finditer(stretch):
            names[match[1]] = None
            if len(names) == 2:
                break
        if names:
            return list(names)
    return []


def type_class(value: object) -> str:
    """The JSON type of a value in words.

    >>> type_class(True), type_class(1), type_class(1.5), type_class([])
    ('a boolean', 'an integer', 'a number', 'an array')
    """
    return _TYPE_CLASSES.get(type(value), f"a {type(value).__name__}")


def mask_thinking(text: str) -> str:
    """The text with spaces in place of thinking; all other characters keep their positions.

    Only a block that opens at the start of a line is thinking. Inside a call's string the tag is
    part of an argument.

    >>> mask_thinking("<think>a</think>b")
    '                b'
    """
    first_close = text.find(THINK_CLOSE)
    first_open = text.find(THINK_OPEN)
    position = 0
    parts: list[str] = []
    # A block that the prompt opened ends with a line; a string that quotes the tag rarely does.
    if first_close != -1 and (first_open == -1 or first_close < first_open):
        end = first_close + len(THINK_CLOSE)
        if text[end : end + 1] in ("", "\n"):
            parts.append(" " * end)
            position = end
    while (opened := _THINK_LINE.search(text, position)) is not None:
        close = text.find(THINK_CLOSE, opened.end())
        end = len(text) if close == -1 else close + len(THINK_CLOSE)
        parts += [text[position : opened.start()], " " * (end - opened.start())]
        position = end
    parts.append(text[position:])
    return "".join(parts)


def skip_space(text: str, position: int) -> int:
    """The position of the next character that is no space, or the end."""
    spaces = _SPACE.match(text, position)
    return position if spaces is None else spaces.end()


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError("a number is too large")
    return value


def _bounded(digits: str) -> int:
    if len(digits) > _MAX_DIGITS:
        raise ValueError(f"an integer has more than {_MAX_DIGITS} digits")
    return int(digits)


def _no_object(key: str, given: object) -> str:
    got = "nothing" if given is None else type_class(given)
    return f"{key!r} must be an object of argument names and values, got {got}"


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0][:120]


_DECODER = json.JSONDecoder(
    parse_constant=_refuse_constant, parse_float=_finite, parse_int=_bounded
)
