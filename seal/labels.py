"""The one vocabulary of diagnostic labels (paper section 3.2, Tables 5 and 6).

A label is the outcome of one turn. `seal.coevolution.diagnosis` assigns it, `profile` counts it,
`evolution` and `weights` react to it. The whole project uses these names and no others.
"""

from enum import StrEnum
from typing import NoReturn


class Label(StrEnum):
    """The outcome of a turn. Of several failures, the one that is listed first is the label."""

    INVALID_TOOL_CALL = "invalid_tool_call"
    """Not parseable as a call, or names a tool that is not available at this turn."""
    ARGUMENT_MISMATCH = "argument_mismatch"
    """The tool exists, but required fields, types, enum values or structure are invalid."""
    SPURIOUS_TOOL_CALL = "spurious_tool_call"
    """Tools were called in a turn where the reference calls none."""
    STATE_MISMATCH = "state_mismatch"
    """Calls executed, but the observable state after the turn is not the expected one."""
    INSTANCE_MISMATCH = "instance_mismatch"
    """The turn called another set of tool classes than it needs."""
    RECOVERY_FAILURE = "recovery_failure"
    """An executable error was fed back, and later steps did not recover from it."""
    MISSING_TOOL_CALL = "missing_tool_call"
    """A needed tool call was skipped, or the turn was answered too early."""
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

    @classmethod
    def _missing_(cls, value: object) -> NoReturn:
        """Refuse a name that is no label, with the known ones: enum asks this of `Label(value)`."""
        known = ", ".join(label.value for label in cls)
        raise ValueError(f"unknown diagnostic label {value!r:.60}; known labels: {known}")


SUCCESSES: frozenset[Label] = frozenset({Label.PASS, Label.CORRECT_ABSTENTION})
"""Labels of turns that the model did not fail."""

EXCLUDED: frozenset[Label] = frozenset({Label.CHECKER_ERROR, Label.REFERENCE_ERROR})
"""Faults of the scorer: they have no weight and count in no profile."""

FAILURES: tuple[Label, ...] = tuple(
    label for label in Label if label not in SUCCESSES and label not in EXCLUDED
)
"""Labels of turns that the model failed, highest priority first."""

_OLD_NAMES = {
    "empty_turn_model_response": Label.MISSING_TOOL_CALL,
    "gt_error": Label.REFERENCE_ERROR,
}


def label_from_config(name: str) -> Label:
    """The label of a name in a configuration file; names of the published recipe are accepted.

    Raises:
        ValueError: The name is no label; the message lists the known ones.

    >>> label_from_config("empty_turn_model_response")
    <Label.MISSING_TOOL_CALL: 'missing_tool_call'>
    """
    return _OLD_NAMES.get(name) or Label(name)
