"""What holds of the label of any evidence at all."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from seal.coevolution.diagnosis import CallEvidence, FaultEvidence, TurnEvidence, diagnose
from seal.labels import FAILURES, Label
from seal.wire import TurnDiagnosis

# Run times on a shared machine say nothing; what is slow is tested by itself.
UNTIMED = settings(deadline=None)

RAN = CallEvidence(0, "ls", True, (), None)


def label_of(evidence: TurnEvidence) -> Label:
    return Label(diagnose(evidence).label)


tools = st.sampled_from(["ls", "pwd"]) | st.text(max_size=300)
some_tools = st.lists(st.sampled_from(["ls", "pwd", "grep"]), max_size=2).map(tuple)
faults = st.builds(FaultEvidence, st.integers(0, 3), st.text(), st.none() | tools)
names = st.sampled_from(["FileSystem", "Mail", "Clock"])
calls = st.builds(
    CallEvidence,
    st.integers(0, 3),
    tools,
    st.booleans(),
    st.lists(st.text(), max_size=2).map(tuple),
    st.none() | st.text(max_size=300),
)
evidences = st.builds(
    TurnEvidence,
    turn=st.integers(0, 9),
    reference_calls=st.booleans(),
    parse_faults=st.lists(faults, max_size=2).map(tuple),
    calls=st.lists(calls, max_size=4).map(tuple),
    state_differences=st.lists(names.map(lambda name: name + ".x"), max_size=2).map(tuple),
    missing_responses=some_tools,
    carried_differences=st.lists(names.map(lambda name: name + ".y"), max_size=2).map(tuple),
    carried_missing=some_tools,
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
    steps = [call.step for call in evidence.calls] + [one.step for one in evidence.parse_faults]
    assert diagnosis.step is None or diagnosis.step in steps


@UNTIMED
@given(evidences)
def test_a_turn_that_the_verifier_accepts_never_carries_a_failure(evidence: TurnEvidence) -> None:
    accepted = replace(
        evidence,
        reference_calls=True,
        calls=(*evidence.calls, RAN),
        state_differences=(),
        missing_responses=(),
        carried_differences=(),
        carried_missing=(),
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
def test_a_turn_that_a_limit_cut_never_counts_as_done(evidence: TurnEvidence) -> None:
    cut = label_of(replace(evidence, truncated=True))
    assert cut not in (Label.PASS, Label.CORRECT_ABSTENTION)
    whole = label_of(replace(evidence, truncated=False))
    if whole in (Label.PASS, Label.CORRECT_ABSTENTION):
        assert cut in FAILURES


@UNTIMED
@given(evidences)
def test_a_cascade_is_a_turn_that_would_have_passed(evidence: TurnEvidence) -> None:
    diagnosis = diagnose(evidence)
    alone = diagnose(replace(evidence, carried_differences=(), carried_missing=()))
    assert not alone.cascade
    if diagnosis.cascade:
        assert diagnosis.label in FAILURES and alone.label == Label.PASS
    else:
        assert diagnosis == alone


@UNTIMED
@given(evidences, st.none() | tools, st.lists(calls, max_size=4))
def test_no_later_call_of_another_tool_makes_an_invalid_call_valid(
    evidence: TurnEvidence, tool: str | None, more: list[CallEvidence]
) -> None:
    """Whatever else a failed turn holds: priority 1 stands."""
    failed = fails(evidence)
    others = [replace(call, step=call.step + 1) for call in more if call.tool != tool]
    fault = FaultEvidence(0, "the call is not valid JSON", tool)
    unavailable = CallEvidence(0, tool or "rm_all", False, (), "unknown tool")
    for broken in (
        replace(failed, parse_faults=(fault,), calls=()),
        replace(failed, parse_faults=(), calls=(unavailable,)),
    ):
        longer = replace(broken, calls=(*broken.calls, *others))
        assert label_of(broken) == label_of(longer) == Label.INVALID_TOOL_CALL


@UNTIMED
@given(evidences, st.lists(calls, max_size=4))
def test_an_unreadable_call_that_was_repaired_leaves_no_trace(
    evidence: TurnEvidence, more: list[CallEvidence]
) -> None:
    repaired = replace(fails(evidence), calls=(*more, replace(RAN, step=1)))
    fault = FaultEvidence(0, "the call is not valid JSON", "ls")
    with_fault = replace(repaired, parse_faults=(fault,))
    assert diagnose(with_fault) == diagnose(replace(repaired, parse_faults=()))


def fails(evidence: TurnEvidence) -> TurnEvidence:
    """The same with a reference and a failure of the turn's own."""
    return replace(
        evidence,
        reference_calls=True,
        state_differences=("FileSystem.root",),
        checker_error=None,
        reference_error=None,
    )


@UNTIMED
@given(evidences)
def test_a_reason_does_not_depend_on_which_tools_are_missing(evidence: TurnEvidence) -> None:
    """Names of the reference stay out of it, but for whether the policy called the tool."""
    uncalled = replace(evidence, calls=(replace(RAN, tool="other"),), reference_error=None)
    renamed = replace(
        uncalled,
        missing_responses=("secret",) * len(uncalled.missing_responses),
        carried_missing=("secret",) * len(uncalled.carried_missing),
    )
    assert diagnose(renamed) == diagnose(uncalled)
