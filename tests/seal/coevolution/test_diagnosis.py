"""Turn evidence to labels: one test a label, then how the rules part them.

What holds of any evidence at all is in test_diagnosis_properties.py.
"""

from dataclasses import replace

import pytest

from seal.coevolution.diagnosis import CallEvidence, FaultEvidence, TurnEvidence, diagnose
from seal.labels import Label

FS = frozenset({"FileSystem"})
MAIL = frozenset({"Mail"})
RAN = CallEvidence(0, "ls", True, (), None)
FAILED = CallEvidence(0, "ls", True, (), "no such folder")
WRONG_ARGUMENTS = CallEvidence(0, "ls", True, ("missing required argument 'a'",), "TypeError")
UNAVAILABLE = CallEvidence(0, "rm_all", False, (), "unknown tool")

PASSED = TurnEvidence(
    turn=1,
    reference_calls=True,
    parse_faults=(),
    calls=(RAN,),
    state_differences=(),
    missing_responses=(),
    carried_differences=(),
    carried_missing=(),
    model_classes=FS,
    reference_classes=FS,
    truncated=False,
    checker_error=None,
    reference_error=None,
)
WRONG_STATE = replace(PASSED, state_differences=("FileSystem.root",))
IDLE = replace(PASSED, reference_calls=False, calls=(), reference_classes=frozenset())
FAULT = (FaultEvidence(0, "the call is not valid JSON", "ls"),)
NAMELESS = (FaultEvidence(0, "the call is not valid JSON", None),)


def label_of(evidence: TurnEvidence) -> Label:
    return Label(diagnose(evidence).label)


CASES = [
    (Label.REFERENCE_ERROR, None, replace(WRONG_STATE, reference_error="boom")),
    (Label.CHECKER_ERROR, None, replace(WRONG_STATE, checker_error="boom")),
    (Label.PASS, None, PASSED),
    (Label.CORRECT_ABSTENTION, None, replace(IDLE, model_classes=frozenset())),
    (Label.SPURIOUS_TOOL_CALL, 0, replace(IDLE, calls=(RAN,))),
    (Label.INVALID_TOOL_CALL, 0, replace(WRONG_STATE, calls=(), parse_faults=FAULT)),
    (Label.INVALID_TOOL_CALL, 0, replace(WRONG_STATE, calls=(UNAVAILABLE,))),
    (Label.ARGUMENT_MISMATCH, 0, replace(WRONG_STATE, calls=(WRONG_ARGUMENTS,))),
    (Label.RECOVERY_FAILURE, 0, replace(WRONG_STATE, calls=(FAILED,))),
    (Label.MISSING_TOOL_CALL, None, replace(WRONG_STATE, calls=(), model_classes=frozenset())),
    (Label.STATE_MISMATCH, None, WRONG_STATE),
    (
        Label.INSTANCE_MISMATCH,
        None,
        replace(WRONG_STATE, model_classes=MAIL, state_differences=("Mail.inbox",)),
    ),
    (Label.RESPONSE_MISMATCH, None, replace(PASSED, missing_responses=("ls",))),
]


@pytest.mark.parametrize(("label", "step", "evidence"), CASES)
def test_every_label_is_reached(label: Label, step: int | None, evidence: TurnEvidence) -> None:
    diagnosis = diagnose(evidence)
    assert (diagnosis.turn, diagnosis.label, diagnosis.step) == (1, label.value, step)


def test_no_label_is_left_out_above() -> None:
    assert {label for label, _, _ in CASES} == set(Label)


# ---- scorer's faults and turns without reference -----------------------------------------


def test_texts_of_the_scorer_stay_on_the_service_side() -> None:
    for evidence in (
        replace(PASSED, checker_error="expected balance 4711"),
        replace(PASSED, reference_error="transfer(4711) failed"),
    ):
        assert "4711" not in diagnose(evidence).reason


def test_without_reference_calls_only_broken_ones_are_invalid_and_any_real_one_spurious() -> None:
    assert label_of(replace(IDLE, parse_faults=FAULT)) == Label.INVALID_TOOL_CALL
    assert label_of(replace(IDLE, calls=(UNAVAILABLE,))) == Label.INVALID_TOOL_CALL
    mixed = replace(IDLE, parse_faults=FAULT, calls=(UNAVAILABLE, WRONG_ARGUMENTS))
    assert label_of(mixed) == Label.SPURIOUS_TOOL_CALL


# ---- passing -----------------------------------------------------------------------------


def test_errors_do_not_spoil_a_pass() -> None:
    calls = (FAILED, WRONG_ARGUMENTS, UNAVAILABLE, replace(RAN, step=1))
    for faults in (FAULT, NAMELESS):
        assert label_of(replace(PASSED, calls=calls, parse_faults=faults)) == Label.PASS


def test_a_turn_that_the_step_limit_cut_did_not_pass() -> None:
    diagnosis = diagnose(replace(PASSED, truncated=True))
    assert diagnosis.label == Label.RESPONSE_MISMATCH
    assert "step limit" in diagnosis.reason


def test_a_right_state_without_a_call_is_no_pass() -> None:
    assert label_of(replace(PASSED, calls=())) == Label.MISSING_TOOL_CALL


# ---- repairs -----------------------------------------------------------------------------


def later(call: CallEvidence, tool: str) -> CallEvidence:
    return replace(call, step=1, tool=tool)


def test_an_unreadable_call_is_repaired_by_the_tool_that_it_names_and_by_no_other() -> None:
    """Before, any later call that ran was a repair."""

    def with_second(call: CallEvidence, faults: tuple[FaultEvidence, ...] = FAULT) -> Label:
        return label_of(replace(WRONG_STATE, calls=(call,), parse_faults=faults))

    assert with_second(later(RAN, "ls")) == Label.STATE_MISMATCH
    assert with_second(RAN) == Label.INVALID_TOOL_CALL  # of the same message: no repair
    assert with_second(later(RAN, "pwd")) == Label.INVALID_TOOL_CALL
    assert with_second(later(FAILED, "ls")) == Label.INVALID_TOOL_CALL
    assert with_second(later(UNAVAILABLE, "ls")) == Label.INVALID_TOOL_CALL
    assert with_second(later(RAN, "ls"), NAMELESS) == Label.INVALID_TOOL_CALL
    assert with_second(later(RAN, "ls"), FAULT + NAMELESS) == Label.INVALID_TOOL_CALL
    took = replace(later(WRONG_ARGUMENTS, "ls"), error=None)
    assert with_second(took) == Label.ARGUMENT_MISMATCH  # repaired, but not well


def test_an_unavailable_tool_is_repaired_by_nothing() -> None:
    """Before, any later call that ran was a repair."""
    for tool in ("ls", "rm", UNAVAILABLE.tool):
        calls = (UNAVAILABLE, replace(UNAVAILABLE, step=1), replace(RAN, step=2, tool=tool))
        found = diagnose(replace(WRONG_STATE, calls=calls))
        assert (found.label, found.step) == (Label.INVALID_TOOL_CALL, 0)


def test_the_step_of_an_invalid_call_is_that_of_the_earliest_unrepaired_one() -> None:
    calls = (later(UNAVAILABLE, "rm_all"), later(RAN, "ls"))
    found = diagnose(replace(WRONG_STATE, calls=calls, parse_faults=FAULT))
    assert (found.label, found.step) == (Label.INVALID_TOOL_CALL, 1)
    assert "rm_all" in found.reason


def test_wrong_arguments_are_repaired_by_the_same_tool_only() -> None:
    def with_second(call: CallEvidence) -> Label:
        return label_of(replace(WRONG_STATE, calls=(WRONG_ARGUMENTS, call)))

    assert with_second(later(RAN, "ls")) == Label.STATE_MISMATCH
    assert with_second(later(RAN, "pwd")) == Label.ARGUMENT_MISMATCH
    assert with_second(later(WRONG_ARGUMENTS, "ls")) == Label.ARGUMENT_MISMATCH
    assert with_second(RAN) == Label.ARGUMENT_MISMATCH


def test_a_broken_schema_counts_even_where_the_tool_took_it() -> None:
    took = replace(WRONG_ARGUMENTS, error=None)
    assert label_of(replace(WRONG_STATE, calls=(took,))) == Label.ARGUMENT_MISMATCH
    assert label_of(replace(PASSED, calls=(took,))) == Label.PASS
    again = replace(WRONG_STATE, calls=(WRONG_ARGUMENTS, later(took, "ls")))
    assert diagnose(again).label == Label.ARGUMENT_MISMATCH
    assert diagnose(again).step == 0  # the second call is no repair of the first


def test_an_error_is_recovered_from_when_the_same_tool_runs_later() -> None:
    def with_second(call: CallEvidence) -> Label:
        return label_of(replace(WRONG_STATE, calls=(FAILED, call)))

    assert with_second(later(RAN, "ls")) == Label.STATE_MISMATCH
    assert with_second(later(RAN, "pwd")) == Label.RECOVERY_FAILURE
    assert with_second(RAN) == Label.RECOVERY_FAILURE


def test_the_step_is_that_of_the_earliest_unrepaired_call() -> None:
    calls = (FAILED, later(RAN, "ls"), replace(FAILED, step=2, tool="cat"))
    assert diagnose(replace(WRONG_STATE, calls=calls)).step == 2


# ---- state, classes, responses -----------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "reference", "differing", "label"),
    [
        (FS, FS, ("FileSystem.root",), Label.STATE_MISMATCH),
        (FS, MAIL, ("FileSystem.root",), Label.INSTANCE_MISMATCH),
        (FS, FS | MAIL, ("Mail.inbox",), Label.INSTANCE_MISMATCH),
        (FS | MAIL, FS, ("Mail.inbox",), Label.INSTANCE_MISMATCH),
        (FS, FS | MAIL, ("FileSystem.root", "Mail.inbox"), Label.STATE_MISMATCH),
        (FS, MAIL, ("Clock.time",), Label.STATE_MISMATCH),
        (FS, MAIL, (), Label.INSTANCE_MISMATCH),
        (FS, FS | MAIL, (), Label.MISSING_TOOL_CALL),  # left out, with nothing in its place
        (FS | MAIL, MAIL, (), Label.MISSING_TOOL_CALL),
    ],
)
def test_other_classes_must_explain_the_failure_alone(
    model: frozenset[str], reference: frozenset[str], differing: tuple[str, ...], label: Label
) -> None:
    evidence = replace(
        PASSED,
        model_classes=model,
        reference_classes=reference,
        state_differences=differing,
        missing_responses=("send_mail",),
    )
    assert label_of(evidence) == label


@pytest.mark.parametrize(
    ("missing", "label"),
    [
        (("ls",), Label.RESPONSE_MISMATCH),
        (("ls", "ls"), Label.RESPONSE_MISMATCH),
        (("grep",), Label.MISSING_TOOL_CALL),
        (("ls", "grep"), Label.MISSING_TOOL_CALL),  # the first of two labels that are true
    ],
)
def test_a_result_of_a_tool_that_was_not_called_is_a_missing_call(
    missing: tuple[str, ...], label: Label
) -> None:
    """Before, each of these was a response_mismatch."""
    for calls in ((RAN,), (FAILED, later(RAN, "ls"))):
        found = diagnose(replace(PASSED, calls=calls, missing_responses=missing))
        assert (found.label, found.step) == (label, None)
        assert "grep" not in found.reason  # a name of the reference
        assert found.reason.endswith(f": {missing.count('grep') or len(missing)}")


def test_what_comes_before_a_missing_call_hides_it() -> None:
    """The order of labels.Label."""
    skipped = replace(PASSED, missing_responses=("grep",))
    for label, evidence in (
        (Label.INVALID_TOOL_CALL, replace(skipped, parse_faults=NAMELESS)),
        (Label.ARGUMENT_MISMATCH, replace(skipped, calls=(WRONG_ARGUMENTS,))),
        (Label.STATE_MISMATCH, replace(skipped, state_differences=("FileSystem.root",))),
        (Label.INSTANCE_MISMATCH, replace(skipped, reference_classes=MAIL)),
        (Label.RECOVERY_FAILURE, replace(skipped, calls=(FAILED,))),
    ):
        assert label_of(evidence) == label


def test_a_cut_turn_that_skipped_a_call_is_one_with_a_missing_call() -> None:
    assert label_of(replace(PASSED, truncated=True, missing_responses=("grep",))) == (
        Label.MISSING_TOOL_CALL
    )


# ---- cascades ----------------------------------------------------------------------------

CARRIED = replace(PASSED, carried_differences=("FileSystem.root",))


@pytest.mark.parametrize(
    ("evidence", "label"),
    [
        (CARRIED, Label.STATE_MISMATCH),
        (replace(PASSED, carried_missing=("ls",)), Label.RESPONSE_MISMATCH),
        (replace(PASSED, carried_missing=("ls", "grep")), Label.MISSING_TOOL_CALL),
        (replace(CARRIED, calls=(RAN, UNAVAILABLE)), Label.INVALID_TOOL_CALL),
        (replace(CARRIED, reference_classes=MAIL), Label.INSTANCE_MISMATCH),
        (replace(CARRIED, calls=(FAILED,)), Label.RECOVERY_FAILURE),
        (replace(CARRIED, calls=(WRONG_ARGUMENTS,)), Label.ARGUMENT_MISMATCH),
    ],
)
def test_a_turn_that_is_in_order_itself_fails_as_a_cascade(
    evidence: TurnEvidence, label: Label
) -> None:
    diagnosis = diagnose(evidence)
    assert (diagnosis.label, diagnosis.cascade) == (label.value, True)
    assert diagnosis.reason.endswith("only because an earlier turn had failed already")


@pytest.mark.parametrize(
    ("evidence", "label"),
    [
        (replace(CARRIED, state_differences=("Mail.inbox",)), Label.STATE_MISMATCH),
        (replace(CARRIED, missing_responses=("ls",)), Label.RESPONSE_MISMATCH),
        (replace(CARRIED, missing_responses=("grep",)), Label.MISSING_TOOL_CALL),
        (
            replace(PASSED, missing_responses=("ls",), carried_missing=("grep",)),
            Label.RESPONSE_MISMATCH,
        ),
        (replace(CARRIED, truncated=True), Label.RESPONSE_MISMATCH),
        (replace(CARRIED, calls=()), Label.MISSING_TOOL_CALL),
        (replace(CARRIED, calls=(), parse_faults=FAULT), Label.INVALID_TOOL_CALL),
        (replace(CARRIED, checker_error="boom"), Label.CHECKER_ERROR),
        (replace(CARRIED, reference_error="boom"), Label.REFERENCE_ERROR),
        (replace(IDLE, carried_missing=("ls",)), Label.CORRECT_ABSTENTION),
        (replace(IDLE, calls=(RAN,), carried_missing=("ls",)), Label.SPURIOUS_TOOL_CALL),
    ],
)
def test_a_failure_of_its_own_a_fault_or_an_empty_turn_is_no_cascade(
    evidence: TurnEvidence, label: Label
) -> None:
    diagnosis = diagnose(evidence)
    assert (diagnosis.label, diagnosis.cascade) == (label.value, False)
    assert diagnosis.reason == diagnose(without_carried(evidence)).reason


def without_carried(evidence: TurnEvidence) -> TurnEvidence:
    return replace(evidence, carried_differences=(), carried_missing=())


# ---- reasons -----------------------------------------------------------------------------


def test_a_reason_names_tool_rule_and_error() -> None:
    def reason(call: CallEvidence) -> str:
        return diagnose(replace(WRONG_STATE, calls=(call,))).reason

    assert "'ls'" in reason(FAILED) and "no such folder" in reason(FAILED)
    assert "missing required argument 'a'" in reason(WRONG_ARGUMENTS)
    assert "'rm_all'" in reason(UNAVAILABLE)
    assert "FileSystem.root" in diagnose(WRONG_STATE).reason
