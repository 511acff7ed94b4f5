"""What the agent loop relies on in a tokenizer and its chat template, checked one by one.

In: a backbone as verl would load it, and a task's opening messages and tool docs. Out: findings in
words. verl's own builder makes the tokens, as in the agent loop. Weights are not needed.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jinja2

from seal.backbone.loading import Backbone
from seal.backbone.message_end import unwritten_end
from seal.backbone.prompts import Prompt, prompt_ids
from seal.backbone.system_note import SystemNoteError
from seal.formats import ToolCall, parse, render_calls
from seal.wire import Message, ToolDoc

TEMPLATE_ERRORS = (
    *(jinja2.TemplateError, SystemNoteError),
    *(LookupError, TypeError, ValueError, AttributeError),
)
"""What a chat template raises if it does not fit its input."""

ASCII_TEXT = "two words"
HARD_TEXT = 'J\u00fcrgen\'s "note"\n\u4f60\u597d {x: [1, 2]} \\ end'
"""A string argument with all characters that formats have to escape."""
RESULT = '{"result": "caf\u00e9"}'


@dataclass(frozen=True)
class TemplateCheck:
    """The result of one check."""

    name: str
    passed: bool
    detail: str
    """What was found, or why the check failed; may be empty."""


def check(backbone: Backbone, prompt: Prompt) -> list[TemplateCheck]:
    """Check everything that the agent loop relies on, with one task."""
    single, several, hard = sample_messages(prompt.tools)
    spoken: Message = {"role": "user", "content": "And then?"}
    checks: dict[str, Callable[[], str]] = {
        "prompt shows task and tools": partial(_prompt, backbone, prompt),
        "a start token at most once": partial(_start_token, backbone, prompt),
        "a place for the interface's note": partial(_note_place, backbone),
        "one call is read back": partial(_read_back, backbone, prompt, single),
        "several calls are read back": partial(_read_back, backbone, prompt, several),
        "nested and quoted arguments": partial(_read_back, backbone, prompt, hard),
        "a call ends with a stop token": partial(_stops, backbone, prompt, single),
        "a result is appended": partial(_appended, backbone, prompt, single, _results(single)),
        "several results are appended": partial(
            _appended, backbone, prompt, several, _results(several)
        ),
        "the next turn is appended": partial(_appended, backbone, prompt, (), [spoken]),
    }
    return [_checked(name, run) for name, run in checks.items()]


class _Broken(Exception):
    """A check does not hold; the text says why."""


def _checked(name: str, run: Callable[[], str]) -> TemplateCheck:
    try:
        return TemplateCheck(name, True, run())
    except _Broken as reason:
        return TemplateCheck(name, False, str(reason))
    except TEMPLATE_ERRORS as error:
        return TemplateCheck(
            name, False, f"the chat template fails: {type(error).__name__}: {error}"
        )


def sample_messages(tools: Sequence[ToolDoc]) -> tuple[tuple[ToolCall, ...], ...]:
    """The calls of three assistant messages made up from tool docs: one, several, a hard one."""
    functions = sorted(
        (doc["function"] for doc in tools), key=lambda tool: -len(tool["parameters"]["properties"])
    )
    plain = [_sample(function, ASCII_TEXT) for function in functions]
    hard = [_sample(function, HARD_TEXT) for function in functions if _has_text(function)]
    return (plain[0],), (plain[0], plain[-1], *plain[1:2]), tuple((hard or plain)[:1])


def _has_text(function: dict[str, Any]) -> bool:
    return any(
        schema.get("type") == "string" for schema in function["parameters"]["properties"].values()
    )


def _sample(function: dict[str, Any], text: str) -> ToolCall:
    properties = function["parameters"]["properties"]
    return ToolCall(
        function["name"], {name: _value(schema, text) for name, schema in properties.items()}
    )


def _value(schema: dict[str, Any], text: str) -> Any:
    """A value of a schema's type; types have BFCL's names or those of JSON schema."""
    match schema.get("type"):
        case "integer":
            return 3
        case "float" | "number":
            return 2.5
        case "boolean":
            return True
        case "array" | "tuple":
            return [_value(schema.get("items", {}), text)] * 2
        case "dict" | "object":
            inner = schema.get("properties", {})
            return {name: _value(part, text) for name, part in inner.items()} or {"key": [text, 1]}
    return text


def _results(calls: Sequence[ToolCall]) -> list[Message]:
    return [{"role": "tool", "name": call.name, "content": RESULT} for call in calls]


def _prompt(backbone: Backbone, prompt: Prompt) -> str:
    ids = prompt_ids(backbone, prompt)
    shown = backbone.tokenizer.decode(ids)
    names = [doc["function"]["name"] for doc in prompt.tools]
    missing = [name for name in names if name not in shown]
    if missing:
        raise _Broken(f"the template leaves tools out: {', '.join(missing[:3])}")
    request = str(prompt.messages[-1]["content"]).strip()
    if request not in shown:
        raise _Broken(f"the template leaves the user's message out: {request[:60]!r}")
    if not _opening(backbone, prompt):
        raise _Broken("the template does not open an assistant message (add_generation_prompt)")
    return f"{len(ids)} tokens, {len(prompt.tools)} tools"


def _start_token(backbone: Backbone, prompt: Prompt) -> str:
    start = backbone.tokenizer.bos_token_id
    ids = prompt_ids(backbone, prompt)
    count = 0 if start is None else ids.count(start)
    name = backbone.tokenizer.bos_token
    if count > 1 and ids[1] != start and name in _opening(backbone, prompt):
        return f"{name} opens every message"  # as in SmolLM2's dialogues
    if count > 1:
        raise _Broken(f"{name} stands {count} times in the prompt")
    return "none" if not count else f"{name} once"


def _note_place(backbone: Backbone) -> str:
    try:
        default = backbone.default_system
    except SystemNoteError as error:
        raise _Broken(str(error)) from None
    return f"behind {default!r}" if default else "the system message"


def _opening(backbone: Backbone, prompt: Prompt) -> str:
    """What the template puts before an assistant message."""
    ids = backbone.builder.render_delta_token_id(
        list(prompt.messages), [], add_generation_prompt=True, tools=list(prompt.tools)
    )
    return str(backbone.tokenizer.decode(ids))


def _written(backbone: Backbone, prompt: Prompt, calls: Sequence[ToolCall]) -> tuple[str, bool]:
    """An assistant message without its opening; and whether the template wrote the calls."""
    entries = [
        {
            "type": "function",
            "id": f"call{index:05d}",
            "function": {"name": call.name, "arguments": call.arguments},
        }
        for index, call in enumerate(calls)
    ]
    message: Message = {"role": "assistant", "content": "", "tool_calls": entries}
    if not calls:
        message = {"role": "assistant", "content": "Done."}
    text = _behind_opening(backbone, prompt, message)
    if all(call.name in text for call in calls):
        return text, True
    plain: Message = {"role": "assistant", "content": render_calls(calls, backbone.tool_format)}
    return _behind_opening(backbone, prompt, plain), False


def _behind_opening(backbone: Backbone, prompt: Prompt, message: Message) -> str:
    ids = backbone.builder.render_delta_token_id(
        list(prompt.messages), [message], tools=list(prompt.tools)
    )
    text, opening = str(backbone.tokenizer.decode(ids)), _opening(backbone, prompt)
    if text.startswith(opening):
        return text[len(opening) :]
    # The line break before the first call may belong to neither.
    if text.startswith(opening.rstrip()):
        return text[len(opening.rstrip()) :]
    raise _Broken(
        f"assistant messages begin with {text[:40]!r}, but generation with {opening[:40]!r}"
    )


def _generated(backbone: Backbone, prompt: Prompt, calls: Sequence[ToolCall]) -> list[int]:
    """Tokens that a policy would generate for a message, with the token that ends it."""
    text, _ = _written(backbone, prompt, calls)
    ids = backbone.tokenizer.encode(text, add_special_tokens=False)
    for place, token in enumerate(ids):
        if token in backbone.stop_ids:
            return list(ids[: place + 1])
    stops = ", ".join(map(str, backbone.tokenizer.convert_ids_to_tokens(sorted(backbone.stop_ids))))
    raise _Broken(f"no stop token ({stops}) ends the message: {text[-60:]!r}")


def _sent(backbone: Backbone, ids: Sequence[int]) -> str:
    """The message as the agent loop sends it to the service."""
    return str(backbone.tokenizer.decode(ids, skip_special_tokens=True))


def _read_back(backbone: Backbone, prompt: Prompt, calls: Sequence[ToolCall]) -> str:
    text = _sent(backbone, _generated(backbone, prompt, calls))
    docs = {doc["function"]["name"]: doc for doc in prompt.tools}
    message = parse(text, backbone.tool_format, docs)
    if message.calls != tuple(calls):
        reason = message.faults[0].reason if message.faults else "not the calls that were written"
        raise _Broken(f"as {backbone.tool_format}: {reason}; the message: {text[:120]!r}")
    by_template = _written(backbone, prompt, calls)[1]
    return "" if by_template else "the template writes no calls; written as seal.formats does"


def _stops(backbone: Backbone, prompt: Prompt, calls: Sequence[ToolCall]) -> str:
    last = _generated(backbone, prompt, calls)[-1]
    return str(backbone.tokenizer.convert_ids_to_tokens(last))


def _appended(
    backbone: Backbone, prompt: Prompt, calls: Sequence[ToolCall], follows: Sequence[Message]
) -> str:
    """What the environment says is appended to the rollout's tokens and changes none of them."""
    builder, decode = backbone.builder, backbone.tokenizer.decode
    generated = _generated(backbone, prompt, calls)
    ids = builder.merge_assistant_tokens(prompt_ids(backbone, prompt), generated).token_ids
    ids = [*ids, *unwritten_end(generated, backbone.message_end)]
    answer: Message = {"role": "assistant", "content": _sent(backbone, generated)}
    seen = [*prompt.messages, answer]
    merged = builder.merge_context_tokens(seen, [*seen, *follows], ids).token_ids
    if merged[: len(ids)] != ids:
        raise _Broken("appending changes earlier tokens of the rollout")
    tail = decode(merged[len(ids) :])
    for message in follows:
        if str(message["content"]) not in tail:
            raise _Broken(f"the template changes it: {message['content']!r} became {tail[:120]!r}")
    if not tail.endswith(_opening(backbone, prompt)):
        raise _Broken(f"no assistant message is opened behind it: {tail[-60:]!r}")
    whole = builder.build_initial_tokens([*seen, *follows], tools=list(prompt.tools))
    if merged != whole:
        place = len(os.path.commonprefix([merged, whole]))
        difference = f"{decode(merged[place:])[:40]!r}, the template {decode(whole[place:])[:40]!r}"
        if follows[0]["role"] == "tool":
            raise _Broken(f"the rollout has {difference}")
        return f"differs from the whole dialogue: the rollout has {difference}"
    return "as in the whole dialogue"
