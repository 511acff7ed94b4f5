"""Messages with `tool_calls` of the OpenAI form."""

import json
import math

import pytest
from format_material import LS

from seal.formats import parse_structured


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


def test_a_fault_of_a_structured_message_names_its_function() -> None:
    bad = [entry({"name": "grep", "arguments": "{"}), entry({"arguments": "{"}), entry(None), "ls"]
    message = parse_structured({"role": "assistant", "tool_calls": bad})
    assert [fault.tool for fault in message.faults] == ["grep", None, None, None]
