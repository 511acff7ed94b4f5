"""Failure profile to learning interface, and what the policy is shown of it."""

import copy
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seal.coevolution import texts
from seal.coevolution.diagnosis import CallEvidence
from seal.coevolution.interface import INITIAL, Interface, InterfaceConfig, evolve
from seal.coevolution.labels import FAILURES, Label
from seal.coevolution.profile import EMPTY, LabeledTrajectory, profile_of
from seal.formats import ParseFault

# Run times on a shared machine say nothing; what is slow is tested by itself.
UNTIMED = settings(deadline=None)

CONFIG = InterfaceConfig()
ALL_ON = Interface(3, True, True, True, (Label.STATE_MISMATCH, Label.MISSING_TOOL_CALL))


def turns_of(label: Label, count: int, reward: float = 0.0) -> list[LabeledTrajectory]:
    return [LabeledTrajectory((label,), reward, "base")] * count


def after(*groups: list[LabeledTrajectory], config: InterfaceConfig = CONFIG) -> Interface:
    return evolve(INITIAL, profile_of(7, [one for group in groups for one in group]), config)


# ---- evolution ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("label", "parts"),
    [
        (Label.ARGUMENT_MISMATCH, {"schema_cues", "recovery_feedback"}),
        (Label.INVALID_TOOL_CALL, {"schema_cues", "recovery_feedback"}),
        (Label.MISSING_TOOL_CALL, {"affordance_cues"}),
        (Label.RECOVERY_FAILURE, {"recovery_feedback"}),
        (Label.STATE_MISMATCH, set()),
        (Label.SPURIOUS_TOOL_CALL, set()),
        (Label.INSTANCE_MISMATCH, set()),
        (Label.RESPONSE_MISMATCH, set()),
    ],
)
def test_the_failure_decides_which_part_is_active(label: Label, parts: set[str]) -> None:
    interface = after(turns_of(label, 8))
    assert interface.version == 7
    assert set(interface.active()) == parts | {f"guideline:{label.value}"}


def test_too_few_observations_activate_nothing() -> None:
    assert after(turns_of(Label.ARGUMENT_MISMATCH, 7)).active() == ()


def test_a_rare_failure_activates_nothing() -> None:
    rare = turns_of(Label.ARGUMENT_MISMATCH, 9)
    assert "schema_cues" not in after(rare, turns_of(Label.STATE_MISMATCH, 82)).active()
    assert "schema_cues" in after(rare, turns_of(Label.STATE_MISMATCH, 81)).active()


def test_a_mastered_failure_loses_its_parts() -> None:
    unsolved = turns_of(Label.ARGUMENT_MISMATCH, 5)
    solved = turns_of(Label.ARGUMENT_MISMATCH, 5, reward=1.0)
    active = after(unsolved, solved)
    assert active.schema_cues
    mastered = profile_of(8, unsolved[:4] + solved + solved[:1])  # mean reward exactly 0.6
    assert evolve(active, mastered, CONFIG).active() == ()


def test_a_round_without_failures_switches_all_off() -> None:
    passes = profile_of(9, turns_of(Label.PASS, 20, reward=1.0))
    assert evolve(ALL_ON, passes, CONFIG) == replace(INITIAL, version=9)


def test_an_empty_profile_leaves_all_as_it_is() -> None:
    assert evolve(ALL_ON, replace(EMPTY, version=9), CONFIG) == replace(ALL_ON, version=9)


def test_guidelines_are_ordered_by_prevalence_times_what_is_left_to_earn() -> None:
    half_solved = turns_of(Label.STATE_MISMATCH, 10) + turns_of(Label.STATE_MISMATCH, 10, 1.0)
    interface = after(
        half_solved,  # 20 * 0.5
        turns_of(Label.MISSING_TOOL_CALL, 15),
        turns_of(Label.RESPONSE_MISMATCH, 12),
        turns_of(Label.SPURIOUS_TOOL_CALL, 12),
    )
    assert interface.guidelines == (
        Label.MISSING_TOOL_CALL,
        Label.SPURIOUS_TOOL_CALL,  # of equals the one of higher priority
        Label.RESPONSE_MISMATCH,
    )


@pytest.mark.parametrize(
    ("switch", "gone"),
    [
        ("schema_cues", {"schema_cues", "affordance_cues"}),
        ("recovery_feedback", {"recovery_feedback"}),
        ("guidelines", {"guideline:argument_mismatch", "guideline:missing_tool_call"}),
    ],
)
def test_each_component_can_be_switched_off(switch: str, gone: set[str]) -> None:
    rounds = (turns_of(Label.ARGUMENT_MISMATCH, 9), turns_of(Label.MISSING_TOOL_CALL, 9))
    off = replace(CONFIG, **{switch: False})
    assert set(after(*rounds).active()) - set(after(*rounds, config=off).active()) == gone


@UNTIMED
@given(
    st.lists(
        st.tuples(st.sampled_from(Label), st.integers(1, 20), st.sampled_from([0.0, 1.0])),
        max_size=8,
    )
)
def test_evolution_is_deterministic_and_bounded(groups: list[tuple[Label, int, float]]) -> None:
    trajectories = [one for group in groups for one in turns_of(*group)]
    profile = profile_of(5, trajectories)
    interface = evolve(INITIAL, profile, CONFIG)
    assert interface == evolve(INITIAL, profile_of(5, trajectories[::-1]), CONFIG)
    assert interface.version == 5
    assert len(interface.guidelines) <= CONFIG.max_guidelines
    if profile.by_label:  # then nothing of the interface before is left
        assert interface == evolve(ALL_ON, profile, CONFIG)


@pytest.mark.parametrize(
    "change",
    [
        {"min_prevalence": -0.1},
        {"min_prevalence": 1.1},
        {"max_mean_reward": 2},
        {"min_observations": 0},
        {"max_guidelines": -1},
    ],
)
def test_a_threshold_out_of_range_is_refused_by_name(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(change))):
        replace(CONFIG, **change)


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
    assert fields["seat"]["description"] == (
        "Where. (required) Type: a string. Allowed values: 'aisle', 'window'."
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
    assert shown is not given_doc
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
