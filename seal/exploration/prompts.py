"""What the model is told: to explore, to propose tasks, to reword one.

In: tool docs, what calls returned, messages. Out: chat messages. The seed's own request is in none
of them: the model is to find out what the tools can do, and not to vary a task of the benchmark.
"""

import hashlib
import json
from collections.abc import Sequence

from seal.exploration.tool_docs import in_words
from seal.exploration.walk import Seen, shortened
from seal.wire import Message, ToolDoc

LONGEST_RESULT = 1200
"""Characters of a result that are shown when tasks are to be written."""

EXPLORE = """\
You explore the tools of a simulated world. Call tools to find out what is there and what they do: \
look around first, then look things up and change something. Use values that earlier results have \
shown. Nothing here is real, and there is nobody whom you could ask. You may make at most {calls} \
calls. When you have seen enough, answer in words, without a call."""
BEGIN = "Explore the tools."
PROPOSE = """\
You write tasks for an agent that uses tools. Here are the tools:

{tools}

Somebody has explored the world in which the tasks are to take place. The calls and what they \
returned:

{seen}

Write {count} different tasks for this world. Rules:

1. A task has 1 to 5 turns. In each turn the user says one text, and the agent makes 1 to 4 calls.
2. Each task begins in the world as it was before the calls above: what they changed is not there.
3. Every call must work: only these tools, only arguments that they have, no call that returns an \
error.
4. Every value in a call must stand in a user's text by then, written exactly as in the call, or \
in the result of an earlier call of the same task. Leave out optional arguments that are true or \
false.
5. Every call must be needed: it changes something, or the user asks for its result.
6. The texts sound like a person, and never contain the name of a tool.

Answer with JSON and nothing else, of this form:

{{"tasks": [{{"turns": [{{"text": "Please make a folder called drafts.", "calls": [{{"name": \
"mkdir", "arguments": {{"dir_name": "drafts"}}}}]}}]}}]}}"""
AGAIN = """\
That could not be used: {reasons}. Write the whole answer again, in the form that was asked for."""
REWORD = """\
A user says this to an assistant:

{text}

Say the same in other words, as another person would say it to the assistant. Keep every name, \
number, date, code and quoted text exactly as it is. Add nothing and leave nothing out. Answer \
with the new words alone, in one paragraph."""


def fingerprint() -> str:
    """Hash of everything that the model is told: other words make other candidates."""
    parts = [EXPLORE, BEGIN, PROPOSE, AGAIN, REWORD, LONGEST_RESULT]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def exploring(calls: int) -> list[Message]:
    """The opening of a walk of at most so many calls."""
    return [_system(EXPLORE.format(calls=calls)), _user(BEGIN)]


def proposing(tools: Sequence[ToolDoc], seen: Sequence[Seen], count: int) -> list[Message]:
    """The request for so many tasks."""
    lines = [f"{_written(one)}\n-> {shortened(one.result, LONGEST_RESULT)}" for one in seen]
    text = PROPOSE.format(
        tools="\n".join(map(in_words, tools)), seen="\n".join(lines) or "(none)", count=count
    )
    return [_user(text)]


def once_more(answer: str, reasons: Sequence[str]) -> list[Message]:
    """After an answer that nothing could be made of."""
    return [
        {"role": "assistant", "content": answer},
        _user(AGAIN.format(reasons="; ".join(reasons))),
    ]


def rewording(text: str) -> list[Message]:
    """The request for other words for one message."""
    return [_user(REWORD.format(text=text))]


def _written(seen: Seen) -> str:
    return json.dumps({"name": seen.call.name, "arguments": seen.call.arguments})


def _system(text: str) -> Message:
    return {"role": "system", "content": text}


def _user(text: str) -> Message:
    return {"role": "user", "content": text}
