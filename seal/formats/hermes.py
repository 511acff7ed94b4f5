"""Calls as JSON between tags, with line breaks inside the tags, as Qwen's templates write them.

    <tool_call>
    {"name": "cd", "arguments": {"folder": "documents"}}
    </tool_call>

Read as bfcl-eval's QwenFCHandler reads it: what stands between the tags' lines must be one JSON
value. One that is no JSON is left out and its siblings count; one that is JSON but no call refuses
the whole message. The arguments may be JSON text. All text before `</think>` is thinking.
"""

import json
import re
from collections.abc import Sequence

from seal.formats.message import (
    MAX_FAULTS,
    THINK_CLOSE,
    THINK_OPEN,
    TOO_MANY,
    ParsedMessage,
    ParseFault,
    Refused,
    ToolCall,
    Unreadable,
    json_value,
    named_call,
    named_tool,
)

OPEN = "<tool_call>"
CLOSE = "</tool_call>"

_MARK = re.compile("</?tool_call>|</?think>")


def read(text: str) -> ParsedMessage:
    """Read a message; without any tag it is a plain answer."""
    content: list[str] = []
    calls: list[ToolCall] = []
    faults: list[ParseFault] = []
    refused = False
    position = 0
    while (mark := _MARK.search(text, position)) is not None:
        content.append(text[position : mark.start()])
        position = mark.end()
        if mark[0] == THINK_OPEN:
            close = text.find(THINK_CLOSE, position)
            position = len(text) if close == -1 else close
        elif mark[0] == THINK_CLOSE:  # all so far was thinking, whoever opened the block
            content.clear()
            calls.clear()
            faults.clear()
            refused = False
        elif mark[0] == CLOSE:
            if not calls and not faults:  # beside a call it is mere clumsiness
                tool = named_tool(content[-1])
                faults.append(ParseFault(mark.start(), f"{CLOSE} without {OPEN}", tool))
        elif len(faults) > MAX_FAULTS:
            continue  # only the end of a thinking block can still change anything
        elif len(faults) == MAX_FAULTS:
            faults.append(ParseFault(mark.start(), TOO_MANY))
        else:
            end = text.find(f"\n{CLOSE}", position + 1)
            try:
                calls.append(_call(text, position, end))
                position = end + len(f"\n{CLOSE}")
            except Unreadable as fault:
                refused = refused or isinstance(fault, Refused)
                behind = _behind_broken_call(text, position, end)
                tool = named_tool(_stretch(text, position, behind))
                faults.append(ParseFault(fault.position, fault.reason, tool))
                position = behind
    content.append(text[position:])
    return ParsedMessage("".join(content).strip(), () if refused else tuple(calls), tuple(faults))


def render(calls: Sequence[ToolCall]) -> str:
    """One tagged object a call, as the Qwen chat templates write it."""
    return "\n".join(f"{OPEN}\n{_object(call)}\n{CLOSE}" for call in calls)


def _object(call: ToolCall) -> str:
    fields = {"name": call.name, "arguments": call.arguments}
    return json.dumps(fields, ensure_ascii=False, allow_nan=False)


def _call(text: str, start: int, end: int) -> ToolCall:
    """The call between `start`, behind the opening tag, and `end`, -1 if nothing closes it."""
    if not text.startswith("\n", start):
        raise Unreadable(start, f"{OPEN} must be followed by a line break")
    if end == -1:
        reason = f"{OPEN} is never closed with a line break and {CLOSE}"
        raise Unreadable(start - len(OPEN), reason)
    try:
        value = json_value(text[start + 1 : end])
    except Unreadable as fault:
        raise Unreadable(start + 1 + fault.position, fault.reason) from None
    if isinstance(value, dict) and isinstance(value.get("arguments"), str):
        try:
            value["arguments"] = json_value(value["arguments"])
        except Unreadable as fault:
            raise Refused(start + 1, f"in the text of 'arguments', {fault.reason}") from None
    return named_call(value, start + 1, "arguments")


def _stretch(text: str, start: int, behind: int) -> str:
    """A broken call's own text: up to where reading goes on, or up to the next tag."""
    if behind > start:
        return text[start:behind]
    following = _MARK.search(text, start)
    return text[start : len(text) if following is None else following.start()]


def _behind_broken_call(text: str, start: int, end: int) -> int:
    """Where to go on: a call that was opened and closed is left out with all that it holds.

    Only not if thinking ends in it: then it was a draft, and what follows counts.
    """
    if not text.startswith("\n", start) or end == -1 or text.find(THINK_CLOSE, start, end) != -1:
        return start
    return end + len(f"\n{CLOSE}")
