"""Our reading of qwen3_coder against vLLM's own parser of that name; bfcl-eval has none."""

import ast
import json
import random
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from damaged_texts import damaged
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.tool_parsers import ToolParserManager

from seal.formats import ToolCall, parse, render_calls

TYPES = {
    "text": "string",
    "count": "integer",
    "share": "float",
    "on": "boolean",
    "rows": "array",
    "extra": "dict",
}
DOCS: dict[str, Any] = {
    name: {
        "type": "function",
        "function": {
            "name": name,
            "description": "",
            "parameters": {
                "type": "object",
                "properties": {key: {"type": kind} for key, kind in TYPES.items()},
            },
        },
    }
    for name in ("cd", "book_flight")
}
REQUEST = ChatCompletionRequest(messages=[], tools=list(DOCS.values()), model="m")
# The parser looks up the ids of its tags and nothing else; texts are handed over as texts.
TAGS = ("<tool_call>", "</tool_call>", "<think>", "</think>")
TOKENIZER = SimpleNamespace(get_vocab=lambda: {tag: index for index, tag in enumerate(TAGS)})


def official(text: str) -> list[tuple[str, str]]:
    parser = ToolParserManager.get_tool_parser("qwen3_coder")(TOKENIZER, REQUEST.tools)
    calls = parser.extract_tool_calls(text, REQUEST).tool_calls
    return [(one.function.name, repr(json.loads(one.function.arguments))) for one in calls]


def ours(text: str) -> list[tuple[str, str]]:
    calls = parse(text, "qwen3_coder", DOCS).calls
    return [(call.name, repr(call.arguments)) for call in calls]


def differences(text: str) -> set[str]:
    """Rows of the table in docs/backbones.md that a text meets."""
    found = set()
    if "think>" in text:
        found.add("thinking")
    if text.count("[") + text.count("{") > 100 or any(len(word) > 300 for word in text.split()):
        found.add("limits")
    if "NaN" in text or "Infinity" in text or "999" in text or "\\ud8" in text:
        found.add("no JSON value")
    # A tag inside a name, or no name at all.
    heads = [piece.partition(">")[0] for piece in text.split("<function=")[1:]]
    if any(not head.strip() or "<" in head for head in heads):
        found.add("names")
    if text.rfind("<function=") > text.rfind("</function>"):
        found.add("cut call")
    return found


def some_calls(rng: random.Random) -> list[ToolCall]:
    values: dict[str, list[Any]] = {
        "text": ["a b", "94016", "true", " x ", '"quoted"', "caf\u00e9\n\nline", "a>b", ""],
        "count": [0, -3, 94016],
        "share": [0.5, 3.0, 2, -1e-3],
        "on": [True, False],
        "rows": [[], [1, "a", None], [[1.5], {"k": True}]],
        "extra": [{}, {"a": 1, "b": [False]}],
        "unknown": ["12", "x"],
    }
    return [
        ToolCall(
            rng.choice(("cd", "book_flight")),
            {
                key: rng.choice(values[key])
                for key in rng.sample(list(values), rng.randrange(len(values)))
            },
        )
        for _ in range(rng.choice((1, 1, 2, 3)))
    ]


def compared(count: int, seed: int) -> Counter[str]:
    rng = random.Random(seed)
    seen: Counter[str] = Counter()
    for _ in range(count):
        text = damaged(some_calls(rng), "qwen3_coder", rng)
        read = ours(text)
        rows = differences(text)
        seen.update(rows)
        if not rows:
            assert read == official(text), text
            seen["calls" if read else "no call"] += 1
    return seen


def test_generated_texts_are_read_as_vllm_reads_them() -> None:
    seen = compared(3000, seed=1)
    assert seen["calls"] > 1500 and seen["no call"] > 30, seen
    assert seen.keys() == {"calls", "no call", "thinking", "limits", "no JSON value"} | {
        "names",
        "cut call",
    }


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2, 3])
def test_many_generated_texts_are_read_as_vllm_reads_them(seed: int) -> None:
    assert compared(4000, seed)["calls"] > 2000


def coder(value: str, key: str = "text", name: str = "cd") -> str:
    parameter = f"<parameter={key}>\n{value}\n</parameter>\n"
    return f"<tool_call>\n<function={name}>\n{parameter}</function>\n</tool_call>"


DEEP = "[" * 150 + "]" * 150


@pytest.mark.parametrize(
    ("row", "text", "read", "officially"),
    [
        # A draft in a block that is never closed.
        ("thinking", f"<think>\n{coder('a')}", [], [("cd", "{'text': 'a'}")]),
        ("limits", coder(DEEP, "rows"), [], [("cd", f"{{'rows': {DEEP}}}")]),
        (
            "no JSON value",
            coder("9" * 400, "count"),
            [("cd", f"{{'count': '{'9' * 400}'}}")],
            [("cd", f"{{'count': {'9' * 400}}}")],
        ),
        (
            "names",
            coder("a", name="<tool_call>"),
            [("<tool_call", "{'text': 'a'}")],
            [("<tool_call>", "{'text': 'a'}")],
        ),
        ("cut call", coder("a")[:40], [], [("cd", "{}")]),
    ],
)
def test_a_row_of_the_table(
    row: str, text: str, read: list[tuple[str, str]], officially: list[tuple[str, str]]
) -> None:
    assert (ours(text), official(text)) == (read, officially)
    assert row in differences(text)


def test_without_docs_json_is_json() -> None:
    text = coder("94016")
    assert parse(text, "qwen3_coder").calls == (ToolCall("cd", {"text": 94016}),)
    assert parse(text, "qwen3_coder", DOCS).calls == (ToolCall("cd", {"text": "94016"}),)
    bare = ToolParserManager.get_tool_parser("qwen3_coder")(TOKENIZER)
    found = bare.extract_tool_calls(text, ChatCompletionRequest(messages=[], model="m"))
    assert json.loads(found.tool_calls[0].function.arguments) == {"text": "94016"}


def test_every_row_stands_in_the_docs() -> None:
    docs = (Path(__file__).parents[3] / "docs" / "backbones.md").read_text()
    for row in ("thinking", "limits", "no JSON value", "names", "cut call", "no docs"):
        lines = [line for line in docs.splitlines() if line.startswith(f"| {row} |")]
        assert len(lines) == 1 and "qwen3_coder" in lines[0], row


def test_what_render_calls_writes_is_read_by_vllm() -> None:
    rng = random.Random(7)
    for _ in range(300):
        calls = some_calls(rng)
        read = official(render_calls(calls, "qwen3_coder"))
        assert [name for name, _ in read] == [call.name for call in calls]
        # 3.0 is read as 3, which Python takes for the same.
        assert [ast.literal_eval(one) for _, one in read] == [call.arguments for call in calls]
