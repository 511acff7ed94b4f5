"""The walk over a message whose calls stand between tags, as hermes and qwen3_coder write them.

In: a message and the pattern of a format's tags. Out: the tags outside of thinking, one after the
other; the format reads what follows each. All text before `</think>` is thinking.
"""

import re
from collections.abc import Iterator

from seal.formats.message import (
    MAX_FAULTS,
    THINK_CLOSE,
    THINK_OPEN,
    TOO_MANY,
    ParsedMessage,
    ParseFault,
    ToolCall,
)

OPEN = "<tool_call>"
CLOSE = "</tool_call>"


class TagWalk:
    """What has been read of a message so far."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0
        """Where reading goes on; a format sets it behind what it has read."""
        self.content: list[str] = []
        """The text beside thinking and calls."""
        self.calls: list[ToolCall] = []
        self.faults: list[ParseFault] = []
        self.refused = False
        """One call refuses the whole message, so no call of it counts."""

    def tags(self, pattern: re.Pattern[str]) -> Iterator[re.Match[str]]:
        """The format's tags in order, and `</think>`, which drops everything read so far.

        `pattern` matches the tags of the format, `<think>` and `</think>`.
        """
        while (tag := pattern.search(self.text, self.position)) is not None:
            self.content.append(self.text[self.position : tag.start()])
            self.position = tag.end()
            if tag[0] == THINK_OPEN:
                close = self.text.find(THINK_CLOSE, self.position)
                self.position = len(self.text) if close == -1 else close
                continue
            if tag[0] == THINK_CLOSE:  # the block may have been opened by the prompt
                self.content, self.calls, self.faults, self.refused = [], [], [], False
            yield tag
        self.content.append(self.text[self.position :])

    def is_full(self, position: int) -> bool:
        """Whether so many calls are unreadable that no other one is read; a last fault says so."""
        if len(self.faults) == MAX_FAULTS:
            self.faults.append(ParseFault(position, TOO_MANY))
        return len(self.faults) > MAX_FAULTS

    def message(self) -> ParsedMessage:
        """The message, once all of its tags have been read."""
        calls = () if self.refused else tuple(self.calls)
        return ParsedMessage("".join(self.content).strip(), calls, tuple(self.faults))
