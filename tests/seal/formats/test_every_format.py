"""All formats: round trips, thinking, names of tools, and text made to hurt."""

import keyword
import re
import time
from typing import Any

import pytest
from format_material import GOOD, LS, hermes
from hypothesis import given, settings
from hypothesis import strategies as st

from seal.formats import FORMATS, ToolCall, parse, render_calls

# Run times on a shared machine vary; the tests of run time have a limit of their own.
UNTIMED = settings(deadline=None)


# ---- round trip and totality -------------------------------------------------------------

plain_text = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=30)
tricky_text = st.sampled_from(
    ["94016", "true", "null", '"quoted"', " padded ", "a\nb\n", "</parameter>", "</tool_call>"]
    + ["<think>", "</think>\n", "[f(a=1)]", "it's", '"""', "\\d", "{", "1e999", "", "\r\n", "; {"]
)
texts = plain_text | tricky_text
scalars = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
)
values = st.recursive(
    scalars | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
identifiers = st.from_regex(r"[a-z_][a-zA-Z0-9_]{0,8}", fullmatch=True).filter(
    lambda name: not keyword.iskeyword(name)
)
tool_calls = st.builds(ToolCall, identifiers, st.dictionaries(identifiers, values, max_size=3))


@pytest.mark.parametrize("tool_format", FORMATS)
@UNTIMED
@given(calls=st.lists(tool_calls, max_size=3))
def test_what_is_rendered_is_read_again(tool_format: str, calls: list[ToolCall]) -> None:
    if tool_format == "qwen3_coder":  # each with its doc: one tool cannot declare two types
        for call in calls:
            written_bare = [value for value in call.arguments.values() if isinstance(value, str)]
            if any(re.search("</?parameter|</function>", value) for value in written_bare):
                with pytest.raises(ValueError, match="a string cannot be written"):
                    render_calls([call], tool_format)
            else:
                message = parse(render_calls([call], tool_format), tool_format, doc_of(call))
                assert (message.calls, message.faults, message.content) == ((call,), (), "")
        return
    message = parse(render_calls(calls, tool_format), tool_format)
    assert message.calls == tuple(calls)
    assert message.faults == ()
    assert message.content == ""


def doc_of(call: ToolCall) -> dict[str, Any]:
    properties = {
        key: {"type": "string" if isinstance(value, str) else "any"}
        for key, value in call.arguments.items()
    }
    function = {"name": call.name, "description": "", "parameters": {"properties": properties}}
    return {call.name: {"type": "function", "function": function}}


fragments = st.sampled_from(
    ["<tool_call>", "</tool_call>", "<think>", "</think>", "<function=f>", "</function>"]
    + ["<parameter=a>", "</parameter>", "<|python_tag|>", '{"name": "f", "arguments": {}}']
    + [
        "[f(a=1)",
        "[",
        "]",
        "(",
        ")",
        "{",
        "}",
        "'",
        '"',
        "\\",
        ";",
        "\n",
        " ",
        ",",
        "\x00",
        "\ud800",
    ]
)


@pytest.mark.parametrize("tool_format", FORMATS)
@UNTIMED
@given(text=st.lists(fragments | st.text(max_size=5), max_size=20).map("".join))
def test_parsing_never_raises(tool_format: str, text: str) -> None:
    message = parse(text, tool_format)
    for fault in message.faults:
        assert 0 <= fault.position <= len(text)
        assert fault.reason and not fault.reason.endswith(".")


@pytest.mark.parametrize("tool_format", FORMATS)
@pytest.mark.parametrize("length", [48_000, 72_000])  # Python's parser gets the first one only
@pytest.mark.parametrize(
    "unit",
    ["<tool_call>{", '<tool_call>["', "<tool_call>", "<think>", "{", '\n{"a":', "[f(a=", "[f(a=-"]
    + ["[f(a=1), ", "<tool_call><function=f><parameter=a>", "\n[f(", "'\\''", ' "x" ', "\n", ";{"]
    + ['<tool_call>"name":', '{"name"' + " " * 999, "[f(" + "a." * 999, "<tool_call>" + "a" * 999]
    + ["<tool_call>\n", "<function=", "<parameter=", "<", "f(a=(", "-", '{"a":', "1+", "</think>"],
)
def test_72_kb_of_anything_are_read_at_once(tool_format: str, unit: str, length: int) -> None:
    text = unit * (length // len(unit))
    started = time.process_time()
    parse(text, tool_format)
    assert time.process_time() - started < 0.5  # about 0.02 s; a quadratic walk takes seconds


@pytest.mark.parametrize("tool_format", FORMATS)
def test_a_plain_answer_has_no_call_and_no_fault(tool_format: str) -> None:
    for text in ["Done.", "", "[Note] x (y)", "Use f(a=1).", "a; b\nc", "1 < 2"]:
        message = parse(text, tool_format)
        assert (message.content, message.calls, message.faults) == (text, (), ())


def test_an_unknown_format_names_those_there_are() -> None:
    with pytest.raises(ValueError, match="'xml'.*hermes, qwen3_coder, llama3_json, pythonic"):
        parse("", "xml")
    with pytest.raises(ValueError, match="'xml'"):
        render_calls([], "xml")


# ---- thinking ----------------------------------------------------------------------------


@pytest.mark.parametrize("tool_format", FORMATS)
def test_calls_in_a_thinking_block_are_ignored(tool_format: str) -> None:
    draft = render_calls([ToolCall("draft", {})], tool_format)
    call = GOOD[tool_format]
    for text in [
        f"<think>{draft}</think>\n{call}",
        f"<think>\n{draft}\n</think>{call}",
        f"{draft}\n</think>\n\n{call}",  # the prompt opened the block
        f"{call}\n<think>\n{draft}",  # never closed
    ]:
        message = parse(text, tool_format)
        assert message.calls == (LS,), text
        assert message.faults == (), text


def test_thinking_tags_in_an_argument_are_text() -> None:
    call = ToolCall("echo", {"content": "<think>a</think>"})
    for tool_format in FORMATS:
        assert parse(render_calls([call], tool_format), tool_format).calls == (call,)


# ---- the tool that an unreadable call names ------------------------------------------------


@pytest.mark.parametrize(
    ("tool_format", "text", "named"),
    [
        ("hermes", hermes('{"name": "grep", "arguments": {"a": }}'), ["grep"]),
        ("hermes", hermes("{'name': 'grep', 'arguments': {}}"), ["grep"]),
        ("hermes", hermes('{"name": "grep, "arguments": {}}'), ["grep"]),
        ("hermes", hermes('{"name": "grep", "arguments": [1]}'), ["grep"]),
        ("hermes", hermes('{"type": "function", "function": {"name": "grep"}}'), ["grep"]),
        ("hermes", hermes('[{"name": "grep"}, {"name": "ls"}]'), ["grep"]),
        ("hermes", '{"name": "grep", "arguments": {}}</tool_call>', ["grep"]),
        ("hermes", hermes("grep(pattern='x')"), ["grep"]),
        ("hermes", hermes("<function=grep>\n</function>"), ["grep"]),
        ("hermes", 'I call ls() first.\n{"name": "grep", "arguments": {}}\n</tool_call>', ["grep"]),
        ("hermes", hermes('{"arguments": {"a": "print(x)"}, "name": "echo", }'), ["echo"]),
        ("hermes", hermes("grep now"), [None]),
        ("hermes", hermes('{"arguments": {"a": 1}}'), [None]),
        ("hermes", hermes('{"name": ""}') + hermes('{"name": "ls", }'), [None, "ls"]),
        ("hermes", "<tool_call>{" + hermes('{"name": "ls", }'), [None, "ls"]),
        ("qwen3_coder", hermes("<function=grep>\n<parameter=a>\n1"), ["grep"]),
        ("qwen3_coder", hermes("<function=grep\n<parameter=a>1</parameter>"), ["grep"]),
        ("qwen3_coder", hermes('{"name": "grep", "arguments": {}}'), ["grep"]),
        ("llama3_json", '{"name": "grep", "parameters": {"a": }}; {"name": "ls"', [None]),
        ("llama3_json", '{"name": "grep", "parameters": 1}; {"nam": "ls"}', ["grep"]),
        ("llama3_json", '{"name": "grep", "parameters": {"a": "\\ud800"}}', ["grep"]),
        ("llama3_json", "<|python_tag|>grep(a=1)", ["grep"]),
        ("pythonic", "[grep(a=b), ls(a=True), mv(a=1", [None]),
        ("pythonic", "[grep(a='x)]", ["grep"]),
        ("pythonic", "[files.grep(a=1, **b)]", ["files.grep"]),
        ("pythonic", "[ls(a=True), 3]", ["ls"]),
    ],
)
def test_a_fault_names_the_tool_that_its_own_text_names_first(
    tool_format: str, text: str, named: list[str | None]
) -> None:
    assert [fault.tool for fault in parse(text, tool_format).faults] == named


@pytest.mark.parametrize("tool_format", FORMATS)
def test_a_name_that_breaks_off_is_no_other_tool_s(tool_format: str) -> None:
    """`rm` is a tool as well."""
    text = render_calls([ToolCall("rmdir", {"dir_name": "a"})], tool_format)
    whole = text.index("rmdir") + len("rmdir") + 1
    for end in range(len(text)):
        for fault in parse(text[:end], tool_format).faults:
            assert fault.tool == ("rmdir" if end >= whole else None), text[:end]


def nested(depth: int) -> Any:
    value: Any = []
    for _ in range(depth - 2):
        value = [value]
    return {"a": value}


@pytest.mark.parametrize("tool_format", ["hermes", "qwen3_coder", "llama3_json"])
def test_arguments_that_are_nested_too_deeply_are_a_fault(tool_format: str) -> None:
    fine = render_calls([ToolCall("f", nested(100))], tool_format)
    assert len(parse(fine, tool_format).calls) == 1
    deep = parse(render_calls([ToolCall("f", nested(101))], tool_format), tool_format)
    assert [fault.reason for fault in deep.faults] == ["arguments are nested more than 100 deep"]
