"""The one vocabulary of diagnostic labels (paper section 3.2, Tables 5 and 6).

A label says in one word what became of one turn. `seal.coevolution.diagnosis` assigns it,
`profile` counts it, `interface` and `weights` react to it. Nothing else in the project names a
failure in another way.
"""

from enum import StrEnum


class Label(StrEnum):
    """What became of a turn; of several failures the first one listed is the label."""

    INVALID_TOOL_CALL = "invalid_tool_call"
    """Not parseable as a call, or names a tool that is not available at this turn."""
    ARGUMENT_MISMATCH = "argument_mismatch"
    """The tool exists, but required fields, types, enum values or structure are invalid."""
    SPURIOUS_TOOL_CALL = "spurious_tool_call"
    """Tools were called in a turn where the reference calls none."""
    STATE_MISMATCH = "state_mismatch"
    """Calls executed, but the observable state after the turn is not the expected one."""
    INSTANCE_MISMATCH = "instance_mismatch"
    """Another set of tool classes was touched than the one the turn needs."""
    RECOVERY_FAILURE = "recovery_failure"
    """An executable error was fed back, and later steps did not recover from it."""
    MISSING_TOOL_CALL = "missing_tool_call"
    """Needed tool use was skipped, or the turn was answered too early."""
    RESPONSE_MISMATCH = "response_mismatch"
    """The state is right, but the verifier's response check fails."""
    PASS = "pass"
    """The turn's state and responses are what the verifier expects."""
    CORRECT_ABSTENTION = "correct_abstention"
    """No tool was called in a turn where the reference calls none."""
    CHECKER_ERROR = "checker_error"
    """The verifier itself failed on this turn."""
    REFERENCE_ERROR = "reference_error"
    """The reference program failed on this turn."""


FAILURES: tuple[Label, ...] = (
    Label.INVALID_TOOL_CALL,
    Label.ARGUMENT_MISMATCH,
    Label.SPURIOUS_TOOL_CALL,
    Label.STATE_MISMATCH,
    Label.INSTANCE_MISMATCH,
    Label.RECOVERY_FAILURE,
    Label.MISSING_TOOL_CALL,
    Label.RESPONSE_MISMATCH,
)
"""Labels of failed turns that are the model's doing, highest priority first."""

EXCLUDED: frozenset[Label] = frozenset({Label.CHECKER_ERROR, Label.REFERENCE_ERROR})
"""Faults of the scorer: they carry no weight and count in no profile."""

_OLD_NAMES = {
    "empty_turn_model_response": Label.MISSING_TOOL_CALL,
    "gt_error": Label.REFERENCE_ERROR,
}


def label_from_config(name: str) -> Label:
    """Read a label's name from a configuration file, the published recipe's names included.

    Raises:
        ValueError: The name is no label; the message lists those there are.

    >>> label_from_config("empty_turn_model_response")
    <Label.MISSING_TOOL_CALL: 'missing_tool_call'>
    """
    if name in _OLD_NAMES:
        return _OLD_NAMES[name]
    try:
        return Label(name)
    except ValueError:
        known = ", ".join(label.value for label in Label)
        raise ValueError(f"unknown diagnostic label {name!r}; known labels: {known}") from None
