"""Turn evidence to labels: one test a label, then how the rules part them."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seal.coevolution.diagnosis import CallEvidence, TurnEvidence, diagnose
from seal.coevolution.labels import FAILURES, Label
from seal.wire import TurnDiagnosis

# Run times on a shared machine say nothing; what is slow is tested by itself.
UNTIMED = settings(deadline=None)

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
    missing_responses=0,
    carried_differences=(),
    carried_missing=0,
    model_classes=FS,
    reference_classes=FS,
    truncated=False,
    checker_error=None,
    reference_error=None,
)
WRONG_STATE = replace(PASSED, state_differences=("FileSystem.root",))
IDLE = replace(PASSED, reference_calls=False, calls=(), reference_classes=frozenset())
FAULT = ((0, "the call is not valid JSON"),)


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
    (Label.RESPONSE_MISMATCH, None, replace(PASSED, missing_responses=1)),
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


def test_errors_that_were_repaired_do_not_spoil_a_pass() -> None:
    calls = (FAILED, WRONG_ARGUMENTS, UNAVAILABLE, replace(RAN, step=1))
    assert label_of(replace(PASSED, calls=calls, parse_faults=FAULT)) == Label.PASS


def test_a_turn_that_the_step_limit_cut_did_not_pass() -> None:
    diagnosis = diagnose(replace(PASSED, truncated=True))
    assert diagnosis.label == Label.RESPONSE_MISMATCH
    assert "step limit" in diagnosis.reason


def test_a_right_state_without_a_call_is_no_pass() -> None:
    assert label_of(replace(PASSED, calls=())) == Label.MISSING_TOOL_CALL


# ---- repairs -----------------------------------------------------------------------------


def later(call: CallEvidence, tool: str) -> CallEvidence:
    return replace(call, step=1, tool=tool)


def test_any_later_call_that_ran_repairs_an_invalid_one_but_a_sibling_does_not() -> None:
    for broken in (
        replace(WRONG_STATE, parse_faults=FAULT),
        replace(WRONG_STATE, calls=(UNAVAILABLE,)),
    ):
        repaired = replace(broken, calls=(*broken.calls, later(RAN, "pwd")))
        sibling = replace(broken, calls=(*broken.calls, RAN))
        assert label_of(repaired) == Label.STATE_MISMATCH
        assert label_of(sibling) == Label.INVALID_TOOL_CALL


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
        (FS | MAIL, MAIL, (), Label.RESPONSE_MISMATCH),
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
        missing_responses=1,
    )
    assert label_of(evidence) == label


# ---- cascades ----------------------------------------------------------------------------

CARRIED = replace(PASSED, carried_differences=("FileSystem.root",))


@pytest.mark.parametrize(
    ("evidence", "label"),
    [
        (CARRIED, Label.STATE_MISMATCH),
        (replace(PASSED, carried_missing=1), Label.RESPONSE_MISMATCH),
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
        (replace(CARRIED, missing_responses=1), Label.RESPONSE_MISMATCH),
        (replace(CARRIED, truncated=True), Label.RESPONSE_MISMATCH),
        (replace(CARRIED, calls=()), Label.MISSING_TOOL_CALL),
        (replace(CARRIED, calls=(), parse_faults=FAULT), Label.INVALID_TOOL_CALL),
        (replace(CARRIED, checker_error="boom"), Label.CHECKER_ERROR),
        (replace(CARRIED, reference_error="boom"), Label.REFERENCE_ERROR),
        (replace(IDLE, carried_missing=1), Label.CORRECT_ABSTENTION),
        (replace(IDLE, calls=(RAN,), carried_missing=1), Label.SPURIOUS_TOOL_CALL),
    ],
)
def test_a_failure_of_its_own_a_fault_or_an_empty_turn_is_no_cascade(
    evidence: TurnEvidence, label: Label
) -> None:
    diagnosis = diagnose(evidence)
    assert (diagnosis.label, diagnosis.cascade) == (label.value, False)
    assert diagnosis.reason == diagnose(without_carried(evidence)).reason


def without_carried(evidence: TurnEvidence) -> TurnEvidence:
    return replace(evidence, carried_differences=(), carried_missing=0)


# ---- reasons and totality ----------------------------------------------------------------


def test_a_reason_names_tool_rule_and_error() -> None:
    def reason(call: CallEvidence) -> str:
        return diagnose(replace(WRONG_STATE, calls=(call,))).reason

    assert "'ls'" in reason(FAILED) and "no such folder" in reason(FAILED)
    assert "missing required argument 'a'" in reason(WRONG_ARGUMENTS)
    assert "'rm_all'" in reason(UNAVAILABLE)
    assert "FileSystem.root" in diagnose(WRONG_STATE).reason


names = st.sampled_from(["FileSystem", "Mail", "Clock"])
calls = st.builds(
    CallEvidence,
    st.integers(0, 3),
    st.sampled_from(["ls", "pwd"]) | st.text(max_size=300),
    st.booleans(),
    st.lists(st.text(), max_size=2).map(tuple),
    st.none() | st.text(max_size=300),
)
evidences = st.builds(
    TurnEvidence,
    turn=st.integers(0, 9),
    reference_calls=st.booleans(),
    parse_faults=st.lists(st.tuples(st.integers(0, 3), st.text()), max_size=2).map(tuple),
    calls=st.lists(calls, max_size=4).map(tuple),
    state_differences=st.lists(names.map(lambda name: name + ".x"), max_size=2).map(tuple),
    missing_responses=st.integers(0, 2),
    carried_differences=st.lists(names.map(lambda name: name + ".y"), max_size=2).map(tuple),
    carried_missing=st.integers(0, 2),
    model_classes=st.frozensets(names),
    reference_classes=st.frozensets(names),
    truncated=st.booleans(),
    checker_error=st.none() | st.text(),
    reference_error=st.none() | st.text(),
)


@UNTIMED
@given(evidences)
def test_the_diagnosis_is_total_and_names_one_line_of_reason(evidence: TurnEvidence) -> None:
    diagnosis = diagnose(evidence)
    assert isinstance(diagnosis, TurnDiagnosis)
    assert Label(diagnosis.label) in Label
    assert diagnosis == diagnose(evidence)
    assert 0 < len(diagnosis.reason) < 400
    steps = [call.step for call in evidence.calls] + [step for step, _ in evidence.parse_faults]
    assert diagnosis.step is None or diagnosis.step in steps


@UNTIMED
@given(evidences)
def test_a_turn_that_the_verifier_accepts_never_carries_a_failure(evidence: TurnEvidence) -> None:
    accepted = replace(
        evidence,
        reference_calls=True,
        calls=(*evidence.calls, RAN),
        state_differences=(),
        missing_responses=0,
        carried_differences=(),
        carried_missing=0,
        truncated=False,
        checker_error=None,
        reference_error=None,
    )
    assert label_of(accepted) == Label.PASS


@UNTIMED
@given(evidences)
def test_pass_and_acceptance_are_the_same_thing(evidence: TurnEvidence) -> None:
    fine = evidence.checker_error is None and evidence.reference_error is None
    accepted = not (
        evidence.state_differences
        or evidence.carried_differences
        or evidence.missing_responses
        or evidence.carried_missing
        or evidence.truncated
    )
    passed = fine and evidence.reference_calls and bool(evidence.calls) and accepted
    assert (label_of(evidence) == Label.PASS) == passed


@UNTIMED
@given(evidences)
def test_a_cascade_is_a_turn_that_would_have_passed(evidence: TurnEvidence) -> None:
    diagnosis = diagnose(evidence)
    alone = diagnose(without_carried(evidence))
    assert not alone.cascade
    if diagnosis.cascade:
        assert diagnosis.label in FAILURES and alone.label == Label.PASS
    else:
        assert diagnosis == alone
