"""Turn evidence to one label: the diagnosis Psi (paper section 3.2, Tables 5 and 6).

In: evidence from a replay of the turn and the verifier's comparisons. Out: one `TurnDiagnosis`. It
is deterministic, gives every turn a label, and does not know the reward: a label is the outcome of
the turn, not of the task.

The rules, in order; the first that applies decides:

1. The reference or the verifier failed: reference_error, checker_error. They count nowhere.
2. The reference calls no tool. With a call of an available tool: spurious_tool_call, for any
   arguments. With only faults and unavailable tools: invalid_tool_call. Without calls and faults:
   correct_abstention; response_mismatch if a limit cut the turn.
3. The turn has a call, no state differs, no response is missing, and no limit cut it: pass, also if
   some of its calls were wrong. (The step limit does not cut the task's last turn: bfcl-eval takes
   that turn for answered.)
4. The turn failed. With priorities alone state_mismatch would hide every unrecovered error, because
   most errors leave a wrong state. So the conditions exclude each other:

   - invalid_tool_call: a call that cannot be read, if the tool that its text names did not run in a
     later step; or a call of an unavailable tool. Nothing else repairs such a call: a later call of
     another tool does not, and a tool cannot become available within a turn.
   - argument_mismatch: a call violated the schema of its tool, and no call of the same tool in a
     later step kept to the schema and ran. A violation counts even if the tool accepted the call:
     most Python tools accept a string for a number and do something wrong without an error.
   - recovery_failure: a call that kept to its schema gave an error, and no call of the same tool in
     a later step ran.
   - missing_tool_call: the turn has no call.
   - In all further rules every error was recovered ("calls execute").
     state_mismatch: an attribute differs, and both sides or neither called its class.
   - instance_mismatch: other tool classes were called than the reference's, and this alone explains
     the failure. Either only classes differ that one side called; or the state is right, a response
     is missing, and another class was called instead of one of the reference.
   - missing_tool_call, too: the state is right, but a response is missing whose tool was not called
     in the turn; other responses may be missing as well. A skipped call that would have changed the
     state is a state_mismatch, or an instance_mismatch if no tool of its class was called.
   - response_mismatch: the state is right, but a response is missing although its tool was called,
     or a limit cut the turn before it was answered.

   If several labels are true of a turn, the order of `labels.Label` decides: instance_mismatch
   before missing_tool_call, and missing_tool_call before response_mismatch.

"Later" means a later step, because all calls of a message are written before any is answered.

A turn is first judged by its own actions. If these pass, but something wrong is carried over from
earlier turns, the official checks still fail the turn. Then the rules of 4 see all of the evidence,
and the label is marked as a cascade. So a turn with a failure of its own is never a cascade.

>>> evidence = TurnEvidence(
...     turn=2,
...     reference_calls=True,
...     parse_faults=(),
...     calls=(CallEvidence(0, "cd", True, (), "cd: no such directory"),),
...     state_differences=("GorillaFileSystem.current_dir",),
...     missing_responses=("grep",),
...     carried_differences=(),
...     carried_missing=(),
...     model_classes=frozenset({"GorillaFileSystem"}),
...     reference_classes=frozenset({"GorillaFileSystem"}),
...     truncated=False,
...     checker_error=None,
...     reference_error=None,
... )
>>> diagnosis = diagnose(evidence)
>>> diagnosis.label.value, diagnosis.step, diagnosis.reason
('recovery_failure', 0, "'cd' gave an execution error and did not run later: cd: no such directory")
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from seal.labels import Label
from seal.wire import TurnDiagnosis

_CUT = "the dialogue was cut (step limit or tokens) before the turn was answered"
_LONGEST_QUOTE = 120
"""Texts of the environment and names by the policy are cut to this many characters."""


@dataclass(frozen=True)
class CallEvidence:
    """The outcome of one call that could be read."""

    step: int
    """Index of the step within the turn."""
    tool: str
    """Name as the policy wrote it."""
    available: bool
    """The tool may be called at this turn."""
    violations: tuple[str, ...]
    """Result of `schema.schema_violations`; empty for a tool that is not available."""
    error: str | None
    """The environment's error text; None if the call ran."""


@dataclass(frozen=True)
class FaultEvidence:
    """One call that could not be read."""

    step: int
    """Index of the step within the turn."""
    reason: str
    """What is wrong with its text."""
    tool: str | None
    """The tool that its text names; None if it names none."""


@dataclass(frozen=True)
class TurnEvidence:
    """Evidence of a turn; effects of earlier turns (`carried_*`) are kept apart from its own."""

    turn: int
    """Index of the turn in the dialogue."""
    reference_calls: bool
    """The reference calls tools in this turn."""
    parse_faults: tuple[FaultEvidence, ...]
    """Calls that could not be read, in order."""
    calls: tuple[CallEvidence, ...]
    """Calls that could be read, in order."""
    state_differences: tuple[str, ...]
    """Attributes (Class.attribute) that differ from the reference's because of this turn."""
    missing_responses: tuple[str, ...]
    """Tool of each result of the reference that the policy has not seen because of this turn.

    These are names of the reference: they stay in the service, and no reason quotes one.
    """
    carried_differences: tuple[str, ...]
    """Attributes that differ because of earlier turns; none is in `state_differences`."""
    carried_missing: tuple[str, ...]
    """As `missing_responses`, but because of earlier turns."""
    model_classes: frozenset[str]
    """Tool classes that the policy called."""
    reference_classes: frozenset[str]
    """Tool classes that the reference calls."""
    truncated: bool
    """A limit ended the dialogue in this turn, before it was answered: the step limit, but not in
    the last turn of the task, or the policy's tokens, in any turn."""
    checker_error: str | None
    """Error of the verifier, None if it gave a verdict. It stays in the service."""
    reference_error: str | None
    """Error of the reference program, None if it ran. It stays in the service."""


def diagnose(evidence: TurnEvidence) -> TurnDiagnosis:
    """The dominant label of a turn, by the rules in the module's docstring."""
    # The text of a scorer's fault may quote the reference, so no reason has it.
    if evidence.reference_error is not None:
        reason = "the reference program failed on this turn"
        return _diagnosis(evidence, Label.REFERENCE_ERROR, reason)
    if evidence.checker_error is not None:
        return _diagnosis(evidence, Label.CHECKER_ERROR, "the verifier failed on this turn")
    if not evidence.reference_calls:
        return _abstention(evidence)
    return _cascade(evidence) or _passed(evidence) or _failed(evidence)


def _diagnosis(
    evidence: TurnEvidence, label: Label, reason: str, step: int | None = None
) -> TurnDiagnosis:
    return TurnDiagnosis(evidence.turn, label, reason, step)


def _abstention(evidence: TurnEvidence) -> TurnDiagnosis:
    """The label of a turn in which no tool should be called."""
    for call in evidence.calls:
        if call.available:
            reason = f"{_quoted(call.tool)} was called, but the turn needs no tool"
            return _diagnosis(evidence, Label.SPURIOUS_TOOL_CALL, reason, call.step)
    invalid = _invalid(evidence)
    if invalid is not None:
        return invalid
    if evidence.truncated:
        return _diagnosis(evidence, Label.RESPONSE_MISMATCH, _CUT)
    reason = "no tool was called, and the turn needs none"
    return _diagnosis(evidence, Label.CORRECT_ABSTENTION, reason)


def _cascade(evidence: TurnEvidence) -> TurnDiagnosis | None:
    """The label of a turn that is right itself but begins in a wrong state; else None."""
    carried = evidence.carried_differences or evidence.carried_missing
    if not carried or _passed(evidence) is None:
        return None
    failure = _failed(
        replace(
            evidence,
            state_differences=(*evidence.state_differences, *evidence.carried_differences),
            missing_responses=(*evidence.missing_responses, *evidence.carried_missing),
        )
    )
    reason = f"{failure.reason}; only because an earlier turn had failed already"
    return replace(failure, reason=reason, cascade=True)


def _passed(evidence: TurnEvidence) -> TurnDiagnosis | None:
    failed = evidence.state_differences or evidence.missing_responses or evidence.truncated
    if failed or not evidence.calls:
        return None
    return _diagnosis(evidence, Label.PASS, "state and responses are what the verifier expects")


def _failed(evidence: TurnEvidence) -> TurnDiagnosis:
    return _broken_call(evidence) or _wrong_outcome(evidence)


def _broken_call(evidence: TurnEvidence) -> TurnDiagnosis | None:
    """The first call that was invalid or wrong and was not repaired."""
    invalid = _invalid(evidence)
    if invalid is not None:
        return invalid
    for call in evidence.calls:
        if call.violations and not _ran_later(evidence.calls, call, clean=True):
            reason = f"{_quoted(call.tool)} was called with wrong arguments: {call.violations[0]}"
            return _diagnosis(evidence, Label.ARGUMENT_MISMATCH, reason, call.step)
    for call in evidence.calls:
        failed = call.available and not call.violations and call.error is not None
        if failed and not _ran_later(evidence.calls, call, clean=False):
            what = f"{_quoted(call.tool)} gave an execution error and did not run later"
            reason = f"{what}: {_clipped(call.error)}"
            return _diagnosis(evidence, Label.RECOVERY_FAILURE, reason, call.step)
    return None


def _invalid(evidence: TurnEvidence) -> TurnDiagnosis | None:
    """The first call of an unavailable tool, or that was unreadable and not repaired."""
    invalid = [
        (fault.step, f"a tool call could not be read: {_clipped(fault.reason)}")
        for fault in evidence.parse_faults
        if not _ran_later(evidence.calls, fault, clean=False)
    ]
    invalid += [
        (call.step, f"{_quoted(call.tool)} is no tool that is available at this turn")
        for call in evidence.calls
        if not call.available
    ]
    if not invalid:
        return None
    step, reason = min(invalid, key=lambda step_and_reason: step_and_reason[0])
    return _diagnosis(evidence, Label.INVALID_TOOL_CALL, reason, step)


def _wrong_outcome(evidence: TurnEvidence) -> TurnDiagnosis:
    """The label of a turn that failed although every call was right in the end."""
    if not evidence.calls:
        reason = "the turn was answered without a call, but it needs one"
        reason = _CUT if evidence.truncated else reason
        return _diagnosis(evidence, Label.MISSING_TOOL_CALL, reason)
    one_sided = evidence.model_classes ^ evidence.reference_classes
    differing = {attribute.partition(".")[0] for attribute in evidence.state_differences}
    if differing - one_sided:
        names = _clipped(", ".join(evidence.state_differences))
        return _diagnosis(
            evidence, Label.STATE_MISMATCH, f"the state differs after the turn in {names}"
        )
    left_out = evidence.reference_classes - evidence.model_classes
    replaced = left_out and evidence.model_classes - evidence.reference_classes
    if differing or (evidence.missing_responses and replaced):
        names = _clipped(", ".join(sorted(differing or left_out)))
        reason = (
            f"the turn called another set of tool classes than it needs; it went wrong in {names}"
        )
        return _diagnosis(evidence, Label.INSTANCE_MISMATCH, reason)
    called = {call.tool for call in evidence.calls}
    skipped = sum(tool not in called for tool in evidence.missing_responses)
    if skipped:
        reason = (
            f"the state is right, but results are missing whose tools were not called: {skipped}"
        )
        return _diagnosis(evidence, Label.MISSING_TOOL_CALL, reason)
    if evidence.missing_responses:
        count = len(evidence.missing_responses)
        reason = f"the state is right, but results are missing: {count}"
        return _diagnosis(evidence, Label.RESPONSE_MISMATCH, reason)
    return _diagnosis(evidence, Label.RESPONSE_MISMATCH, _CUT)


def _ran_later(
    calls: Sequence[CallEvidence], failed: CallEvidence | FaultEvidence, clean: bool
) -> bool:
    """Whether the same tool ran in a later step; if `clean`, without schema violations."""
    return any(
        call.available
        and call.error is None
        and call.tool == failed.tool
        and call.step > failed.step
        and not (clean and call.violations)
        for call in calls
    )


def _quoted(name: str) -> str:
    return repr(name[:_LONGEST_QUOTE])


def _clipped(text: str | None) -> str:
    flat = " ".join((text or "").split())
    return flat if len(flat) <= _LONGEST_QUOTE else flat[:_LONGEST_QUOTE] + "..."
