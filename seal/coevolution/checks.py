"""Checks of settings and of JSON values; each raises a ValueError that names what is wrong."""

from collections.abc import Mapping
from typing import Any, get_args


def check_share(name: str, value: float) -> None:
    """A setting must be in [0, 1]."""
    if not 0 <= value <= 1:
        raise ValueError(f"{name} must be in [0, 1], got {value}")


def check_choice(name: str, value: str, kind: Any) -> None:
    """A setting must be one of the values of a Literal type."""
    if value not in get_args(kind):
        raise ValueError(f"{name} must be one of {', '.join(get_args(kind))}, got {value!r}")


def json_object(data: object, path: str) -> Mapping[str, Any]:
    """The value, which must be a JSON object; `path` is its name in messages."""
    if not isinstance(data, Mapping):
        raise ValueError(f"{path}: expected an object, got {type(data).__name__}")
    return data


def json_fields(data: object, expected: tuple[str, ...], path: str) -> Mapping[str, Any]:
    """The fields of a JSON object, which must be exactly the expected ones."""
    values = json_object(data, path)
    missing = [name for name in expected if name not in values]
    unknown = [name for name in values if name not in expected]
    if missing or unknown:
        raise ValueError(f"{path}: missing fields {missing}, unknown fields {unknown}")
    return values
