"""Every sentence that the learning interface can show a policy (paper section 3.3, appendix D).

`interface` decides when each is shown. The texts describe classes of errors and habits; none names
a tool, a value or a task. If a text changes, the hash of the interface changes.
"""

from collections.abc import Mapping

from seal.labels import Label

GUIDELINES: Mapping[Label, str] = {
    Label.INVALID_TOOL_CALL: (
        "Write every call exactly in the given format, and only to tools listed here."
    ),
    Label.ARGUMENT_MISMATCH: (
        "Before a call, check that every required argument is there and has the documented type."
    ),
    Label.SPURIOUS_TOOL_CALL: (
        "Call no tool if none fits the request or a needed value is unknown; ask instead."
    ),
    Label.STATE_MISMATCH: (
        "Do everything that was asked, nothing else, and use names and values just as given."
    ),
    Label.INSTANCE_MISMATCH: (
        "Choose the tools of the system that the request is about; leave other systems alone."
    ),
    Label.RECOVERY_FAILURE: (
        "After an error, find out its cause, change the call accordingly and try again."
    ),
    Label.MISSING_TOOL_CALL: "Say that something is done only after a tool call has done it.",
    Label.RESPONSE_MISMATCH: (
        "Look up with a tool everything the user asks to know; do not answer from memory."
    ),
}
"""One imperative sentence for each failure label (phi_cap)."""

GUIDELINES_HEAD = "Keep to these guidelines:"

SCHEMA_NOTE = (
    "In the tool descriptions, every argument is marked (required) or (optional), followed by the "
    "type its value must have and, where only some values are allowed, these values."
)
"""Explains the marks (phi_schema)."""

REQUIRED_MARK = "(required)"
OPTIONAL_MARK = "(optional)"
TYPE_MARK = "Type: {}."
ENUM_MARK = "Allowed values: {}."

AFFORDANCE_NOTE = (
    "Before you answer without a call, look through the tools for one that does what was asked."
)
"""The affordance cue (phi_schema)."""

PARSE_HINT = (
    "Hint: a tool call could not be read and was not executed: {}. Write every call in the given "
    "format, as one complete call with named arguments."
)
UNKNOWN_TOOL_HINT = (
    "Hint: unknown tool. Call one of the listed tools by its exact name; if none fits, answer "
    "without a call."
)
ARGUMENT_HINT = (
    "Hint: wrong arguments: {}. Call the tool again with the arguments that its description "
    "documents; ask the user for a value you do not know."
)
EXECUTION_HINT = (
    "Hint: execution error: the arguments have the right form, but the call does not fit the "
    "current state. Check the state with a read-only call first, then repeat the call with what "
    "you found or choose another tool."
)

SCHEMA_TEXTS = (SCHEMA_NOTE, REQUIRED_MARK, OPTIONAL_MARK, TYPE_MARK, ENUM_MARK)
"""All texts of the schema cues."""
RECOVERY_TEXTS = (PARSE_HINT, UNKNOWN_TOOL_HINT, ARGUMENT_HINT, EXECUTION_HINT)
"""All texts of the recovery feedback (phi_err)."""
