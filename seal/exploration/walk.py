"""A walk: a model calls the tools of a training task's world, through the environment service.

In: a client, a task, what the model is told, and the model as a function. Out: the tools, and each
call with its result. The task's own request, and every later one, is never shown: whatever the
service says besides tool results stays here. A message without calls ends the walk, since it would
end the task's turn; if it is the first, the model is asked once more.
"""

import contextlib
import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from seal.client.client import EnvironmentClient, EnvironmentFault, Task
from seal.client.episode import Generate, OutOf
from seal.formats import FORMATS, ToolCall, parse, parse_structured
from seal.wire import Message, ToolDoc

RUN_ID = "exploration"
LONGEST_SHOWN = 4000
"""Characters of a result, and of what the model says beside a call, that are kept in the walk."""
_CALL_SOMETHING: Message = {"role": "user", "content": "Call a tool."}


@dataclass(frozen=True)
class Seen:
    """One call and what it returned."""

    call: ToolCall
    """Name and arguments."""
    result: str
    """As the service wrote it."""


@dataclass(frozen=True)
class Walk:
    """What was found out about a world."""

    tools: tuple[ToolDoc, ...]
    """Docs of all tools."""
    seen: tuple[Seen, ...]
    """In the order of the calls."""


async def walk(
    client: EnvironmentClient,
    task_id: str,
    opening: Sequence[Message],
    generate: Generate,
    tool_format: str,
    most_calls: int,
) -> Walk:
    """Let a model explore.

    Args:
        client: Of a service that has the task.
        task_id: A training task.
        opening: What the model is told instead of the task's request.
        generate: The model.
        tool_format: How its text writes calls, one of FORMATS; any other name if its server has
            parsed them already.
        most_calls: Calls after which the walk ends.

    Raises:
        EnvironmentFault: The service failed.
    """
    instance_id = uuid.uuid4().hex
    is_text = tool_format in FORMATS
    wanted = Task(task_id, "eval", RUN_ID, None, tool_format if is_text else FORMATS[0])
    tools = (await client.create(instance_id, wanted)).info.tools
    docs = {doc["function"]["name"]: doc for doc in tools}
    messages, seen, steps, asked_again = list(opening), list[Seen](), 0, False
    try:
        while len(seen) < most_calls:
            answer = await generate(messages, tools)
            if isinstance(answer, OutOf):
                break
            if isinstance(answer, str):
                own: Message = {"role": "assistant", "content": answer}
                read = parse(answer, tool_format, docs) if is_text else parse_structured(own)
            else:
                own, read = answer, parse_structured(answer)
            calls = read.calls[: most_calls - len(seen)]
            if not calls:
                if seen or asked_again:
                    break
                asked_again = True
                messages += [{"role": "assistant", "content": read.content}, _CALL_SOMETHING]
                continue
            made = _message(shortened(read.content, LONGEST_SHOWN), calls, len(seen))
            reply = await client.step(instance_id, steps, made)
            steps += 1
            results = [message for message in reply.state if message["role"] == "tool"]
            seen += [
                Seen(call, str(result["content"]))
                for call, result in zip(calls, results, strict=False)
            ]
            messages += [own if is_text else made, *map(_cut, results)]
            if reply.is_terminated or not results:
                break
    finally:
        # A failed walk must not stay in the service, and its first failure is the one to report.
        with contextlib.suppress(EnvironmentFault):
            await client.release(instance_id)
    return Walk(tools, tuple(seen))


def shortened(text: str, length: int) -> str:
    """The text, cut at a length.

    >>> shortened("abcdef", 3)
    'abc ... (cut)'
    """
    return text if len(text) <= length else text[:length] + " ... (cut)"


def _message(content: str, calls: Sequence[ToolCall], number: int) -> Message:
    """An assistant message that makes exactly these calls, whatever else the model wrote."""
    entries = [
        {
            "id": f"call_{number + place}",
            "type": "function",
            "function": {"name": call.name, "arguments": json.dumps(call.arguments)},
        }
        for place, call in enumerate(calls)
    ]
    return {"role": "assistant", "content": content, "tool_calls": entries}


def _cut(result: Message) -> Message:
    return {**result, "content": shortened(str(result["content"]), LONGEST_SHOWN)}
