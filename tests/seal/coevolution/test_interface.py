"""What the policy is shown of a learning interface, its JSON and how two of them differ."""

import copy
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seal.coevolution import texts
from seal.coevolution.diagnosis import CallEvidence
from seal.coevolution.interface import INITIAL, Interface, difference
from seal.formats import ParseFault
from seal.labels import FAILURES, Label

# Run times on a shared machine say nothing; what is slow is tested by itself.
UNTIMED = settings(deadline=None)

ALL_ON = Interface(3, True, True, True, (Label.STATE_MISMATCH, Label.MISSING_TOOL_CALL))
interfaces = st.builds(
    Interface,
    st.integers(0, 99),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.lists(st.sampled_from(FAILURES), unique=True).map(tuple),
)


# ---- what the policy is shown ------------------------------------------------------------


def doc() -> dict[str, Any]:
    return {
        "type": "function",
        "function": {
            "name": "book",
            "description": "Book a flight.",
            "parameters": {
                "type": "dict",
                "properties": {
                    "seat": {
                        "type": "string",
                        "description": "Where. ",
                        "enum": ["aisle", "window"],
                    },
                    "prices": {"type": "array", "items": {"type": "float"}},
                    "guest": {
                        "type": "dict",
                        "description": "Who.",
                        "properties": {"age": {"type": "integer", "description": "Years."}},
                        "required": ["age"],
                    },
                    "extra": {"type": "any", "description": "Anything."},
                },
                "required": ["seat"],
            },
        },
    }


def test_schema_cues_mark_required_types_and_enums() -> None:
    (shown,) = replace(INITIAL, schema_cues=True).tool_docs([doc()])
    fields = shown["function"]["parameters"]["properties"]
    # The original ends with a space and keeps it.
    assert fields["seat"]["description"] == (
        "Where.  (required) Type: a string. Allowed values: 'aisle', 'window'."
    )
    assert fields["prices"]["description"] == "(optional) Type: an array, each item a number."
    assert fields["guest"]["properties"]["age"]["description"] == (
        "Years. (required) Type: an integer."
    )
    assert fields["extra"]["description"] == "Anything. (optional)"


json_docs = st.recursive(
    st.fixed_dictionaries(
        {"type": st.sampled_from(["string", "float", "any"])},
        optional={"description": st.text(), "enum": st.lists(st.text(), max_size=2)},
    ),
    lambda inner: (
        st.fixed_dictionaries(
            {"type": st.just("dict"), "properties": st.dictionaries(st.text(), inner, max_size=2)}
        )
        | st.fixed_dictionaries({"type": st.just("array"), "items": inner})
    ),
    max_leaves=5,
)


@UNTIMED
@given(st.dictionaries(st.text(), json_docs, max_size=3), st.booleans())
def test_tool_docs_leave_the_input_and_all_but_descriptions_untouched(
    properties: dict[str, Any], cues: bool
) -> None:
    given_doc = doc()
    given_doc["function"]["parameters"]["properties"] = properties
    before = copy.deepcopy(given_doc)
    (shown,) = replace(INITIAL, schema_cues=cues).tool_docs([given_doc])
    assert given_doc == before
    assert (shown is given_doc) == (not cues)
    assert _without_descriptions(shown) == _without_descriptions(given_doc)
    assert cues or shown == given_doc


def _without_descriptions(value: Any, is_field_table: bool = False) -> Any:
    if isinstance(value, dict):
        return {
            key: _without_descriptions(inner, key == "properties" and not is_field_table)
            for key, inner in value.items()
            if is_field_table or key != "description"
        }
    return value


def test_the_initial_interface_shows_nothing() -> None:
    call = CallEvidence(0, "book", True, (), "full")
    assert INITIAL.tool_docs([doc()]) == [doc()]
    assert INITIAL.system_note() is None
    assert INITIAL.parse_feedback([ParseFault(0, "broken")]) is None
    assert INITIAL.call_feedback(call) is None
    assert (INITIAL.active(), INITIAL.describe()) == ((), "")


def test_the_system_note_explains_marks_and_lists_guidelines() -> None:
    note = ALL_ON.system_note()
    assert note is not None
    assert texts.SCHEMA_NOTE in note and texts.AFFORDANCE_NOTE in note
    assert note.index(texts.GUIDELINES[Label.STATE_MISMATCH]) < note.index(
        texts.GUIDELINES[Label.MISSING_TOOL_CALL]
    )


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (CallEvidence(0, "book", False, (), "no tool"), "unknown tool"),
        (
            CallEvidence(0, "book", True, ("missing required argument 'seat'",), "TypeError"),
            "'seat'",
        ),
        (CallEvidence(0, "book", True, (), "flight 4711 is full"), "execution error"),
    ],
)
def test_a_hint_names_the_class_of_error_and_no_value(call: CallEvidence, words: str) -> None:
    hint = ALL_ON.call_feedback(call)
    assert hint is not None and words in hint
    assert "4711" not in hint


def test_a_call_that_ran_gets_no_hint() -> None:
    assert ALL_ON.call_feedback(CallEvidence(0, "book", True, ("x",), None)) is None


def test_parse_feedback_names_each_reason_once() -> None:
    faults = [ParseFault(0, "no name"), ParseFault(9, "no name"), ParseFault(20, "never closed")]
    hint = ALL_ON.parse_feedback(faults)
    assert hint is not None
    assert hint.count("no name") == 1 and "never closed" in hint
    assert ALL_ON.parse_feedback([]) is None


def test_every_failure_has_one_short_guideline() -> None:
    assert set(texts.GUIDELINES) == set(FAILURES)
    for sentence in texts.GUIDELINES.values():
        assert len(sentence.split()) <= 20
        assert sentence.count(".") == 1 and sentence.endswith(".")


def test_the_hash_tells_interfaces_apart_and_not_versions() -> None:
    variants = [
        INITIAL,
        ALL_ON,
        replace(INITIAL, schema_cues=True),
        replace(INITIAL, affordance_cues=True),
        replace(INITIAL, recovery_feedback=True),
        replace(ALL_ON, guidelines=ALL_ON.guidelines[::-1]),
    ]
    assert len({one.content_hash() for one in variants}) == len(variants)
    assert all(len(one.content_hash()) == 12 for one in variants)
    assert replace(ALL_ON, version=99).content_hash() == ALL_ON.content_hash()


def test_the_hash_changes_with_the_wording(monkeypatch: pytest.MonkeyPatch) -> None:
    before = ALL_ON.content_hash()
    monkeypatch.setattr(texts, "RECOVERY_TEXTS", ("other",))
    assert ALL_ON.content_hash() != before


def test_describe_has_one_line_a_part() -> None:
    lines = ALL_ON.describe().splitlines()
    assert [line.partition(": ")[0] for line in lines] == list(ALL_ON.active())


# ---- JSON and differences ----------------------------------------------------------------


@UNTIMED
@given(interfaces)
def test_json_round_trip(interface: Interface) -> None:
    assert Interface.from_json(json.loads(json.dumps(interface.to_json()))) == interface


@pytest.mark.parametrize(
    ("data", "where"),
    [
        ([], "interface: expected an object, got list"),
        ({"version": 1}, "interface: missing fields .'schema_cues'"),
        ({**ALL_ON.to_json(), "more": 1}, "unknown fields .'more'"),
        ({**ALL_ON.to_json(), "version": "1"}, "interface.version: expected an integer .* got '1'"),
        ({**ALL_ON.to_json(), "version": True}, "interface.version"),
        ({**ALL_ON.to_json(), "version": -1}, "interface.version"),
        ({**ALL_ON.to_json(), "schema_cues": 1}, "interface.schema_cues: expected a boolean"),
        ({**ALL_ON.to_json(), "affordance_cues": None}, "interface.affordance_cues"),
        ({**ALL_ON.to_json(), "recovery_feedback": "no"}, "interface.recovery_feedback"),
        ({**ALL_ON.to_json(), "guidelines": "pass"}, "interface.guidelines: expected a list"),
        ({**ALL_ON.to_json(), "guidelines": ["pass"]}, "failure labels .*, got 'pass'"),
        ({**ALL_ON.to_json(), "guidelines": [[]]}, "failure labels .*, got "),
        (
            {**ALL_ON.to_json(), "guidelines": ["state_mismatch", "state_mismatch"]},
            "interface.guidelines: expected each label once",
        ),
    ],
)
def test_a_bad_interface_is_refused_by_field(data: Any, where: str) -> None:
    with pytest.raises(ValueError, match=where):
        Interface.from_json(data)


def test_the_difference_names_what_went_and_what_came() -> None:
    before = replace(ALL_ON, recovery_feedback=False)
    then = replace(ALL_ON, schema_cues=False, guidelines=ALL_ON.guidelines[:1])
    lines = difference(before, then).splitlines()
    assert [line.partition(":")[0] for line in lines] == [
        "- schema_cues",
        "- guideline",
        "+ recovery_feedback",
    ]
    assert lines[1] == f"- guideline:missing_tool_call: {texts.GUIDELINES[Label.MISSING_TOOL_CALL]}"


def test_another_order_of_guidelines_is_a_difference() -> None:
    turned = replace(ALL_ON, guidelines=ALL_ON.guidelines[::-1])
    expected = "~ order of guidelines: missing_tool_call, state_mismatch"
    assert difference(ALL_ON, turned) == expected


@UNTIMED
@given(interfaces, interfaces)
def test_there_is_no_difference_exactly_if_the_policy_is_shown_the_same(
    before: Interface, then: Interface
) -> None:
    assert difference(before, replace(before, version=100)) == "no change"
    same = before.content_hash() == then.content_hash()
    assert (difference(before, then) == "no change") == same
