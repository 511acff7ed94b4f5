"""llama3_json: bare JSON objects."""

import pytest
from format_material import GOOD, LS

from seal.formats import parse


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
