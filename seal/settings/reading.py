"""Values of a configuration file to typed ones, with every error in one go.

In: plain values (sections are dicts, lists are lists) and the type that they have to have. Out: a
value of this type, or a sentence for each error: which key, what was found, what is allowed.

pydantic does the checking. It is strict: true is no number, "3" is no number, 3.0 is no whole
number; a whole number is a number. A dataclass checks its ranges in `__post_init__`, which runs
once all of its fields have the right type.
"""

import functools
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

STRICT = ConfigDict(strict=True, allow_inf_nan=False, extra="forbid")
"""For a dataclass whose section has no other keys; it also holds for the sections below it."""
STRICT_AMONG_OTHERS = ConfigDict(strict=True, allow_inf_nan=False, extra="ignore")
"""For a dataclass whose section has other keys, too, which verl reads."""
_SHOWN = 60
"""Characters of a value that an error shows."""
_EXPECTED = {
    "int_type": "a whole number",
    "int_parsing_size": "a smaller whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "string_too_short": "text that is not empty",
    "string_pattern_mismatch": "text of the form {pattern}",
    "dataclass_type": "a section with keys and values",
    "dict_type": "a section with keys and values",
    "list_type": "a list",
    "tuple_type": "a list",
    "too_short": "a list of at least {min_length}",
    "too_long": "a list of at most {max_length}",
    "missing_argument": "{argument}",
}
"""What is allowed, by pydantic's type of error; braces are filled from its context."""
_QUOTED = re.compile("'([^']*)'")
_BOUNDS = {
    "greater_than_equal": ("ge", "of at least"),
    "greater_than": ("gt", "above"),
    "less_than_equal": ("le", "of at most"),
    "less_than": ("lt", "below"),
}


class SettingsError(ValueError):
    """A configuration has wrong values; `problems` has a sentence for each of them."""

    def __init__(self, *problems: str) -> None:
        super().__init__("\n  ".join(problems))
        self.problems = problems


def read(kind: TypeAdapter[Any], value: object, key: str = "") -> Any:
    """The value as the type that an adapter is for.

    Args:
        kind: Made by `adapter`.
        value: Plain values: None, true and false, numbers, text, and lists and dicts of them.
        key: The value's key, which errors name; "" for a whole configuration.

    Raises:
        SettingsError: It is not of this type, or out of its range.
    """
    try:
        # As JSON, a list may become a tuple, and text a member of an enumeration.
        return kind.validate_json(json.dumps(value, default=repr))
    except ValidationError as refused:
        raise SettingsError(*(_sentence(error, key) for error in refused.errors())) from None


@functools.cache
def adapter(kind: Any) -> TypeAdapter[Any]:
    """What reads a type: a dataclass with STRICT, or any other annotation."""
    if hasattr(kind, "__pydantic_config__"):
        return TypeAdapter(kind)
    return TypeAdapter(kind, config=ConfigDict(strict=True, allow_inf_nan=False))


def shown(value: object) -> str:
    """A value as a configuration file has it, cut if it is long.

    >>> shown(True), shown(None), shown("abc"), shown([1, "a"])
    ('true', 'null', 'abc', '[1, "a"]')
    """
    text = value if isinstance(value, str) else json.dumps(value, default=repr)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _sentence(error: ErrorDetails, key: str) -> str:
    kind, value, context = error["type"], error["input"], error.get("ctx", {})
    place = _place(key, [part for part in error["loc"] if part != "[key]"])
    if kind == "missing":
        return f"{place} is missing; set it"
    if kind == "unexpected_keyword_argument":
        return f"{place}={shown(value)}: nothing reads this key; remove it"
    if kind == "value_error":
        return _of_section(place, value, str(context["error"]))
    return f"{place}={shown(value)}: expected {_allowed(error)}"


def _of_section(place: str, value: object, reason: str) -> str:
    """What a dataclass says of its fields, with the section's key in front."""
    if not isinstance(value, Mapping):
        return f"{place}={shown(value)}: {reason}"
    if reason.startswith(f"{place}."):
        return reason
    return f"{place}.{reason}" if reason.split(" ", 1)[0] in value else f"{place}: {reason}"


def _allowed(error: ErrorDetails) -> str:
    kind, value, context = error["type"], error["input"], error.get("ctx", {})
    if kind in ("literal_error", "enum"):
        return f"one of {', '.join(_QUOTED.findall(context['expected']))}"
    if kind in _BOUNDS:
        bound, words = _BOUNDS[kind]
        number = "a whole number" if isinstance(context[bound], int) else "a number"
        return f"{number} {words} {context[bound]}"
    if kind == "string_type":
        return "text" + (", in quotes" if isinstance(value, int | float) else "")
    return _EXPECTED.get(kind, error["msg"]).format(**context)


def _place(key: str, parts: Sequence[int | str]) -> str:
    for part in parts:
        key += f"[{part}]" if isinstance(part, int) else f".{part}" if key else part
    return key
