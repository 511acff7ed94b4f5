"""Tool docs as text, for the system message of an episode with `tools = "prompt"`.

In: tool docs and the format in which the policy writes calls. Out: the text. With
`tools = "structured"` the policy's own chat template renders the docs instead.
"""

import json
from collections.abc import Sequence

from seal.formats import ToolCall, render_calls
from seal.wire import ToolDoc

_EXAMPLE = ToolCall("tool_name", {"argument_name": "argument value"})


def tool_prompt(docs: Sequence[ToolDoc], tool_format: str) -> str:
    """Docs as JSON lines between <tools> tags, and how a call is written."""
    lines = "\n".join(json.dumps(doc) for doc in docs)
    return (
        "You solve a user's requests with tools. These are the tools, one JSON object a line:\n"
        f"<tools>\n{lines}\n</tools>\n\n"
        "Write a call like this, with the tool's own name and arguments:\n"
        f"{render_calls([_EXAMPLE], tool_format)}\n\n"
        "One message may hold several calls; their results come back in the same order. Go on "
        "until the request is done, then answer without a call: the user speaks next. Answer "
        "without a call as well if no tool fits or if a needed value is unknown."
    )
