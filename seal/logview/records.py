"""What the lines of a run's files hold, as far as the pages show it.

In: the JSON object of a line. Out: a record, or `Unreadable` with the field that is wrong. Written
by `seal.train.trainer` (loop log), by verl (dialogues, metrics) and by both (validation logs, whose
lines `seal.records.validation_log` reads). Fields that are not shown are not read.
"""

import math
from dataclasses import dataclass
from statistics import fmean
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from seal.logview.growing import Unreadable
from seal.records import validation_log
from seal.records.validation_log import BadValidationLog

Step = Annotated[int, Field(ge=0, lt=10**12)]


class Record(BaseModel):
    """A line, or a part of one; nothing is converted, other fields are ignored."""

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore")


class Shown(Record):
    """The learning interface as a round's rollouts were shown it."""

    version: int
    active: list[str]
    """Names of the active parts."""
    text: str
    """The interface in words, one line an active part."""


class Round(Record):
    """A line of loop/rounds.jsonl."""

    step: Step
    metrics: dict[str, float]
    rollouts: int
    dropped_groups: float
    labels: dict[str, dict[str, Annotated[int, Field(ge=0, lt=2**31)]]]
    """Turns by category and label."""
    interface_shown: Shown

    def turns_by_label(self) -> dict[str, int]:
        """Turns of all categories together."""
        counts: dict[str, int] = {}
        for by_label in self.labels.values():
            for label, turns in by_label.items():
                counts[label] = counts.get(label, 0) + turns
        return counts


class Turn(Record):
    """The diagnosis of one turn."""

    label: str
    reason: str
    cascade: bool = False
    """It failed only because an earlier one had."""


class OfStep(Record):
    """Any line that names its step."""

    step: Step


class Rollout(OfStep):
    """A line of loop/rollouts.jsonl: a rollout that was trained on."""

    uid: str | None = None
    """The same as in the file of dialogues; logs of older runs have none."""
    task_id: str
    category: str
    reward: float
    training_reward: float
    weights: list[float] = Field(min_length=1)
    """One a turn."""
    turns: list[Turn]
    interface_version: int
    truncated: bool
    turn_spans: list[Annotated[list[int], Field(min_length=3, max_length=3)]]
    """(turn, start, end) of each assistant message."""

    @property
    def weight(self) -> float:
        """Mean over the turns."""
        return fmean(self.weights)


class Dialogue(Record):
    """A line of rollouts/<step>.jsonl or of a validation log: what went in and what came out."""

    uid: str
    score: float
    input: str
    """The prompt, chat template included."""
    output: str
    """Everything behind it: the policy's messages with those of tools and user between them."""


class Phase(Record):
    """A line of loop/phases.jsonl: the trainer began something."""

    time: float
    """Seconds since 1970."""
    phase: str
    step: Step


class Metrics(Record):
    """A line of metrics.jsonl."""

    step: Step
    data: dict[str, Any]

    def finite(self) -> dict[str, float]:
        """Those that are numbers and can be drawn."""
        return {
            name: float(value)
            for name, value in self.data.items()
            if isinstance(value, float)
            and math.isfinite(value)
            # No metric is that large, and float() would fail of a number of 400 digits.
            or type(value) is int
            and abs(value) < 10**300
        }


RecordT = TypeVar("RecordT", bound=Record)


@dataclass(frozen=True)
class Key:
    """What the index of dialogues keeps of each."""

    uid: str
    score: float


@dataclass(frozen=True)
class Validated:
    """What the index of a validation log keeps of a line."""

    rollout: validation_log.Rollout

    @property
    def turns(self) -> list[Turn]:
        """Labels of the turns; validation logs give no reasons."""
        return [Turn(label=label, reason="") for label in self.rollout.labels]


def parsed(kind: type[RecordT], line: dict[str, Any]) -> RecordT:
    """The line as a record of a kind.

    Raises:
        Unreadable: A field is missing or of the wrong type; the message says which.
    """
    try:
        return kind.model_validate(line)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(str(part) for part in first["loc"])
        raise Unreadable(f"{field}: {first['msg'].lower()}") from None


def key_of(number: int, line: dict[str, Any]) -> Key:
    """Keep of a dialogue what the list of a step needs, not its text."""
    dialogue = parsed(Dialogue, line)
    return Key(dialogue.uid, dialogue.score)


def validated_of(number: int, line: dict[str, Any]) -> Validated:
    """Keep of a validation log's line all but its text."""
    try:
        rollout = validation_log.rollout_of_line("", number, line)
    except BadValidationLog as error:
        raise Unreadable(str(error).removeprefix(": ")) from None
    return Validated(rollout)
