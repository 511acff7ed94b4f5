"""Calls as JSON between tags, with line breaks inside the tags, as Qwen's templates write them.

    <tool_call>
    {"name": "cd", "arguments": {"folder": "documents"}}
    </tool_call>

A message is read as bfcl-eval's QwenFCHandler reads it. The text between the lines of the tags must
be one JSON value. If it is no JSON, this call is left out and the others count. If it is JSON but
no call, the whole message is refused. The arguments may be JSON text.
"""

import re
from collections.abc import Sequence

from seal.formats.message import (
    THINK_CLOSE,
    ParsedMessage,
    ParseFault,
    Refused,
    ToolCall,
    Unreadable,
    json_text,
    json_value,
    named_call,
    named_tool,
)
from seal.formats.tags import CLOSE, OPEN, TagWalk

_TAG = re.compile("</?tool_call>|</?think>")
_END = f"\n{CLOSE}"


def read(text: str) -> ParsedMessage:
    """Read a message; without any tag it is a plain answer."""
    walk = TagWalk(text)
    for tag in walk.tags(_TAG):
        start = tag.end()
        if tag[0] == CLOSE:
            if not walk.calls and not walk.faults:  # beside a call a stray tag does no harm
                tool = named_tool(walk.content[-1])
                walk.faults.append(ParseFault(tag.start(), f"{CLOSE} without {OPEN}", tool))
        elif tag[0] == OPEN and not walk.is_full(tag.start()):
            end = text.find(_END, start + 1)
            try:
                walk.calls.append(_call(text, start, end))
                walk.position = end + len(_END)
            except Unreadable as fault:
                walk.refused = walk.refused or isinstance(fault, Refused)
                walk.position = _behind_broken_call(text, start, end)
                tool = named_tool(_broken_text(text, start, walk.position))
                walk.faults.append(ParseFault(fault.position, fault.reason, tool))
    return walk.message()


def render(calls: Sequence[ToolCall]) -> str:
    """One tagged object a call, as the Qwen chat templates write it."""
    objects = ({"name": call.name, "arguments": call.arguments} for call in calls)
    return "\n".join(f"{OPEN}\n{json_text(value)}{_END}" for value in objects)


def _call(text: str, start: int, end: int) -> ToolCall:
    """The call from `start`, behind the opening tag, to `end`; -1 if nothing closes it."""
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


def _broken_text(text: str, start: int, behind: int) -> str:
    """A broken call's own text: up to where reading goes on, or up to the next tag."""
    if behind > start:
        return text[start:behind]
    following = _TAG.search(text, start)
    return text[start : len(text) if following is None else following.start()]


def _behind_broken_call(text: str, start: int, end: int) -> int:
    """Where reading goes on: behind a call that was opened and closed, else at its start.

    If thinking ends inside it, it was a draft. Then the text inside is read, too.
    """
    if not text.startswith("\n", start) or end == -1 or text.find(THINK_CLOSE, start, end) != -1:
        return start
    return end + len(_END)
