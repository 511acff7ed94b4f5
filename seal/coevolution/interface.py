"""Failure profile to learning interface: Omega_{t+1} = Evolve(Omega_t, C_t) (paper section 3.3).

In: the profile of the last round. Out: what the policy is shown beside the original benchmark in
training: marks in tool docs, a note in the system message, hints behind error texts. Evolved by the
environment service when the trainer sends a profile; shown by its episodes of mode "train" only.
Tools, outputs, tasks and the verifier never change, and no text holds anything of a reference.

Which part is active follows the failures that are prevalent and unsolved:

| component | part | active while one of these is prevalent and unsolved |
|---|---|---|
| phi_schema | schema_cues | argument_mismatch, invalid_tool_call |
| phi_schema | affordance_cues | missing_tool_call |
| phi_err | recovery_feedback | recovery_failure, argument_mismatch, invalid_tool_call |
| phi_cap | guidelines | each failure label for itself, at most `max_guidelines` |

That is: share among failed turns >= `min_prevalence`, mean reward of the trajectories that carry
the label < `max_mean_reward`, at least `min_observations` turns. So a part goes when its failure is
mastered. Guidelines are ordered by prevalence * (1 - mean reward). The sentences are in `texts`.
"""

import copy
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from seal.coevolution import texts
from seal.coevolution.diagnosis import CallEvidence
from seal.coevolution.labels import FAILURES, Label
from seal.coevolution.profile import FailureProfile
from seal.coevolution.schema import type_in_words
from seal.formats import ParseFault
from seal.wire import ToolDoc

_SCHEMA_LABELS = (Label.ARGUMENT_MISMATCH, Label.INVALID_TOOL_CALL)
_AFFORDANCE_LABELS = (Label.MISSING_TOOL_CALL,)
_RECOVERY_LABELS = (
    Label.RECOVERY_FAILURE,
    Label.ARGUMENT_MISMATCH,
    Label.INVALID_TOOL_CALL,
)

_MOST_REASONS = 3
"""Faults or violations that one hint names; of a longer list the first ones are the cause."""
_LONGEST_REASON = 200


@dataclass(frozen=True)
class InterfaceConfig:
    """Which components may act, and when. The thresholds are the published ones.

    Raises:
        ValueError: A threshold is out of its range; the message says which.
    """

    schema_cues: bool = True
    """Component phi_schema: marks in tool docs; governs the affordance cue as well."""
    recovery_feedback: bool = True
    """Component phi_err: hints after errors."""
    guidelines: bool = True
    """Component phi_cap: guidelines in the system message."""
    min_prevalence: float = 0.10
    """Least share of a label among failed turns, in [0, 1]."""
    max_mean_reward: float = 0.6
    """A label whose trajectories earn this much on average is mastered, in [0, 1]."""
    min_observations: int = 8
    """Least number of turns with the label."""
    max_guidelines: int = 3
    """Guidelines shown at once."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        if not 0 <= self.min_prevalence <= 1:
            raise ValueError(f"min_prevalence must be in [0, 1], got {self.min_prevalence}")
        if not 0 <= self.max_mean_reward <= 1:
            raise ValueError(f"max_mean_reward must be in [0, 1], got {self.max_mean_reward}")
        if self.min_observations < 1:
            raise ValueError(f"min_observations must be at least 1, got {self.min_observations}")
        if self.max_guidelines < 0:
            raise ValueError(f"max_guidelines must not be negative, got {self.max_guidelines}")


@dataclass(frozen=True)
class Interface:
    """The learning interface Omega_t; an immutable snapshot that episodes are pinned to."""

    version: int
    """Version of the profile it was evolved from; 0 is the original benchmark."""
    schema_cues: bool
    """Tool docs carry marks."""
    affordance_cues: bool
    """The system note says to look for a tool before answering."""
    recovery_feedback: bool
    """Errors are followed by a hint."""
    guidelines: tuple[Label, ...]
    """Failures that a guideline is shown for, the most pressing first."""

    def tool_docs(self, docs: Sequence[ToolDoc]) -> list[ToolDoc]:
        """Tool docs as the policy sees them; the given ones stay as they are.

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
        shown = copy.deepcopy(list(docs))
        if self.schema_cues:
            for doc in shown:
                _mark(doc["function"]["parameters"])
        return shown

    def system_note(self) -> str | None:
        """Text for the system message, None if there is nothing to say."""
        notes = [texts.SCHEMA_NOTE] if self.schema_cues else []
        notes += [texts.AFFORDANCE_NOTE] if self.affordance_cues else []
        if self.guidelines:
            lines = [f"- {texts.GUIDELINES[label]}" for label in self.guidelines]
            notes.append("\n".join([texts.GUIDELINES_HEAD, *lines]))
        return "\n\n".join(notes) if notes else None

    def parse_feedback(self, faults: Sequence[ParseFault]) -> str | None:
        """What the policy is told of calls that could not be read, None if nothing."""
        if not self.recovery_feedback or not faults:
            return None
        reasons = dict.fromkeys(fault.reason[:_LONGEST_REASON] for fault in faults)
        return texts.PARSE_HINT.format("; ".join(list(reasons)[:_MOST_REASONS]))

    def call_feedback(self, call: CallEvidence) -> str | None:
        """Hint to append to an error observation, None if there is none.

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
        """Names of the active parts; a guideline's is `guideline:` and its label."""
        parts = {
            "schema_cues": self.schema_cues,
            "affordance_cues": self.affordance_cues,
            "recovery_feedback": self.recovery_feedback,
        }
        names = [name for name, is_active in parts.items() if is_active]
        return (*names, *(f"guideline:{label.value}" for label in self.guidelines))

    def describe(self) -> str:
        """The interface in words, one line an active part; empty for the original benchmark.

        >>> print(replace(INITIAL, guidelines=(Label.MISSING_TOOL_CALL,)).describe())
        guideline:missing_tool_call: Say that something is done only after a tool call has done it.
        """
        words = {
            "schema_cues": "tool docs mark required arguments, types and allowed values",
            "affordance_cues": texts.AFFORDANCE_NOTE,
            "recovery_feedback": "a hint on the class of error and its repair follows every error",
        }
        words |= {f"guideline:{label.value}": texts.GUIDELINES[label] for label in self.guidelines}
        return "\n".join(f"{name}: {words[name]}" for name in self.active())

    def content_hash(self) -> str:
        """12 hex digits over everything the policy can be shown, the version left out."""
        shown = [self.describe(), self.system_note() or ""]
        shown += texts.SCHEMA_TEXTS if self.schema_cues else ()
        shown += texts.RECOVERY_TEXTS if self.recovery_feedback else ()
        return hashlib.sha256("\n".join(shown).encode("utf-8")).hexdigest()[:12]


INITIAL = Interface(0, False, False, False, ())
"""The original benchmark."""


def evolve(interface: Interface, profile: FailureProfile, config: InterfaceConfig) -> Interface:
    """The next interface; the same arguments give the same one.

    A profile without a single turn says nothing: all parts stay as they are.

    Args:
        interface: Omega_t.
        profile: C_t.
        config: Which components may act, and when.
    """
    if not profile.by_label:
        return replace(interface, version=profile.version)
    pressing = _pressing(profile, config)
    return Interface(
        version=profile.version,
        schema_cues=config.schema_cues and any(label in pressing for label in _SCHEMA_LABELS),
        affordance_cues=config.schema_cues
        and any(label in pressing for label in _AFFORDANCE_LABELS),
        recovery_feedback=config.recovery_feedback
        and any(label in pressing for label in _RECOVERY_LABELS),
        guidelines=pressing[: config.max_guidelines] if config.guidelines else (),
    )


def _pressing(profile: FailureProfile, config: InterfaceConfig) -> tuple[Label, ...]:
    """Failures that are prevalent and unsolved, by prevalence * (1 - mean reward)."""
    scores: dict[Label, float] = {}
    for label in FAILURES:
        seen = profile.by_label.get(label)
        if seen is None or seen.turns < config.min_observations:
            continue
        prevalence = profile.prevalence(label)
        if prevalence >= config.min_prevalence and seen.mean_reward < config.max_mean_reward:
            scores[label] = prevalence * (1 - seen.mean_reward)
    # Sorting is stable: of equal scores the label of higher priority comes first.
    return tuple(sorted(scores, key=lambda label: -scores[label]))


def _mark(schema: dict[str, Any]) -> None:
    """Annotate the argument descriptions of an object schema, nested objects included."""
    required = schema.get("required", ())
    for name, field in schema.get("properties", {}).items():
        mark = texts.REQUIRED_MARK if name in required else texts.OPTIONAL_MARK
        declared = _declared(field)
        cues = [texts.TYPE_MARK.format(declared)] if declared is not None else []
        if "enum" in field:
            cues.append(texts.ENUM_MARK.format(", ".join(map(repr, field["enum"]))))
        field["description"] = " ".join([field.get("description", "").strip(), mark, *cues]).strip()
        _mark(field)
        if isinstance(field.get("items"), dict):
            _mark(field["items"])


def _declared(field: Mapping[str, Any]) -> str | None:
    """The type of an argument in words, that of an array's items included."""
    kind = type_in_words(field.get("type", "any"))
    items = field.get("items")
    inner = type_in_words(items.get("type", "any")) if isinstance(items, dict) else None
    return kind if kind is None or inner is None else f"{kind}, each item {inner}"
