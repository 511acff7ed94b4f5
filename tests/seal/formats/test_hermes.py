"""hermes: JSON between tags."""

import pytest
from format_material import GOOD, LS, hermes

from seal.formats import ToolCall, parse


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


def test_an_unclosed_draft_in_thinking_is_no_fault() -> None:
    for draft in ("<tool_call>{{ here", "<tool_call>\n{{ here", "<tool_call>\n{}\n</tool_call>"):
        text = f"I could write {draft}\n</think>{GOOD['hermes']}"
        assert parse(text, "hermes").faults == ()
        assert parse(text, "hermes").calls == (LS,)


def test_a_call_before_a_thinking_block_belongs_to_the_thinking() -> None:
    text = f"{GOOD['hermes']}<think>\nHm.\n</think>"
    assert parse(text, "hermes").calls == ()
    assert parse(text + GOOD["hermes"], "hermes").calls == (LS,)
