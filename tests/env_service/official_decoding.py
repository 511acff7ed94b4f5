"""What bfcl-eval's handlers read in a message, and the rows of docs/backbones.md that a text meets.

In: a message and a format. Out: the calls that the benchmark would run (`official_calls`), and the
differences from this project's reading that the text can meet (`differences`), judged from the text
alone. The handlers run unmodified, from the server's reply to the strings that are evaluated.
Called by test_formats_official.py.
"""

import ast
import contextlib
import functools
import json
import keyword
import math
import re
import tempfile
import warnings
from collections.abc import Iterator
from enum import StrEnum
from types import SimpleNamespace
from typing import Any

import pytest

ENTRIES = {
    "pythonic": "Team-ACE/ToolACE-2-8B",
    "llama3_json": "meta-llama/Llama-3.1-8B-Instruct-FC",
    "hermes": "Qwen/Qwen3-8B-FC",
}
"""Of each format a model in bfcl-eval's table that is run with the family's handler."""


@functools.cache
def handler(tool_format: str) -> Any:
    """The handler of a format's entry; bfcl-eval makes folders as it is imported."""
    with tempfile.TemporaryDirectory() as scratch, pytest.MonkeyPatch.context() as patch:
        patch.setenv("BFCL_PROJECT_ROOT", scratch)
        from bfcl_eval.model_handler.local_inference.llama import LlamaHandler
        from bfcl_eval.model_handler.local_inference.llama_3_1 import LlamaHandler_3_1
        from bfcl_eval.model_handler.local_inference.qwen_fc import QwenFCHandler
    kinds = {"pythonic": LlamaHandler, "llama3_json": LlamaHandler_3_1, "hermes": QwenFCHandler}
    entry = ENTRIES[tool_format]
    return kinds[tool_format](entry.removesuffix("-FC"), 0.0, entry, entry.endswith("-FC"))


class Difference(StrEnum):
    """A row of the table in docs/backbones.md."""

    THINKING = "thinking"
    LIMITS = "limits"
    NO_JSON_VALUE = "no JSON value"
    NAMES = "names"
    EVALUATED = "evaluated"
    NESTED_CALL = "nested call"
    OBJECT = "object"
    UNPACKED = "unpacked"
    SEMICOLON = "semicolon"
    JSON_WORDS = "JSON words"


def official_calls(text: str, tool_format: str) -> list[str]:
    """The strings that bfcl-eval would evaluate; none where it goes on to the next turn."""
    usage = SimpleNamespace(prompt_tokens=1, completion_tokens=1)
    reply = SimpleNamespace(choices=[SimpleNamespace(text=text)], usage=usage)
    family = handler(tool_format)
    said = family._parse_query_response_prompting(reply)["model_responses"]
    with warnings.catch_warnings(), contextlib.suppress(Exception):
        warnings.simplefilter("ignore")
        return list(family.decode_execute(said, has_tool_call_tag=False))
    return []


def read_call(written: str) -> tuple[str, str]:
    """Name and arguments of a string that would be evaluated; tuples count as lists."""
    node = ast.parse(written, mode="eval").body
    assert isinstance(node, ast.Call) and not node.args, written
    arguments = {one.arg: _plain(ast.literal_eval(one.value)) for one in node.keywords}
    return ast.unparse(node.func), repr(arguments)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, list | tuple) else value


# ---- which rows a text meets -------------------------------------------------------------------


def differences(text: str, tool_format: str) -> frozenset[Difference]:
    """The rows that a text can meet."""
    found = {
        "pythonic": _pythonic_differences,
        "llama3_json": _llama_differences,
        "hermes": _json_differences,
    }[tool_format](text)
    if text.count("[") + text.count("{") + text.count("(") > 100 or len(text) > 50_000:
        found.add(Difference.LIMITS)
    if _meets_thinking(text, tool_format):
        found.add(Difference.THINKING)
    return frozenset(found)


def _meets_thinking(text: str, tool_format: str) -> bool:
    if tool_format != "hermes":
        return "<think>" in text or "</think>" in text
    unclosed = text.rfind("<think>") > text.rfind("</think>")
    return unclosed or any("</think>" in one for one in _strings(text))


def _strings(text: str) -> Iterator[str]:
    for one in re.finditer(r'"(?:[^"\\\n]|\\.)*"' + r"|'(?:[^'\\\n]|\\.)*'", text):
        yield one[0]


def _json_differences(text: str) -> set[Difference]:
    found = set()
    if re.search(r"NaN|Infinity|[eE]\+?\d{3}|\d{300}|\\u[dD][89a-fA-F]|[\ud800-\udfff]", text):
        found.add(Difference.NO_JSON_VALUE)
    text = text.replace(chr(92) + chr(34), chr(34))  # arguments may be JSON text in JSON text
    keys = re.findall(r"""("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')\s*:""", text)
    if any(not one[1:-1].isidentifier() or keyword.iskeyword(one[1:-1]) for one in keys):
        found.add(Difference.NAMES)
    for name in re.findall(r"""["']name["']\s*:\s*("[^"]*"|'[^']*'|.)""", text):
        if not all(part.isidentifier() for part in name[1:-1].split(".")) or len(name) == 1:
            found.add(Difference.NAMES)
    return found


def _llama_differences(text: str) -> set[Difference]:
    text = text.replace("<|python_tag|>", "")
    found = _json_differences(text)
    if any(";" in one for one in _strings(text)):
        found.add(Difference.SEMICOLON)
    tree = _parsed(text)
    if ";" in text or tree is None:
        with contextlib.suppress(ValueError):  # JSON behind an indentation that Python refuses
            json.loads(text)
            found |= {Difference.JSON_WORDS} if ";" not in text and tree is None else set()
        return found
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in ("true", "false", "null"):
            found.add(Difference.JSON_WORDS)
        elif isinstance(node, ast.Constant) and (node.value is ... or _is_no_json(node.value)):
            found.add(Difference.NO_JSON_VALUE)
        elif isinstance(node, ast.Set):
            found.add(Difference.NO_JSON_VALUE)
        elif isinstance(node, ast.Dict) and not _string_keys(node):
            found.add(Difference.NO_JSON_VALUE)
        elif not isinstance(node, _LITERAL):
            found.add(Difference.EVALUATED)
    return found


_LITERAL = (
    *(ast.Constant, ast.Dict, ast.List, ast.Tuple, ast.UnaryOp, ast.USub, ast.UAdd),
    *(ast.Load, ast.Expression, ast.Set, ast.Name),
)


def _pythonic_differences(text: str) -> set[Difference]:
    inner = text.strip("`\n ")
    tree = _parsed(f"{'' if inner[:1] == '[' else '['}{inner}{'' if inner[-1:] == ']' else ']'}")
    found: set[Difference] = set()
    for node in () if tree is None else ast.walk(tree):
        match node:
            case ast.BinOp() if not _plain_arithmetic(node):
                found.add(Difference.EVALUATED)
            case ast.Call():
                found |= _call_differences(node)
            case ast.Dict():
                found |= _object_differences(node)
            case ast.Constant(value=value) if _is_no_json(value):
                found.add(Difference.NO_JSON_VALUE)
    return found


def _object_differences(node: ast.Dict) -> set[Difference]:
    found = set()
    keys = [key.value for key in node.keys if isinstance(key, ast.Constant)]
    if not _string_keys(node):
        found.add(Difference.NO_JSON_VALUE)
    quoted = any(isinstance(key, str) and re.search(r"['\\\n\r]", key) for key in keys)
    if quoted or all(isinstance(value, ast.Dict | ast.Call) for value in node.values):
        found.add(Difference.OBJECT)
    return found


def _call_differences(node: ast.Call) -> set[Difference]:
    found = set()
    base = node.func
    while isinstance(base, ast.Attribute):
        base = base.value
    if not isinstance(base, ast.Name):
        found.add(Difference.NAMES)
    if any(one.arg is None for one in node.keywords):
        found.add(Difference.UNPACKED)
    for one in node.keywords:
        if any(isinstance(inner, ast.Call) and inner.keywords for inner in ast.walk(one.value)):
            found.add(Difference.NESTED_CALL)
    return found


def _string_keys(node: ast.Dict) -> bool:
    return all(isinstance(key, ast.Constant) and isinstance(key.value, str) for key in node.keys)


def _is_no_json(value: object) -> bool:
    if isinstance(value, float) and not math.isfinite(value):
        return True
    if isinstance(value, int) and abs(value) >= 10**300:
        return True
    surrogates = isinstance(value, str) and re.search("[\ud800-\udfff]", value)
    return isinstance(value, bytes | complex) or bool(surrogates)


def _plain_arithmetic(node: ast.BinOp) -> bool:
    """Numbers with + - * / // % and small powers, or strings put together."""
    inner = [one for one in ast.walk(node) if not isinstance(one, _ARITHMETIC)]
    values = [one.value for one in ast.walk(node) if isinstance(one, ast.Constant)]
    if inner or any(isinstance(value, str | bytes) for value in values):
        joined = all(
            isinstance(one, ast.BinOp | ast.Add | ast.Constant | ast.Load) for one in inner
        )
        return joined and all(isinstance(value, str) for value in values)
    return all(isinstance(value, int | float) and abs(value) < 100 for value in values)


_ARITHMETIC = (
    *(ast.BinOp, ast.UnaryOp, ast.USub, ast.UAdd, ast.Constant, ast.Load, ast.Add, ast.Sub),
    *(ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow),
)


def _parsed(text: str) -> ast.Expression | None:
    with warnings.catch_warnings(), contextlib.suppress(Exception):
        warnings.simplefilter("ignore")
        return ast.parse(text.lstrip(" \t"), mode="eval")
    return None
