"""qwen3_coder: tags all the way down, values without quotes."""

import pytest
from format_material import GOOD, LS

from seal.formats import ToolCall, parse, render_calls

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
