r"""Model text to tool calls and back, in the formats that the backbones were trained on.

In: one assistant message, as raw text or with OpenAI `tool_calls`. Out: its calls, and the attempts
that cannot be read. Whether one bad call spoils the others is a rule of the format. Whether a tool
exists and takes these arguments is not checked here, but by the diagnosis.

Parsing never raises on text, takes time linear in its length and executes nothing. Calls inside a
thinking block (`<think>...</think>`, also if the prompt opened it) are ignored.

Each format is read as bfcl-eval's handler of the model family reads it, in both modes, so a policy
is scored by the benchmark's own reading. docs/backbones.md has a table of the differences.

| format | a call | written by |
|---|---|---|
| hermes | `{"name": ..., "arguments": {...}}`, a tag before and behind it | Qwen2.5, Qwen3 |
| qwen3_coder | `<tool_call><function=f><parameter=a>1</parameter>...` | Qwen3-Coder, Qwen3.5 |
| llama3_json | `{"name": ..., "parameters": {...}}`, parted by `;` | Llama 3 |
| pythonic | `[f(a=1), g(b='x')]` | ToolACE |

>>> message = parse('On it. <tool_call>\n{"name": "ls", "arguments": {}}\n</tool_call>', "hermes")
>>> message.content, message.calls, message.faults
('On it.', (ToolCall(name='ls', arguments={}),), ())
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from seal.formats import hermes, llama3_json, pythonic, qwen3_coder
from seal.formats.message import (
    ParsedMessage,
    ParseFault,
    ToolCall,
    Unreadable,
    checked_call,
    json_value,
)
from seal.wire import Message, ToolDoc

__all__ = [
    "FORMATS",
    "ParseFault",
    "ParsedMessage",
    "ToolCall",
    "parse",
    "parse_structured",
    "render_calls",
]

_Read: TypeAlias = Callable[[str, Mapping[str, ToolDoc] | None], ParsedMessage]
_Render: TypeAlias = Callable[[Sequence[ToolCall]], str]
_FORMATS: Mapping[str, tuple[_Read, _Render]] = {
    "hermes": (lambda text, _: hermes.read(text), hermes.render),
    "qwen3_coder": (qwen3_coder.read, qwen3_coder.render),
    "llama3_json": (lambda text, _: llama3_json.read(text), llama3_json.render),
    "pythonic": (lambda text, _: pythonic.read(text), pythonic.render),
}
FORMATS: tuple[str, ...] = tuple(_FORMATS)
"""Names of the formats."""


def parse(text: str, tool_format: str, docs: Mapping[str, ToolDoc] | None = None) -> ParsedMessage:
    """Read an assistant message.

    Args:
        text: The message as the policy wrote it.
        tool_format: One of FORMATS.
        docs: Tool docs by name. Only qwen3_coder uses them: it writes strings without quotes, so
            only the doc tells the string 94016 from the number. With docs, a value that they do
            not declare is a string; without docs, JSON is read as JSON.

    Raises:
        ValueError: There is no such format.

    >>> parse('[ls(), cat(file=open("x").name)]', "pythonic").faults[0].reason
    "argument 'file' of 'cat' is not a literal"
    """
    read, _ = _known(tool_format)
    return read(text, docs)


def render_calls(calls: Sequence[ToolCall], tool_format: str) -> str:
    """Write calls so that `parse` reads the same calls; without calls the text is empty.

    Raises:
        ValueError: There is no such format, or a name or a string cannot be written in it.

    >>> render_calls([ToolCall("mv", {"source": "a", "n": 1})], "pythonic")
    "[mv(source='a', n=1)]"
    """
    _, render = _known(tool_format)
    return render(calls) if calls else ""


def parse_structured(message: Message) -> ParsedMessage:
    """Read an OpenAI assistant message; arguments may be JSON text or an object.

    The position of a fault is the index of the entry in `tool_calls`. The content is not changed.

    >>> entry = {"id": "1", "type": "function", "function": {"name": "ls", "arguments": "{}"}}
    >>> parse_structured({"role": "assistant", "content": None, "tool_calls": [entry]}).calls
    (ToolCall(name='ls', arguments={}),)
    """
    content = message.get("content")
    text = content if isinstance(content, str) else ""
    entries = message.get("tool_calls")
    if entries is None:
        return ParsedMessage(text, (), ())
    if not isinstance(entries, list):
        return ParsedMessage(text, (), (ParseFault(0, "tool_calls must be a list"),))
    calls: list[ToolCall] = []
    faults: list[ParseFault] = []
    for index, entry in enumerate(entries):
        function = entry.get("function") if isinstance(entry, dict) else None
        name = function.get("name") if isinstance(function, dict) else None
        try:
            calls.append(_structured_call(function, index))
        except Unreadable as fault:
            tool = name if isinstance(name, str) and name.strip() else None
            faults.append(ParseFault(index, fault.reason, tool))
    return ParsedMessage(text, tuple(calls), tuple(faults))


def _structured_call(function: object, index: int) -> ToolCall:
    if not isinstance(function, dict):
        raise Unreadable(index, "an entry of tool_calls must hold a 'function' object")
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        arguments = json_value(arguments)
    return checked_call(function.get("name"), arguments, index)


def _known(tool_format: str) -> tuple[_Read, _Render]:
    if tool_format not in _FORMATS:
        known = ", ".join(FORMATS)
        raise ValueError(f"unknown tool format {tool_format!r}; known formats: {known}")
    return _FORMATS[tool_format]
