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

That is (published configuration): share among failed turns >= `min_prevalence`, mean reward of the
trajectories that carry the label < `max_mean_reward`, at least `min_observations` turns. So a part
goes when its failure is mastered. Guidelines are chosen by prevalence * (1 - mean reward).

With `hysteresis` h > 0, which is this project's and off in its recipes, less flickers from round to
round: what is active has it easier. A part that is on stays on until its labels fall below relaxed
thresholds,

    prevalence >= min_prevalence * (1 - h)        turns >= min_observations * (1 - h)
    mean reward < max_mean_reward + h * (1 - max_mean_reward)

a guideline that is shown has its score times (1 + h) when guidelines are chosen, and of those
chosen one overtakes another that was shown before it only by a score more than (1 + h) times as
high. The sentences are in `texts`.
"""

import copy
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from seal.coevolution import texts
from seal.coevolution.diagnosis import CallEvidence
from seal.coevolution.labels import FAILURES, Label
from seal.coevolution.profile import FailureProfile
from seal.coevolution.schema import type_in_words
from seal.formats import ParseFault
from seal.wire import InterfaceReply, ToolDoc

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
_LARGE = 10**9
_MOST_MARKED = 4096
"""Marked docs that are kept; BFCL has 128."""
_ROUNDING = 1e-9
"""A threshold counts as reached from this far below: statistics are floats."""


@dataclass(frozen=True)
class InterfaceConfig:
    """Which components may act, and when. The defaults are the published rule.

    Raises:
        ValueError: A threshold is out of its range; the message says which.
    """

    schema_cues: bool = True
    """Component phi_schema: marks in tool docs; governs the affordance cue as well."""
    static_schema_cues: bool = False
    """Marks in tool docs from the first round on, whatever the profile (the published file)."""
    recovery_feedback: bool = True
    """Component phi_err: hints after errors."""
    guidelines: bool = True
    """Component phi_cap: guidelines in the system message."""
    min_prevalence: float = 0.10
    """Least share of a label among failed turns, in [0, 1]."""
    max_mean_reward: float = 0.6
    """A label whose trajectories earn this much on average is mastered, in [0, 1]."""
    min_observations: int = 8
    """Least number of turns with the label, by mass."""
    max_guidelines: int = 3
    """Guidelines shown at once."""
    hysteresis: float = 0.0
    """How much easier it is to stay active than to become it, h in [0, 1); 0 is as published."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        if not 0 <= self.min_prevalence <= 1:
            raise ValueError(f"min_prevalence must be in [0, 1], got {self.min_prevalence}")
        if not 0 <= self.max_mean_reward <= 1:
            raise ValueError(f"max_mean_reward must be in [0, 1], got {self.max_mean_reward}")
        if not 1 <= self.min_observations <= _LARGE:
            raise ValueError(f"min_observations must be in [1, {_LARGE}]")
        if not 0 <= self.max_guidelines <= _LARGE:
            raise ValueError(f"max_guidelines must be in [0, {_LARGE}]")
        if not 0 <= self.hysteresis < 1:
            raise ValueError(f"hysteresis must be in [0, 1), got {self.hysteresis}")


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

        Docs are shared between episodes, given or returned: never change one.

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
        return "\n".join(_lines(self))

    def content_hash(self) -> str:
        """12 hex digits over everything the policy can be shown, the version left out."""
        shown = [self.describe(), self.system_note() or ""]
        shown += texts.SCHEMA_TEXTS if self.schema_cues else ()
        shown += texts.RECOVERY_TEXTS if self.recovery_feedback else ()
        return hashlib.sha256("\n".join(shown).encode("utf-8")).hexdigest()[:12]

    def to_json(self) -> dict[str, Any]:
        """The interface as JSON values; guidelines are the names of their labels.

        >>> replace(INITIAL, guidelines=(Label.MISSING_TOOL_CALL,)).to_json()["guidelines"]
        ['missing_tool_call']
        """
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {**values, "guidelines": [label.value for label in self.guidelines]}

    def to_reply(self) -> InterfaceReply:
        """The interface as it goes over the wire and into the loop log: in words as well."""
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
        if not isinstance(data, Mapping):
            raise ValueError(f"interface: expected an object, got {type(data).__name__}")
        names = [field.name for field in fields(cls)]
        missing = [name for name in names if name not in data]
        unknown = [name for name in data if name not in names]
        if missing or unknown:
            raise ValueError(f"interface: missing fields {missing}, unknown fields {unknown}")
        version = data["version"]
        if isinstance(version, bool) or not isinstance(version, int) or version < 0:
            raise ValueError(f"interface.version: expected an integer >= 0, got {version!r:.60}")
        for name in ("schema_cues", "affordance_cues", "recovery_feedback"):
            if not isinstance(data[name], bool):
                raise ValueError(f"interface.{name}: expected a boolean, got {data[name]!r:.60}")
        return cls(**{**data, "guidelines": _guidelines(data["guidelines"])})


INITIAL = Interface(0, False, False, False, ())
"""The original benchmark."""


def evolve(interface: Interface, profile: FailureProfile, config: InterfaceConfig) -> Interface:
    """The next interface; the same arguments give the same one.

    A profile without a single turn says nothing: all parts stay as they are, but for static ones.

    Args:
        interface: Omega_t.
        profile: C_t.
        config: Which components may act, and when.
    """
    static = config.static_schema_cues
    if not profile.by_label:
        cued = interface.schema_cues or static
        return replace(interface, version=profile.version, schema_cues=cued)

    def presses(labels: Sequence[Label], active: bool) -> bool:
        return any(_presses(label, active, profile, config) for label in labels)

    return Interface(
        version=profile.version,
        schema_cues=static
        or (config.schema_cues and presses(_SCHEMA_LABELS, interface.schema_cues)),
        affordance_cues=config.schema_cues
        and presses(_AFFORDANCE_LABELS, interface.affordance_cues),
        recovery_feedback=config.recovery_feedback
        and presses(_RECOVERY_LABELS, interface.recovery_feedback),
        guidelines=_chosen(interface.guidelines, profile, config) if config.guidelines else (),
    )


def largest(config: InterfaceConfig, length: Callable[[str], int]) -> Interface:
    """The interface that takes the most room: every part a recipe may show, the longest guidelines.

    Args:
        config: Which components may act.
        length: Of a text, e.g. in tokens.

    >>> largest(InterfaceConfig(max_guidelines=1, schema_cues=False), len).active()
    ('recovery_feedback', 'guideline:argument_mismatch')
    """
    by_length = sorted(FAILURES, key=lambda label: -length(texts.GUIDELINES[label]))
    return Interface(
        version=1,
        schema_cues=config.schema_cues or config.static_schema_cues,
        affordance_cues=config.schema_cues,
        recovery_feedback=config.recovery_feedback,
        guidelines=tuple(by_length[: config.max_guidelines]) if config.guidelines else (),
    )


def difference(before: Interface, after: Interface) -> str:
    """What one version shows and another does not, a line a part; "no change" if there is nothing.

    Guidelines that stay but change places are a line, too, since the policy reads another text.

    >>> cued = replace(INITIAL, schema_cues=True)
    >>> told = replace(INITIAL, guidelines=(Label.MISSING_TOOL_CALL,))
    >>> print(difference(cued, told))
    - schema_cues: tool docs mark required arguments, types and allowed values
    + guideline:missing_tool_call: Say that something is done only after a tool call has done it.
    >>> difference(told, replace(told, version=9))
    'no change'
    """
    old, new = _lines(before), _lines(after)
    lines = [f"- {line}" for line in old if line not in new]
    lines += [f"+ {line}" for line in new if line not in old]
    stayed = [label for label in after.guidelines if label in before.guidelines]
    if stayed != [label for label in before.guidelines if label in after.guidelines]:
        lines.append("~ order of guidelines: " + ", ".join(label.value for label in stayed))
    return "\n".join(lines) or "no change"


def _presses(label: Label, active: bool, profile: FailureProfile, config: InterfaceConfig) -> bool:
    """The failure is prevalent and unsolved; by relaxed thresholds if its part is active."""
    seen = profile.by_label.get(label)
    if seen is None:
        return False
    slack = config.hysteresis if active else 0.0
    mastered = config.max_mean_reward + slack * (1 - config.max_mean_reward)
    return (
        seen.turns >= config.min_observations * (1 - slack) - _ROUNDING
        and profile.prevalence(label) >= config.min_prevalence * (1 - slack) - _ROUNDING
        and seen.mean_reward < mastered - _ROUNDING
    )


def _chosen(
    shown: Sequence[Label], profile: FailureProfile, config: InterfaceConfig
) -> tuple[Label, ...]:
    """Failures to show a guideline for, the most pressing first.

    Args:
        shown: Those that one is shown for now.
        profile: C_t.
        config: Thresholds, and how many at most.
    """
    scores = {
        label: profile.prevalence(label) * (1 - profile.by_label[label].mean_reward)
        for label in FAILURES
        if _presses(label, label in shown, profile, config)
    }
    ahead = 1 + config.hysteresis
    weighted = {label: scores[label] * (ahead if label in shown else 1) for label in scores}
    # Sorting is stable: of equals, what is shown comes first, then the label of higher priority.
    ranked = sorted(scores, key=lambda label: (-weighted[label], label not in shown))
    chosen = ranked[: config.max_guidelines]
    kept = [label for label in shown if label in chosen]
    placed: list[Label] = []
    for label in (*kept, *(label for label in chosen if label not in kept)):
        place = len(placed)
        while place > 0 and scores[label] > scores[placed[place - 1]] * ahead:
            place -= 1
        placed.insert(place, label)
    return tuple(placed)


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
"""Docs that were marked before, by identity: they are shared by all episodes and never change."""


def _marked(doc: ToolDoc) -> ToolDoc:
    known = _MARKED.get(id(doc))
    if known is None or known[0] is not doc:
        copied = copy.deepcopy(doc)
        _mark(copied["function"]["parameters"])
        if len(_MARKED) >= _MOST_MARKED:
            _MARKED.clear()
        known = _MARKED[id(doc)] = (doc, copied)  # holding the doc keeps its identity its own
    return known[1]


def _mark(schema: dict[str, Any]) -> None:
    """Annotate the argument descriptions of an object schema, nested objects included."""
    required = schema.get("required", ())
    for name, field in schema.get("properties", {}).items():
        mark = texts.REQUIRED_MARK if name in required else texts.OPTIONAL_MARK
        declared = _declared(field)
        cues = [texts.TYPE_MARK.format(declared)] if declared is not None else []
        if "enum" in field:
            cues.append(texts.ENUM_MARK.format(", ".join(map(repr, field["enum"]))))
        # Not stripped: without its cues a description is the original one.
        said = [field["description"]] if field.get("description") else []
        field["description"] = " ".join([*said, mark, *cues])
        _mark(field)
        if isinstance(field.get("items"), dict):
            _mark(field["items"])


def _declared(field: Mapping[str, Any]) -> str | None:
    """The type of an argument in words, that of an array's items included."""
    kind = type_in_words(field.get("type", "any"))
    items = field.get("items")
    inner = type_in_words(items.get("type", "any")) if isinstance(items, dict) else None
    return kind if kind is None or inner is None else f"{kind}, each item {inner}"
