"""Model text to calls: every format, every way to get it wrong, and text made to hurt."""

import json
import keyword
import math
import re
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seal.formats import FORMATS, ToolCall, parse, parse_structured, render_calls

# Run times on a shared machine say nothing; what is slow is tested by itself.
UNTIMED = settings(deadline=None)

LS = ToolCall("ls", {"a": True})
GOOD = {name: render_calls([LS], name) for name in FORMATS}


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


def test_an_unclosed_draft_in_thinking_is_no_fault() -> None:
    for draft in ("<tool_call>{{ here", "<tool_call>\n{{ here", "<tool_call>\n{}\n</tool_call>"):
        text = f"I could write {draft}\n</think>{GOOD['hermes']}"
        assert parse(text, "hermes").faults == ()
        assert parse(text, "hermes").calls == (LS,)


def test_a_call_before_a_thinking_block_belongs_to_the_thinking() -> None:
    text = f"{GOOD['hermes']}<think>\nHm.\n</think>"
    assert parse(text, "hermes").calls == ()
    assert parse(text + GOOD["hermes"], "hermes").calls == (LS,)


def test_thinking_tags_in_an_argument_are_text() -> None:
    call = ToolCall("echo", {"content": "<think>a</think>"})
    for tool_format in FORMATS:
        assert parse(render_calls([call], tool_format), tool_format).calls == (call,)


# ---- hermes ------------------------------------------------------------------------------


def hermes(body: str) -> str:
    return f"<tool_call>\n{body}\n</tool_call>"


def bad_hermes(body: str, reason: str) -> tuple[ToolCall, ...]:
    """Reads a bad call between two good ones; returns what counts."""
    text = f"First {GOOD['hermes']}{hermes(body)}{GOOD['hermes']} end"
    message = parse(text, "hermes")
    assert message.content == "First  end"
    assert len(message.faults) == 1
    assert reason in message.faults[0].reason
    bad = len(f"First {GOOD['hermes']}")
    assert bad <= message.faults[0].position <= bad + len(hermes(body))
    return message.calls


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("", "not valid JSON"),
        ('{"name": "f", "arguments": {"a": 1}', "not valid JSON"),
        ("{'name': 'f', 'arguments': {}}", "not valid JSON"),
        ('{"name": "f", "arguments": {}} {}', "not valid JSON: Extra data"),
        ('{"name": " ", "arguments": {}}', "'name' must be a non-empty string"),
        ('{"name": 3, "arguments": {}}', "'name' must be a non-empty string"),
        ('{"name": "f", "arguments": {"a": NaN}}', "NaN is no JSON number"),
        ('{"name": "f", "arguments": {"a": -Infinity}}', "-Infinity is no JSON number"),
        ('{"name": "f", "arguments": {"a": 1e999}}', "too large"),
        ('{"name": "f", "arguments": {"a": %s}}' % ("9" * 5000), "more than 300 digits"),
        ('{"name": "f", "arguments": {"a": %s}}' % ("[" * 9999 + "]" * 9999), "too deeply"),
        ('{"name": "f", "arguments": {"a": "\\ud800"}}', "no JSON value"),
    ],
)
def test_a_bad_hermes_call_says_why_and_spares_its_siblings(body: str, reason: str) -> None:
    assert bad_hermes(body, reason) == (LS, LS)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ('["f"]', "must be a JSON object, got an array"),
        (
            '{"name": "f"}',
            "'arguments' must be an object of argument names and values, got nothing",
        ),
        ('{"name": "f", "arguments": "{"}', "in the text of 'arguments', the call is not valid"),
        ('{"name": "f", "arguments": "[]"}', "got an array"),
        ('{"name": "f", "arguments": [1]}', "got an array"),
        ('{"arguments": {}}', "'name' must be a non-empty string"),
    ],
)
def test_json_that_is_no_call_refuses_a_hermes_message(body: str, reason: str) -> None:
    assert bad_hermes(body, reason) == ()


def test_hermes_arguments_may_be_json_text() -> None:
    text = hermes('{"name": "ls", "arguments": "{\\"a\\": true}"}')
    assert parse(text, "hermes").calls == (LS,)


def test_hermes_tags_stand_on_lines_of_their_own() -> None:
    bare = '<tool_call>{"name": "f", "arguments": {}}</tool_call>'
    message = parse(bare + GOOD["hermes"], "hermes")
    assert message.calls == (LS,)
    assert [fault.reason for fault in message.faults] == [
        "<tool_call> must be followed by a line break"
    ]
    message = parse(bare.replace("{", "\n{", 1), "hermes")
    assert message.calls == ()
    assert "never closed with a line break and </tool_call>" in message.faults[0].reason


def test_an_unclosed_call_swallows_the_next_one() -> None:
    text = 'Hm <tool_call>\n{"name": "f", "arguments": {}}\n' + GOOD["hermes"] + GOOD["hermes"]
    message = parse(text, "hermes")
    assert message.calls == (LS,)
    assert [fault.reason for fault in message.faults] == ["the call is not valid JSON: Extra data"]


def test_a_lone_closing_tag_is_a_fault_only_without_a_call() -> None:
    assert len(parse('{"name": "f", "arguments": {}}</tool_call>', "hermes").faults) == 1
    assert parse(GOOD["hermes"] + "</tool_call>", "hermes").faults == ()


def test_after_many_faults_the_rest_is_left_and_said_so() -> None:
    message = parse(hermes("{") * 100 + GOOD["hermes"], "hermes")
    assert len(message.faults) == 65
    assert "the rest of the message was not read" in message.faults[-1].reason


# ---- qwen3_coder -------------------------------------------------------------------------

ZIP_DOC = {
    "type": "function",
    "function": {
        "name": "zip",
        "description": "",
        "parameters": {
            "type": "dict",
            "properties": {
                "code": {"type": "string"},
                "on": {"type": "boolean"},
                "n": {"type": "integer"},
            },
            "required": [],
        },
    },
}


def coder(*parameters: tuple[str, str], name: str = "zip") -> str:
    inner = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in parameters)
    return f"<tool_call>\n<function={name}>\n{inner}</function>\n</tool_call>"


def test_a_bare_value_is_json_if_it_can_be() -> None:
    text = coder(("code", "94016"), ("list", "[1, 2]"), ("word", "a b"), ("lines", " x\n\ny"))
    assert parse(text, "qwen3_coder").calls[0].arguments == {
        "code": 94016,
        "list": [1, 2],
        "word": "a b",
        "lines": " x\n\ny",
    }


def test_the_doc_tells_a_string_from_a_number() -> None:
    text = coder(("code", "94016"), ("on", "True"), ("n", "3"), ("other", "3"))
    call = parse(text, "qwen3_coder", {"zip": ZIP_DOC}).calls[0]
    assert call.arguments == {"code": "94016", "on": True, "n": 3, "other": "3"}
    rendered = render_calls([call], "qwen3_coder")
    assert parse(rendered, "qwen3_coder", {"zip": ZIP_DOC}).calls == (call,)


def test_a_string_keeps_its_quotes() -> None:
    call = ToolCall("zip", {"code": '"a"'})
    text = coder(("code", '"a"'))
    assert render_calls([call], "qwen3_coder") == text
    assert parse(text, "qwen3_coder", {"zip": ZIP_DOC}).calls == (call,)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("<tool_call>{}</tool_call>", "expected <function=NAME>"),
        ("<tool_call><function=></function></tool_call>", "'name' must be"),
        ("<tool_call><tool_call></tool_call>", "expected <function=NAME>"),
    ],
)
def test_a_bad_qwen3_coder_call_says_why_and_spares_its_siblings(text: str, reason: str) -> None:
    message = parse(text + GOOD["qwen3_coder"], "qwen3_coder")
    assert message.calls == (LS,)
    assert [reason in fault.reason for fault in message.faults] == [True]


def test_a_cut_qwen3_coder_call_is_a_fault() -> None:
    for cut in (
        "<tool_call>\n<function=f>",
        "<function=f><parameter=a>1</parameter>",
        "<function=",
    ):
        message = parse(GOOD["qwen3_coder"] + cut, "qwen3_coder")
        assert message.calls == (LS,)
        assert [fault.reason for fault in message.faults] == [
            "<function=NAME> is never closed with </function>"
        ]
    assert len(parse("<tool_call>", "qwen3_coder").faults) == 1


@pytest.mark.parametrize(
    "text",
    [
        "<function=f><parameter=a>1</parameter></function>",
        "<tool_call>I will<function=f>x<parameter=a>1</parameter>y</function>z</tool_call>",
        "<function=f><parameter=a>2</parameter><parameter=a>1</parameter></function>",
        "<function=f><parameter=a>1<parameter=b>2</function>",
        "<function=f>< parameter = a>\n1\n</ parameter ></function>",
    ],
)
def test_qwen3_coder_is_read_leniently(text: str) -> None:
    assert parse(text, "qwen3_coder").calls == (ToolCall("f", {"a": 1}),)


def test_a_name_that_no_tag_can_hold_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot be written"):
        render_calls([ToolCall("f", {"a>b": 1})], "qwen3_coder")


# ---- llama3_json -------------------------------------------------------------------------


@pytest.mark.parametrize("separator", ["; ", ";", " ;\n", "\n;\n"])
def test_llama_objects_are_parted_by_semicolons(separator: str) -> None:
    for opening in ["", "<|python_tag|>", "<|python_tag|> "]:
        text = opening + separator.join([GOOD["llama3_json"]] * 3)
        assert parse(text, "llama3_json").calls == (LS, LS, LS)


@pytest.mark.parametrize("separator", ["\n", " ", "", "; ;", ", "])
def test_llama_objects_parted_otherwise_are_a_fault(separator: str) -> None:
    message = parse(separator.join([GOOD["llama3_json"]] * 2), "llama3_json")
    assert message.calls == ()
    assert len(message.faults) == 1


def test_llama_calls_may_be_a_list_or_python_literals() -> None:
    one = "{'name': 'ls', 'parameters': {'a': True, }}"
    for text in (
        f"[{GOOD['llama3_json']}, {GOOD['llama3_json']}]",
        f"[{one}, {one}]",
        f"{one}, {one}",
    ):
        assert parse(text, "llama3_json").calls == (LS, LS)


@pytest.mark.parametrize(
    ("text", "position"),
    [
        (f"Sure. <|python_tag|>{GOOD['llama3_json']}", 6),
        (f"Sure.\n{GOOD['llama3_json']}", 6),
        (f"{GOOD['llama3_json']}\nThat was it.", 0),
        (f"{GOOD['llama3_json']};", 0),
        ("  <|python_tag|>ls()", 2),
    ],
)
def test_text_beside_llama_calls_refuses_the_message(text: str, position: int) -> None:
    message = parse(text, "llama3_json")
    assert (message.calls, message.content) == ((), text.strip())
    assert [fault.position for fault in message.faults] == [position]


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ('{"name": "f", "parameters": {"a": tru}}', "not valid JSON"),
        ('{"name": "f", "parameters": {"a": NaN}}', "NaN"),
        ('{"name": "f", "parameters": 3}', "'parameters' must be an object"),
        ('{"name": "f"}', "'parameters' must be an object of argument names and values, got"),
        ('{"name": "f", "arguments": {}}', "'parameters' must be an object"),
        ('{"parameters": {}}', "'name' must be"),
        ('{{"name": "f"}', "not valid JSON"),
    ],
)
def test_a_bad_llama_call_says_why_and_refuses_the_message(bad: str, reason: str) -> None:
    text = "; ".join([GOOD["llama3_json"], bad, GOOD["llama3_json"]])
    message = parse(text, "llama3_json")
    assert message.calls == ()
    assert [reason in fault.reason for fault in message.faults] == [True]


def test_llama_values_that_are_no_json_spare_the_siblings() -> None:
    bad = "{'name': 'f', 'parameters': {'a': %s}}"
    for value in ("b'x'", "{1: 2}", "1j", "...", "{1}"):
        message = parse(
            f"[{bad % value}, {{'name': 'ls', 'parameters': {{'a': True}}}}]", "llama3_json"
        )
        assert message.calls == (LS,)
        assert [fault.reason[:29] for fault in message.faults] == ["an argument is no JSON value:"]


# ---- pythonic ----------------------------------------------------------------------------


def test_pythonic_reads_literals_and_names() -> None:
    text = "[a.f(n=-1, x=2.5, s='it''s', l=[(1, None)], d={'k': True}), g(w=word, c=h(1), i=x[0])]"
    assert parse(text, "pythonic").calls == (
        ToolCall("a.f", {"n": -1, "x": 2.5, "s": "its", "l": [[1, None]], "d": {"k": True}}),
        ToolCall("g", {"w": "word", "c": "h(1)", "i": "x[0]"}),
    )


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("2*3+1", 7),
        ("-(2 + 3) * 2", -10),
        ("-(2 + 3)", None),  # bfcl-eval takes a sign before numbers only
        ("7 // 2 - 7 % 4", 0),
        ("1 / 4", 0.25),
        ("2 ** 10", 1024),
        ("10 ** -2", 0.01),
        ("'a' + 'b' + 'c'", "abc"),
        ("1 / 0", None),
        ("2.0 ** 9999", None),
        ("2 ** 9999", None),
        ("9 ** 9 ** 9 ** 9", None),
        ("'a' * 10 ** 9", None),
        ("[1] + [2]", None),
        ("1 + __import__('os').getpid()", None),
        ("1 << 3", None),
    ],
)
def test_pythonic_computes_with_numbers_only(written: str, value: object) -> None:
    message = parse(f"[f(a={written})]", "pythonic")
    if value is None:
        assert message.calls == ()
        assert [fault.position for fault in message.faults] == [0]
    else:
        assert message.calls == (ToolCall("f", {"a": value}),)


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ("f(a=b'x')", "an argument is no JSON value"),
        ("f(a=1e999)", "an argument is no JSON value"),
        ("f(a=1j)", "an argument is no JSON value"),
        ("f(a={1: 2})", "argument 'a' of 'f' has a key that is no string"),
        ("f(a=g(b=1))", "argument 'a' of 'f' is another call"),
        ("f(**{'a': 1})", "unpacked"),
        ("f(a=1)(b=2)", "not a plain tool name"),
        ("f(a='\\ud800')", "an argument is no JSON value"),
        ("f(a=" + "[" * 120 + "]" * 120 + ")", "nested more than 100 deep"),
    ],
)
def test_a_pythonic_call_that_cannot_be_made_spares_its_siblings(bad: str, reason: str) -> None:
    message = parse(f"[ls(a=True),\n {bad}, ls(a=True)]", "pythonic")
    assert message.calls == (LS, LS)
    assert [reason in fault.reason for fault in message.faults] == [True]
    assert message.faults[0].position == len("[ls(a=True),\n ")
    message = parse(f"```\ng(u='\u00e9'), {bad}\n```", "pythonic")
    assert message.faults[0].position == len("```\ng(u='\u00e9'), ")


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ("f(a=f'{b}')", "argument 'a' of 'f' is not a literal"),
        ("f(a=x.y)", "is not a literal"),
        ("f(a={1})", "is not a literal"),
        ("f(a=-'x')", "is not a literal"),
        ("f(a={**b})", "unpacks"),
        ("f", "expected nothing but calls"),
        ("f(a=)", "not a list of calls in Python syntax"),
        ("f(a='\ud800')", "a character that Python does not read"),
        ("f(a='\x00')", "null bytes"),
        ("f(a=" + "9" * 5000 + ")", ""),
        ("f(a=" + "-" * 9999 + "1)", ""),
        ("f(a=" + "1+" * 9999 + "1)", ""),
        ("f(a=" + "x." * 9999 + "y)", ""),
        ("f(a=" + "[" * 300 + "]" * 300 + ")", "too many nested"),
        ("g(a=1]", "does not match"),
        ("g(a='x)", "unterminated string"),
    ],
)
def test_a_bad_pythonic_call_says_why_and_refuses_the_message(bad: str, reason: str) -> None:
    message = parse(f"[ls(a=True), {bad}, ls(a=True)]", "pythonic")
    assert message.calls == ()
    assert [reason in fault.reason for fault in message.faults] == [True]


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("[f(a=1)]\nDone.", 0),
        ("Sure:\n  [f(a=1)]", 6),
        ("f(a=1)\ng(b=2)", 0),
        ("```python\n[f(a=1)]\n```", 10),
        ("First:\n```\nf(a=1)", 11),
        ("[f(a=1), g(b=", 0),
    ],
)
def test_a_pythonic_attempt_that_is_refused_is_a_fault(text: str, position: int) -> None:
    message = parse(text, "pythonic")
    assert (message.calls, message.content) == ((), text)
    assert [fault.position for fault in message.faults] == [position]


def test_commas_and_brackets_in_strings_do_not_cut() -> None:
    text = """[f(a="x, y)]", b='it\\'s ['), g(c='''\n]''')]"""
    message = parse(text, "pythonic")
    assert [call.arguments for call in message.calls] == [
        {"a": "x, y)]", "b": "it's ["},
        {"c": "\n]"},
    ]
    assert message.content == ""


def test_a_keyword_cannot_be_written_as_an_argument_name() -> None:
    with pytest.raises(ValueError, match="'from'"):
        render_calls([ToolCall("f", {"from": 1})], "pythonic")


# ---- structured --------------------------------------------------------------------------


def entry(function: object) -> dict[str, object]:
    return {"id": "1", "type": "function", "function": function}


def test_structured_calls_take_json_text_and_objects() -> None:
    arguments = {"a": True}
    message = parse_structured(
        {
            "role": "assistant",
            "content": "On it.",
            "tool_calls": [
                entry({"name": "ls", "arguments": json.dumps(arguments)}),
                entry({"name": "ls", "arguments": arguments}),
            ],
        }
    )
    assert (message.content, message.calls, message.faults) == ("On it.", (LS, LS), ())


@pytest.mark.parametrize(
    "bad",
    [
        None,
        "ls",
        entry(None),
        entry({"arguments": {}}),
        entry({"name": "f"}),
        entry({"name": "f", "arguments": "[]"}),
        entry({"name": "f", "arguments": "{} {}"}),
        entry({"name": "f", "arguments": "{"}),
        entry({"name": "f", "arguments": {"a": math.nan}}),
        entry({"name": "f", "arguments": {"a": object()}}),
        entry({"name": "f", "arguments": {1: 2}}),
    ],
)
def test_a_bad_structured_call_is_a_fault_at_its_index(bad: object) -> None:
    good = entry({"name": "ls", "arguments": {"a": True}})
    message = parse_structured({"role": "assistant", "tool_calls": [good, bad, good]})
    assert message.calls == (LS, LS)
    assert [fault.position for fault in message.faults] == [1]
    assert message.faults[0].tool in (None, "f")


def test_structured_messages_of_other_shapes_do_not_raise() -> None:
    assert parse_structured({"role": "assistant", "content": "hi"}).calls == ()
    assert len(parse_structured({"tool_calls": "x"}).faults) == 1


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


def test_a_fault_of_a_structured_message_names_its_function() -> None:
    bad = [entry({"name": "grep", "arguments": "{"}), entry({"arguments": "{"}), entry(None), "ls"]
    message = parse_structured({"role": "assistant", "tool_calls": bad})
    assert [fault.tool for fault in message.faults] == ["grep", None, None, None]


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


@pytest.mark.parametrize(
    "text",
    [
        '[f(a=f"' + "{1}" * 30_000 + '")]',
        "[f(a=" + "1<" * 90_000 + "1)]",
        "[" + "f(), " * 15_000 + "]",
    ],
    ids=["f-string", "comparison", "many calls"],
)
def test_pythonic_reads_no_more_than_it_can_in_time(text: str) -> None:
    message = parse(text, "pythonic")
    assert [fault.reason for fault in message.faults] == [
        "the message has more than 50000 characters"
    ]
    assert message.calls == ()


@pytest.mark.parametrize(
    "value", ["str(f\"{'10\u00a0%'}\")", f"hex(0x{'f' * 3600})", "x[f\"{'\u200b'}\"]"]
)
def test_an_expression_that_python_cannot_write_refuses_the_message(value: str) -> None:
    message = parse(f"[f(a={value})]", "pythonic")
    assert not message.calls and "is not a literal" in message.faults[0].reason
