"""The learning interface Omega_t: what the policy is shown in training (paper section 3.3).

In: which parts are on. Out: what is added to the original benchmark: marks in tool docs, a note in
the system message, hints behind error texts. Only episodes of mode "train" show it. Tools, outputs,
tasks and the verifier never change, and no text contains anything from a reference. `evolution`
decides which parts are on; `texts` holds the sentences.
"""

import copy
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from seal.coevolution import texts
from seal.coevolution.checks import json_fields
from seal.coevolution.diagnosis import CallEvidence
from seal.coevolution.schema import type_in_words
from seal.formats import ParseFault
from seal.labels import FAILURES, Label
from seal.wire import InterfaceReply, ToolDoc

_MOST_REASONS = 3
"""How many faults or violations a hint names: the first ones, because they cause the others."""
_LONGEST_REASON = 200
_MOST_MARKED = 4096
"""How many marked docs are kept in memory; BFCL has 128 docs."""


@dataclass(frozen=True)
class Interface:
    """The learning interface Omega_t. It never changes: an episode keeps the one it began with."""

    version: int
    """Version of the profile that it was evolved from; 0 is the original benchmark."""
    schema_cues: bool
    """Tool docs carry marks."""
    affordance_cues: bool
    """The system note says to look for a tool before answering."""
    recovery_feedback: bool
    """Errors are followed by a hint."""
    guidelines: tuple[Label, ...]
    """Failures whose guideline is shown, the most urgent first."""

    def tool_docs(self, docs: Sequence[ToolDoc]) -> list[ToolDoc]:
        """Tool docs as the policy sees them; the given docs are not changed.

        Episodes share the given and the returned docs, so the caller must not change them.

        >>> from dataclasses import replace
        >>> doc = {
        ...     "type": "function",
        ...     "function": {
        ...         "name": "cd",
        ...         "description": "Change directory.",
        ...         "parameters": {
        ...             "type": "dict",
        ...             "properties": {"folder": {"type": "string", "description": "Where to."}},
        ...             "required": ["folder"],
        ...         },
        ...     },
        ... }
        >>> shown = replace(INITIAL, schema_cues=True).tool_docs([doc])[0]
        >>> shown["function"]["parameters"]["properties"]["folder"]["description"]
        'Where to. (required) Type: a string.'
        """
        return [_marked(doc) for doc in docs] if self.schema_cues else list(docs)

    def system_note(self) -> str | None:
        """Text for the system message; None if no part has one."""
        notes = [texts.SCHEMA_NOTE] if self.schema_cues else []
        notes += [texts.AFFORDANCE_NOTE] if self.affordance_cues else []
        if self.guidelines:
            lines = [f"- {texts.GUIDELINES[label]}" for label in self.guidelines]
            notes.append("\n".join([texts.GUIDELINES_HEAD, *lines]))
        return "\n\n".join(notes) if notes else None

    def parse_feedback(self, faults: Sequence[ParseFault]) -> str | None:
        """Hint on calls that could not be read; None if there is none."""
        if not self.recovery_feedback or not faults:
            return None
        reasons = dict.fromkeys(fault.reason[:_LONGEST_REASON] for fault in faults)
        return texts.PARSE_HINT.format("; ".join(list(reasons)[:_MOST_REASONS]))

    def call_feedback(self, call: CallEvidence) -> str | None:
        """Hint to append to an error observation; None if there is none.

        >>> from dataclasses import replace
        >>> call = CallEvidence(0, "cd", True, ("missing required argument 'folder'",), "TypeError")
        >>> replace(INITIAL, recovery_feedback=True).call_feedback(call)  # doctest: +ELLIPSIS
        "Hint: wrong arguments: missing required argument 'folder'. Call the tool again with ..."
        """
        if not self.recovery_feedback or (call.available and call.error is None):
            return None
        if not call.available:
            return texts.UNKNOWN_TOOL_HINT
        if call.violations:
            return texts.ARGUMENT_HINT.format("; ".join(call.violations[:_MOST_REASONS]))
        return texts.EXECUTION_HINT

    def active(self) -> tuple[str, ...]:
        """Names of the active parts; a guideline is named `guideline:` and its label."""
        parts = {
            "schema_cues": self.schema_cues,
            "affordance_cues": self.affordance_cues,
            "recovery_feedback": self.recovery_feedback,
        }
        names = [name for name, is_active in parts.items() if is_active]
        return (*names, *(f"guideline:{label.value}" for label in self.guidelines))

    def describe(self) -> str:
        """The interface in words, one line for each active part; empty for the original benchmark.

        >>> from dataclasses import replace
        >>> print(replace(INITIAL, guidelines=(Label.MISSING_TOOL_CALL,)).describe())
        guideline:missing_tool_call: Say that something is done only after a tool call has done it.
        """
        return "\n".join(_lines(self))

    def content_hash(self) -> str:
        """12 hex digits over all texts that the policy can be shown; the version is left out."""
        shown = [self.describe(), self.system_note() or ""]
        shown += texts.SCHEMA_TEXTS if self.schema_cues else ()
        shown += texts.RECOVERY_TEXTS if self.recovery_feedback else ()
        return hashlib.sha256("\n".join(shown).encode("utf-8")).hexdigest()[:12]

    def to_json(self) -> dict[str, Any]:
        """The interface as JSON values; a guideline is the name of its label.

        >>> from dataclasses import replace
        >>> replace(INITIAL, guidelines=(Label.MISSING_TOOL_CALL,)).to_json()["guidelines"]
        ['missing_tool_call']
        """
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {**values, "guidelines": [label.value for label in self.guidelines]}

    def to_reply(self) -> InterfaceReply:
        """The interface for the HTTP API and the loop log, also in words."""
        return InterfaceReply(
            version=self.version,
            content_hash=self.content_hash(),
            active=self.active(),
            text=self.describe(),
            interface=self.to_json(),
        )

    @classmethod
    def from_json(cls, data: object) -> "Interface":
        """Read what `to_json` wrote.

        Raises:
            ValueError: A field is missing, unknown or of the wrong kind; the message names it.
        """
        values = json_fields(data, tuple(field.name for field in fields(cls)), "interface")
        version = values["version"]
        if isinstance(version, bool) or not isinstance(version, int) or version < 0:
            raise ValueError(f"interface.version: expected an integer >= 0, got {version!r:.60}")
        for name in ("schema_cues", "affordance_cues", "recovery_feedback"):
            if not isinstance(values[name], bool):
                raise ValueError(f"interface.{name}: expected a boolean, got {values[name]!r:.60}")
        return cls(**{**values, "guidelines": _guidelines(values["guidelines"])})


INITIAL = Interface(0, False, False, False, ())
"""The original benchmark."""


def difference(before: Interface, after: Interface) -> str:
    """The parts that only one of two versions shows, one a line; "no change" if there are none.

    Guidelines in another order are a line, too, because the policy reads another text.

    >>> from dataclasses import replace
    >>> cued = replace(INITIAL, schema_cues=True)
    >>> guided = replace(INITIAL, guidelines=(Label.MISSING_TOOL_CALL,))
    >>> print(difference(cued, guided))
    - schema_cues: tool docs mark required arguments, types and allowed values
    + guideline:missing_tool_call: Say that something is done only after a tool call has done it.
    >>> difference(guided, replace(guided, version=9))
    'no change'
    """
    old, new = _lines(before), _lines(after)
    lines = [f"- {line}" for line in old if line not in new]
    lines += [f"+ {line}" for line in new if line not in old]
    stayed = [label for label in after.guidelines if label in before.guidelines]
    if stayed != [label for label in before.guidelines if label in after.guidelines]:
        lines.append("~ order of guidelines: " + ", ".join(label.value for label in stayed))
    return "\n".join(lines) or "no change"


def _lines(interface: Interface) -> list[str]:
    """A line for each active part: its name and what it does."""
    words = {
        "schema_cues": "tool docs mark required arguments, types and allowed values",
        "affordance_cues": texts.AFFORDANCE_NOTE,
        "recovery_feedback": "a hint on the class of error and its repair follows every error",
    }
    words |= {f"guideline:{label.value}": texts.GUIDELINES[label] for label in interface.guidelines}
    return [f"{name}: {words[name]}" for name in interface.active()]


def _guidelines(names: object) -> tuple[Label, ...]:
    """Read the guidelines of an interface's JSON."""
    path = "interface.guidelines"
    if not isinstance(names, list):
        raise ValueError(f"{path}: expected a list, got {type(names).__name__}")
    for name in names:
        if name not in [label.value for label in FAILURES]:
            known = ", ".join(label.value for label in FAILURES)
            raise ValueError(f"{path}: expected failure labels ({known}), got {name!r:.60}")
    if len(set(names)) < len(names):
        raise ValueError(f"{path}: expected each label once, got {', '.join(names)}")
    return tuple(Label(name) for name in names)


_MARKED: dict[int, tuple[ToolDoc, ToolDoc]] = {}
"""Marked docs by the identity of the given doc: all episodes share docs, and none changes."""


def _marked(doc: ToolDoc) -> ToolDoc:
    known = _MARKED.get(id(doc))
    if known is None or known[0] is not doc:
        copied = copy.deepcopy(doc)
        _mark(copied["function"]["parameters"])
        if len(_MARKED) >= _MOST_MARKED:
            _MARKED.clear()
        known = _MARKED[id(doc)] = (doc, copied)  # while doc is held, no other has its identity
    return known[1]


def _mark(schema: dict[str, Any]) -> None:
    """Add marks to the argument descriptions of an object schema and of its nested objects."""
    required = schema.get("required", ())
    for name, field in schema.get("properties", {}).items():
        mark = texts.REQUIRED_MARK if name in required else texts.OPTIONAL_MARK
        declared = _declared(field)
        cues = [texts.TYPE_MARK.format(declared)] if declared is not None else []
        if "enum" in field:
            cues.append(texts.ENUM_MARK.format(", ".join(map(repr, field["enum"]))))
        # Not stripped: the original description must stay as it is.
        original = [field["description"]] if field.get("description") else []
        field["description"] = " ".join([*original, mark, *cues])
        _mark(field)
        if isinstance(field.get("items"), dict):
            _mark(field["items"])


def _declared(field: Mapping[str, Any]) -> str | None:
    """The type of an argument in words; of an array, also the type of its items."""
    kind = type_in_words(field.get("type", "any"))
    items = field.get("items")
    inner = type_in_words(items.get("type", "any")) if isinstance(items, dict) else None
    return kind if kind is None or inner is None else f"{kind}, each item {inner}"
