"""A good call, and how each format writes it."""

from seal.formats import FORMATS, ToolCall, render_calls

LS = ToolCall("ls", {"a": True})
GOOD = {name: render_calls([LS], name) for name in FORMATS}


def hermes(body: str) -> str:
    return f"<tool_call>\n{body}\n</tool_call>"
