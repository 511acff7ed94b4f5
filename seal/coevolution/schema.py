"""Arguments of a call against the schema in its tool's doc.

In: arguments as the policy gave them, `parameters` of the tool doc (BFCL's type names or JSON
schema's). Out: one phrase for each violated rule, with the field, the rule, the expected and the
given type class, and no value. Used by the diagnosis and, through it, by the interface's feedback.
Of JSON schema it knows what tool docs use: type, required, properties, items, enum.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

_LONGEST_NAME = 60
"""Names are the policy's own text; longer ones are cut."""


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_TYPES: Mapping[str, tuple[str, Callable[[object], bool]]] = {
    "string": ("a string", lambda value: isinstance(value, str)),
    "integer": ("an integer", _is_integer),
    "float": ("a number", _is_number),
    "number": ("a number", _is_number),
    "boolean": ("a boolean", lambda value: isinstance(value, bool)),
    "array": ("an array", lambda value: isinstance(value, list | tuple)),
    "tuple": ("an array", lambda value: isinstance(value, list | tuple)),
    "dict": ("an object", lambda value: isinstance(value, dict)),
    "object": ("an object", lambda value: isinstance(value, dict)),
    "null": ("null", lambda value: value is None),
}
"""Declared type -> its class in words and who belongs to it; an integer is a number, too."""


def schema_violations(
    arguments: Mapping[str, Any], parameters: Mapping[str, Any]
) -> tuple[str, ...]:
    """Rules of a tool's schema that the arguments violate, in the schema's order.

    Args:
        arguments: Argument values by name.
        parameters: `function.parameters` of the tool doc.

    >>> schema_violations(
    ...     {"amount": "12", "note": "x"},
    ...     {
    ...         "type": "dict",
    ...         "properties": {"amount": {"type": "float"}, "to": {"type": "string"}},
    ...         "required": ["amount", "to"],
    ...     },
    ... )  # doctest: +NORMALIZE_WHITESPACE
    ("missing required argument 'to'", "unknown argument 'note'",
     "argument 'amount' must be a number, got a string")
    """
    return tuple(_of_object(arguments, parameters, ""))


def type_in_words(declared: str) -> str | None:
    """What a declared type asks for, e.g. "a number"; None where anything goes.

    >>> type_in_words("float"), type_in_words("any")
    ('a number', None)
    """
    return _TYPES[declared][0] if declared in _TYPES else None


def _of_object(given: Mapping[str, Any], schema: Mapping[str, Any], path: str) -> Iterator[str]:
    properties = schema.get("properties", {})
    for name in schema.get("required", ()):
        if name not in given:
            yield f"missing required argument {_quoted(path, name)}"
    if "properties" in schema:  # an object without declared properties takes any
        for name in given:
            if name not in properties:
                yield f"unknown argument {_quoted(path, name)}"
    for name, field in properties.items():
        if name in given:
            yield from _of_value(given[name], field, _join(path, name))


def _of_value(value: object, schema: Mapping[str, Any], path: str) -> Iterator[str]:
    declared = schema.get("type")
    # Other words than these ("any", or none at all) allow every value.
    known = _TYPES.get(declared) if isinstance(declared, str) else None
    if known is not None and not known[1](value):
        yield f"argument {path!r} must be {known[0]}, got {_class_of(value)}"
        return
    # `in` alone would take True for 1.
    allowed = schema.get("enum")
    if allowed is not None and not any(
        value == one and isinstance(value, bool) == isinstance(one, bool) for one in allowed
    ):
        yield f"argument {path!r} is not one of the values that the tool allows"
    if isinstance(value, dict):
        yield from _of_object(value, schema, path)
    elif isinstance(value, list | tuple) and isinstance(schema.get("items"), Mapping):
        for item in value:  # one wrong item tells as much as all of them
            found = list(_of_value(item, schema["items"], path + "[]"))
            if found:
                yield from found
                return


def _class_of(value: object) -> str:
    if value is None:
        return "null"
    for words, belongs in _TYPES.values():
        if belongs(value):
            return words
    return f"a {type(value).__name__}"


def _join(path: str, name: str) -> str:
    return f"{path}.{name[:_LONGEST_NAME]}" if path else name[:_LONGEST_NAME]


def _quoted(path: str, name: str) -> str:
    return repr(_join(path, name))
