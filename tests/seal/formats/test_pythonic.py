"""pythonic: a Python list of calls."""

import pytest
from format_material import LS

from seal.formats import ToolCall, parse, render_calls


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
