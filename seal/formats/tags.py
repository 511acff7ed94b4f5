"""The walk over `<tool_call>` tags and thinking blocks that hermes and qwen3_coder share."""

import re
from collections.abc import Callable

from seal.formats.message import (
    MAX_FAULTS,
    THINK_CLOSE,
    THINK_OPEN,
    TOO_MANY,
    ParsedMessage,
    ParseFault,
    ToolCall,
    Unreadable,
    named_tool,
)

OPEN = "<tool_call>"
CLOSE = "</tool_call>"

ReadBody = Callable[[str, int], tuple[ToolCall, int]]
"""Reads a call behind its opening tag; returns it and where its closing tag ends."""

_MARK = re.compile("</?tool_call>|</?think>")
_TOOL_MARK = re.compile("</?tool_call>")


def read_tagged(text: str, read_body: ReadBody) -> ParsedMessage:
    """Read every tagged call outside thinking blocks."""
    content: list[str] = []
    calls: list[ToolCall] = []
    faults: list[ParseFault] = []
    position = 0
    while (mark := _MARK.search(text, position)) is not None:
        content.append(text[position : mark.start()])
        position = mark.end()
        if mark[0] == THINK_OPEN:
            close = text.find(THINK_CLOSE, position)
            position = len(text) if close == -1 else close + len(THINK_CLOSE)
        elif mark[0] == THINK_CLOSE:  # the prompt opened the block: all so far was thinking
            content.clear()
            calls.clear()
            faults.clear()
        elif mark[0] == CLOSE:
            if not calls and not faults:  # beside a call it is mere clumsiness
                tool = named_tool(content[-1])
                faults.append(ParseFault(mark.start(), f"{CLOSE} without {OPEN}", tool))
        elif len(faults) > MAX_FAULTS:
            continue  # only the end of a thinking block can still change anything
        elif len(faults) == MAX_FAULTS:
            faults.append(ParseFault(mark.start(), TOO_MANY))
        else:
            try:
                call, position = read_body(text, position)
                calls.append(call)
            except Unreadable as fault:
                end, behind = _end_of_broken_call(text, position)
                tool = named_tool(text[position:end])
                faults.append(ParseFault(fault.position, fault.reason, tool))
                position = behind
    content.append(text[position:])
    return ParsedMessage("".join(content).strip(), tuple(calls), tuple(faults))


def closing_tag(text: str, body: int, search_from: int) -> int:
    """Where the closing tag stands of the call whose body starts at `body`."""
    mark = _TOOL_MARK.search(text, search_from)
    if mark is None or mark[0] == OPEN:
        raise Unreadable(body - len(OPEN), f"{OPEN} is never closed with {CLOSE}")
    return mark.start()


def _end_of_broken_call(text: str, position: int) -> tuple[int, int]:
    """Where the body that starts at `position` ends, and where to go on.

    That is behind the closing tag, or at the next opening tag if that comes first. An unclosed call
    swallows nothing: what follows it is walked as if it were not there, so that the end of a
    thinking block is still seen.
    """
    mark = _TOOL_MARK.search(text, position)
    if mark is None:
        return len(text), position
    return mark.start(), mark.end() if mark[0] == CLOSE else position
