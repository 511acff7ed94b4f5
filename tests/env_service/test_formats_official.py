"""Our reading of a message against the one of the handler that bfcl-eval runs for the family.

The same calls or the same refusal, for generated texts; and one test for each row of the table in
docs/backbones.md, which shows both readings.
"""

import random
from collections import Counter
from pathlib import Path

import pytest
from damaged_texts import damaged
from hypothesis import given, settings
from hypothesis import strategies as st
from official_decoding import Difference, differences, official_calls, read_call

from env_service.environments.bfcl.tasks import load_tasks, reference_calls
from seal.formats import ToolCall, parse, render_calls

OFFICIAL = ("pythonic", "llama3_json", "hermes")
LS = ToolCall("ls", {"a": True})


def ours(text: str, tool_format: str) -> list[tuple[str, str]]:
    return [(call.name, repr(call.arguments)) for call in parse(text, tool_format).calls]


def theirs(text: str, tool_format: str) -> list[tuple[str, str]]:
    return [read_call(written) for written in official_calls(text, tool_format)]


def compared(tool_format: str, count: int, seed: int) -> Counter[str]:
    """Compare generated texts; counts those with and without calls, and the rows that were met."""
    rng = random.Random(f"{tool_format} {seed}")
    turns = [turn for task in load_tasks().values() for turn in reference_calls(task) if turn]
    seen: Counter[str] = Counter()
    for _ in range(count):
        text = damaged(rng.choice(turns)[: rng.choice((1, 1, 2, 3))], tool_format, rng)
        read = ours(text, tool_format)  # in any case it must not raise
        rows = differences(text, tool_format)
        seen.update(rows)
        if not rows:
            assert read == theirs(text, tool_format), text
            seen["calls" if read else "no call"] += 1
    return seen


def enough(seen: Counter[str], count: int) -> bool:
    """Whether most texts were compared, and many of either kind."""
    return min(seen["calls"], seen["no call"]) > count / 5 and (
        seen["calls"] + seen["no call"] > count * 0.6
    )


ROWS = {
    "pythonic": {"thinking", "no JSON value", "names", "evaluated", "nested call", "object"}
    | {"unpacked"},
    "llama3_json": {"thinking", "limits", "no JSON value", "names", "evaluated", "semicolon"}
    | {"JSON words"},
    "hermes": {"thinking", "limits", "no JSON value", "names"},
}
"""Rows that the generated texts meet."""


@pytest.mark.parametrize("tool_format", OFFICIAL)
def test_generated_texts_are_read_as_bfcl_eval_reads_them(tool_format: str) -> None:
    seen = compared(tool_format, 3000, seed=1)
    assert enough(seen, 3000), seen
    assert seen.keys() == {"calls", "no call"} | ROWS[tool_format]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2, 3])
@pytest.mark.parametrize("tool_format", OFFICIAL)
def test_many_generated_texts_are_read_as_bfcl_eval_reads_them(tool_format: str, seed: int) -> None:
    assert enough(compared(tool_format, 10_000, seed), 10_000)


@pytest.mark.parametrize("tool_format", OFFICIAL)
def test_what_render_calls_writes_is_read_by_bfcl_eval(tool_format: str) -> None:
    for task in load_tasks().values():
        for turn in reference_calls(task):
            text = render_calls(turn, tool_format)
            if not differences(text, tool_format):
                wanted = [(call.name, repr(call.arguments)) for call in turn]
                assert theirs(text, tool_format) == wanted == ours(text, tool_format)


# ---- pythonic: what it read otherwise before ---------------------------------------------------


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ("f(a=1)", ["f(a=1)"]),
        ("f(a=1), g(b='x')", ["f(a=1)", "g(b='x')"]),
        ("f(a=1)\ng(b='x')", []),
        ("```\n[f(a=1)]\n```", ["f(a=1)"]),
        ("```python\n[f(a=1)]\n```", []),
        ("[cd('documents'), f(1, a=2)]", ["cd()", "f(a=2)"]),
        ("[f(a=2*3+1, b='x' + 'y')]", ["f(a=7, b='xy')"]),
        ("Sure:\n[f(a=1)]", []),
        ("[f(a=1)]\nDone.", []),
        ("[f(a=1)] # done", ["f(a=1)"]),
        ("[f(a=1), g(b=)]", []),
        ("[f(a=1), 'x']", []),
        ("[f(a=true, b=null)]", ["f(a='true', b='null')"]),
        ("[f(a=+2.5, b=not True)]", ["f(a=-2.5, b=-1)"]),
        ("[f(a=1, a=2)]", ["f(a=2)"]),
        ("[f(a=1", []),
        ("[f(a=1)", ["f(a=1)"]),
        ("Done (for now)", []),
        ("Done (x)", ["Done()"]),
    ],
)
def test_pythonic_reads_what_the_official_handler_reads(text: str, calls: list[str]) -> None:
    assert official_calls(text, "pythonic") == calls
    assert ours(text, "pythonic") == [read_call(written) for written in calls]


# ---- the rows: our calls, and the strings that bfcl-eval evaluates -----------------------------

HERMES = '<tool_call>\n{"name": "ls", "arguments": {"a": true}}\n</tool_call>'


def hermes(arguments: str, name: str = '"f"') -> str:
    return f'<tool_call>\n{{"name": {name}, "arguments": {arguments}}}\n</tool_call>'


def llama(arguments: str, name: str = '"f"') -> str:
    return f'{{"name": {name}, "parameters": {arguments}}}'


FRAGMENTS = {
    "pythonic": ["[", "]", "f(", "g(a=", "(", ")", ", ", "a=", "1", "'x'", '"', "'", "{'k': ", "}"]
    + ["\n", " ", "`", "#", "-", "+", "*", "true", "[f(a=1), g(b='x')]", "h()", ".", "b"],
    "llama3_json": ['{"name": "f", "parameters": {}}', '{"name": "f", "parameters": ', "{", "}"]
    + ["[", "]", ", ", "; ", "\n", " ", '"a": ', "1", '"x"', "'k': ", "<|python_tag|>", "None"],
    "hermes": ["<tool_call>", "</tool_call>", "\n", "\n", '{"name": "f", "arguments": ', "}", "{}"]
    + [HERMES, "</think>", '{"a": 1}', "[1]", '"{}"', " ", "Done.", '{"name": "f"}', "<think>"],
}


@pytest.mark.parametrize("tool_format", OFFICIAL)
def test_any_row_of_fragments_is_read_as_bfcl_eval_reads_it(tool_format: str) -> None:
    @settings(deadline=None, max_examples=500, derandomize=True)
    @given(st.lists(st.sampled_from(FRAGMENTS[tool_format]), max_size=12).map("".join))
    def check(text: str) -> None:
        if not differences(text, tool_format):
            assert ours(text, tool_format) == theirs(text, tool_format)

    check()


DEEP = "[" * 150 + "]" * 150
LONG = "x" * 50_000
DIGITS = "9" * 400
LLAMA = '{"name": "ls", "parameters": {"a": 1}}'
THINKING, LIMITS, NO_JSON = Difference.THINKING, Difference.LIMITS, Difference.NO_JSON_VALUE
NAMES, EVALUATED, OBJECT = Difference.NAMES, Difference.EVALUATED, Difference.OBJECT

# Row, format, text, what we read, what the official handler has evaluated.
TABLE: list[tuple[Difference, str, str, list[str], list[str]]] = [
    # A draft in a block that is never closed; the tag in an argument; handlers without thinking.
    (THINKING, "hermes", f"<think>\n{HERMES}", [], ["ls(a=True)"]),
    (THINKING, "hermes", hermes('{"a": "</think>"}'), ["f(a='</think>')"], []),
    (THINKING, "pythonic", "<think>\nhm\n</think>\n[ls(a=1)]", ["ls(a=1)"], []),
    (THINKING, "llama3_json", f"<think>\nhm\n</think>\n{LLAMA}", ["ls(a=1)"], []),
    # More than 100 values in each other; more than 50,000 characters for Python's parser.
    (LIMITS, "hermes", hermes(f'{{"a": {DEEP}}}'), [], [f"f(a={DEEP})"]),
    (LIMITS, "llama3_json", llama(f'{{"a": {DEEP}}}'), [], [f"f(a={DEEP})"]),
    (LIMITS, "pythonic", f"[f(a={DEEP})]", [], [f"f(a={DEEP})"]),
    (LIMITS, "pythonic", f"[f(a='{LONG}')]", [], [f"f(a='{LONG}')"]),
    # Values that no JSON reply can carry; siblings count.
    (NO_JSON, "hermes", hermes('{"a": NaN}') + HERMES, ["ls(a=True)"], ["f(a=nan)", "ls(a=True)"]),
    (NO_JSON, "hermes", hermes('{"a": 1e999}'), [], ["f(a=inf)"]),
    (NO_JSON, "hermes", hermes(f'{{"a": {DIGITS}}}'), [], [f"f(a={DIGITS})"]),
    (NO_JSON, "hermes", hermes(r'{"a": "\ud800"}'), [], [r"f(a='\ud800')"]),
    (NO_JSON, "llama3_json", llama("{'a': b'x'}"), [], ["f(a=b'x')"]),
    (NO_JSON, "llama3_json", llama("{'a': {1: 2}}"), [], ["f(a={1: 2})"]),
    (NO_JSON, "llama3_json", llama(r'{"a": "\ud83d\ude00"}'), [], [r"f(a='\ud83d\ude00')"]),
    (NO_JSON, "llama3_json", llama(f"{{'a': {DIGITS}}}"), [], [f"f(a={DIGITS})"]),
    (NO_JSON, "pythonic", f"[f(a={DIGITS})]", [], [f"f(a={DIGITS})"]),
    (NO_JSON, "pythonic", "[f(a=1j), ls()]", ["ls()"], ["f(a=1j)", "ls()"]),
    (NO_JSON, "pythonic", "[f(a=[{1: 2}])]", [], ["f(a=[{1: 2}])"]),
    # Names that Python does not take: the official strings are syntax errors when they are run.
    (NAMES, "hermes", hermes('{"a b": 1}'), ["f(a b=1)"], ["f(a b=1)"]),
    (NAMES, "hermes", hermes('{"a": 1}', '"f g"'), ["f g(a=1)"], ["f g(a=1)"]),
    (NAMES, "hermes", hermes('{"a": 1}', "null"), [], ["None(a=1)"]),
    (NAMES, "llama3_json", llama('{"a": 1}', '""'), [], ["(a=1)"]),
    (NAMES, "pythonic", "[f()(a=1), ls()]", ["ls()"], ["(a=1)", "ls()"]),
    # What the official handlers run as Python.
    (EVALUATED, "pythonic", "[f(a='x' * 3)]", [], ["f(a='xxx')"]),
    (EVALUATED, "pythonic", "[f(a=len('ab') + 1)]", [], ["f(a=3)"]),
    (EVALUATED, "pythonic", "[f(a=2**1001)]", [], [f"f(a={2**1001})"]),
    (EVALUATED, "llama3_json", llama("{'a': 2 * 3}"), [], ["f(a=6)"]),
    # An argument that is a call is run before the call that it is given to.
    (Difference.NESTED_CALL, "pythonic", "[f(a=g(b=1)), h()]", ["h()"], ["f(a=g(b=1))", "h()"]),
    # The official writer takes an object of nothing but objects for a call, and quotes no key.
    (OBJECT, "pythonic", "[f(a={})]", ["f(a={})"], []),
    (OBJECT, "pythonic", "[f(a={'g': {'b': 1}})]", ["f(a={'g': {'b': 1}})"], ["f(a=g(b=1))"]),
    (OBJECT, "pythonic", """[f(a={"'": 1})]""", ["""f(a={"'": 1})"""], ["f(a={''': 1})"]),
    (Difference.UNPACKED, "pythonic", "[f(**{'a': 1}), h()]", ["h()"], ["f(None={'a': 1})", "h()"]),
    # The official handler cuts at every `;`, and has JSON's words read by Python.
    (Difference.SEMICOLON, "llama3_json", llama('{"a": "b;c"}'), ["f(a='b;c')"], []),
    (Difference.JSON_WORDS, "llama3_json", llama('{"a": true}'), ["f(a=True)"], []),
    (Difference.JSON_WORDS, "llama3_json", f"\n  {LLAMA}", ["ls(a=1)"], []),
]


@pytest.mark.parametrize(
    ("row", "tool_format", "text", "read", "evaluated"),
    TABLE,
    ids=[f"{row} {index}" for index, (row, *_) in enumerate(TABLE)],
)
def test_a_row_of_the_table(
    row: Difference, tool_format: str, text: str, read: list[str], evaluated: list[str]
) -> None:
    calls = [
        f"{call.name}({', '.join(f'{key}={value!r}' for key, value in call.arguments.items())})"
        for call in parse(text, tool_format).calls
    ]
    assert calls == read
    assert official_calls(text, tool_format) == evaluated
    assert row in differences(text, tool_format)


def test_every_row_is_shown_and_stands_in_the_docs() -> None:
    assert {row for row, *_ in TABLE} == set(Difference)
    docs = (Path(__file__).parents[2] / "docs" / "backbones.md").read_text()
    for row, tool_format, *_ in TABLE:
        lines = [line for line in docs.splitlines() if line.startswith(f"| {row} |")]
        assert len(lines) == 1 and tool_format in lines[0], row
