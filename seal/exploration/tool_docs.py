"""Tool docs for a model that is not trained here: in OpenAI's form, and in one line each.

In: docs as the service gives them, with BFCL's type names. Out: docs that any endpoint accepts
(`for_endpoint`), or text (`in_words`).
"""

from collections.abc import Mapping
from typing import Any

from seal.exploration.walk import shortened
from seal.wire import ToolDoc

LONGEST = 300
"""Characters of a description in words."""
_TYPES: Mapping[str, str] = {
    **{"dict": "object", "float": "number", "tuple": "array", "list": "array", "any": "string"},
}
"""BFCL's word -> the word of JSON schema, where they differ."""
_BEFORE, _AFTER = "Tool description: ", " Note that the provided function is in Python 3 syntax."
"""What stands around each description of the benchmark."""


def for_endpoint(doc: ToolDoc) -> ToolDoc:
    """The doc with types of JSON schema, and without what a tool returns.

    >>> doc = {"function": {"name": "ls", "description": "List.", "parameters": {"type": "dict"}}}
    >>> for_endpoint(doc)["function"]["parameters"]
    {'type': 'object'}
    """
    function = doc["function"]
    kept = {key: function[key] for key in ("name", "description") if key in function}
    return {
        "type": "function",
        "function": {**kept, "parameters": _schema(function["parameters"])},
    }


def in_words(doc: ToolDoc) -> str:
    """A tool in one line: its name, its arguments and the beginning of its description.

    >>> in_words({"function": {"name": "cd", "description": "Go there.", "parameters": {
    ...     "properties": {"folder": {"type": "string"}}, "required": ["folder"]}}})
    '- cd(folder: string): Go there.'
    """
    function = doc["function"]
    parameters = function["parameters"]
    required = parameters.get("required", ())
    arguments = [
        f"{name}{'' if name in required else '?'}: {schema.get('type', 'any')}"
        for name, schema in parameters.get("properties", {}).items()
    ]
    about = function.get("description", "").rpartition(_BEFORE)[2].removesuffix(_AFTER)
    return f"- {function['name']}({', '.join(arguments)}): {shortened(about, LONGEST)}"


def _schema(value: Any) -> Any:
    """A schema with other types; `type` may also be the name of an argument."""
    if not isinstance(value, dict):
        return value
    changed = dict(value)
    if isinstance(value.get("type"), str):
        changed["type"] = _TYPES.get(value["type"], value["type"])
    if isinstance(value.get("properties"), dict):
        changed["properties"] = {key: _schema(one) for key, one in value["properties"].items()}
    if "items" in value:
        changed["items"] = _schema(value["items"])
    elif changed.get("type") == "array":
        changed["items"] = {}
    return changed
