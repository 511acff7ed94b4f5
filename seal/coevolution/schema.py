"""Arguments of a call against the schema in its tool's doc.

In: arguments as the policy gave them, and `parameters` of the tool doc (with BFCL's type names or
those of JSON schema). Out: one phrase for each violated rule. It names the field, the rule, the
expected and the given type, but no value.

The jsonschema library checks, by draft 2020-12. This module translates BFCL's words into those of
JSON schema and writes the phrases, because the library's messages quote values. Three rules are
stricter than the draft, because the tools are Python functions: an argument that the doc does not
declare is a violation, a boolean is never a number, and 1.0 is no integer.
"""

import functools
import itertools
import json
from collections.abc import Iterator, Mapping
from typing import Any

# The library ships no type hints.
from jsonschema import (  # type: ignore[import-untyped]
    Draft202012Validator,
    ValidationError,
    validators,
)

from seal.formats.message import type_class

_LONGEST_NAME = 60
"""Names are text of the policy; longer ones are cut."""
_MOST_ERRORS = 100
"""Errors of one call that are read; a list of a thousand wrong items has a thousand errors."""

_JSON_TYPES: Mapping[str, str] = {
    "string": "string",
    "integer": "integer",
    "float": "number",
    "number": "number",
    "boolean": "boolean",
    "array": "array",
    "tuple": "array",
    "dict": "object",
    "object": "object",
    "null": "null",
}
"""Declared type -> type of JSON schema; other words ("any") allow every value."""

_WORDS: Mapping[str, str] = {
    "boolean": "a boolean",
    "integer": "an integer",
    "number": "a number",
    "string": "a string",
    "array": "an array",
    "object": "an object",
    "null": "null",
}
"""Type of JSON schema -> in words, as `type_class` says it."""


def schema_violations(
    arguments: Mapping[str, Any], parameters: Mapping[str, Any]
) -> tuple[str, ...]:
    """Rules of a tool's schema that the arguments violate, in the schema's order.

    `parameters` is `function.parameters` of the tool doc.

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
    # The key is the text of the doc: after a doc is deleted, another one may get its identity.
    errors = _validator(json.dumps(parameters)).iter_errors(dict(arguments))
    # An ordered set: the library gives one error for each missing name, and each names all of them.
    phrases: dict[str, None] = {}
    decided: dict[tuple[str | int, ...], Any] = {}
    for error in itertools.islice(errors, _MOST_ERRORS):
        if _says_more(error, decided):
            phrases.update(dict.fromkeys(_phrases(error)))
    return tuple(phrases)


def type_in_words(declared: str) -> str | None:
    """A declared type in words, e.g. "a number"; None if it allows every value.

    >>> type_in_words("float"), type_in_words("any")
    ('a number', None)
    """
    return _WORDS[_JSON_TYPES[declared]] if declared in _JSON_TYPES else None


@functools.lru_cache(maxsize=1024)
def _validator(parameters: str) -> Any:
    return _Validator(_translated(json.loads(parameters)))


def _translated(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of a doc as JSON schema; its order is the order of the violations."""
    translated: dict[str, Any] = {}
    declared = schema.get("type")
    if isinstance(declared, str) and declared in _JSON_TYPES:
        translated["type"] = _JSON_TYPES[declared]
    if "required" in schema:
        translated["required"] = schema["required"]
    if "properties" in schema:  # an object without declared properties allows any
        translated["additionalProperties"] = schema.get("additionalProperties", False)
        translated["properties"] = {
            name: _translated(field) for name, field in schema["properties"].items()
        }
    if isinstance(schema.get("items"), Mapping):
        translated["items"] = _translated(schema["items"])
    ours = {"type", "required", "additionalProperties", "properties", "items"}
    return translated | {word: rule for word, rule in schema.items() if word not in ours}


def _type(validator: Any, declared: str, value: object, schema: object) -> Iterator[Any]:
    """The library's rule without its message, which fails on a value that is too deep for repr."""
    if not validator.is_type(value, declared):
        yield ValidationError(declared)


_Validator = validators.extend(
    Draft202012Validator,
    {"type": _type},
    type_checker=Draft202012Validator.TYPE_CHECKER.redefine_many(
        {
            "integer": lambda _, value: isinstance(value, int) and not isinstance(value, bool),
            "array": lambda _, value: isinstance(value, list | tuple),
        }
    ),
)


def _says_more(error: Any, decided: dict[tuple[str | int, ...], Any]) -> bool:
    """Whether an error is new; of a list only the first wrong item counts.

    `decided` keeps the first wrong index of each list, and None for each value of a wrong type.
    """
    path = tuple(error.absolute_path)
    for place, step in enumerate(path):
        if isinstance(step, int) and decided.setdefault(path[:place], step) != step:
            return False
    if path in decided and decided[path] is None:
        return False
    if error.validator == "type":
        decided[path] = None
    return True


def _phrases(error: Any) -> Iterator[str]:
    path = _joined(error.absolute_path)
    match error.validator:
        case "required":
            for name in error.validator_value:
                if name not in error.instance:
                    yield f"missing required argument {_inner(path, name)!r}"
        case "additionalProperties":
            for name in error.instance:
                if name not in error.schema["properties"]:
                    yield f"unknown argument {_inner(path, name)!r}"
        case "type":
            wanted, given = _WORDS[error.validator_value], type_class(error.instance)
            yield f"argument {path!r} must be {wanted}, got {given}"
        case "enum":
            yield f"argument {path!r} is not one of the values that the tool allows"
        case rule:
            yield f"argument {path!r} breaks the rule {rule!r} of its schema"


def _joined(path: Iterator[str | int]) -> str:
    joined = ""
    for step in path:
        joined = joined + "[]" if isinstance(step, int) else _inner(joined, step)
    return joined


def _inner(path: str, name: str) -> str:
    return f"{path}.{name[:_LONGEST_NAME]}" if path else name[:_LONGEST_NAME]
