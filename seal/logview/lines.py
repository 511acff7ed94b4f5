"""What the lines of a run's files hold, as far as the pages show it.

In: the JSON object of a line. Out: a record, or `BadLine` with the field that is wrong. The trainer
writes the loop log, verl writes dialogues and metrics. `seal.validation.log` reads the
lines of validation logs. Fields that are not shown are not read.

Older logs and the copies of `scripts/compare.py --keep` lack some fields. A line that lacks only
fields with a default is shown without them.
"""

import math
from collections import Counter
from dataclasses import dataclass
from statistics import fmean
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from seal.logview.growing import Keep
from seal.records.json_lines import BadLine
from seal.records.loop_log import turns_by_label
from seal.validation.log import Rollout, rollout_of_line

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
    """The interface in words, one line for each active part."""


class Rates(Record):
    """How frequent a failure is in the profile."""

    of_failed_turns: float
    """Its share among the failed turns."""
    of_turns: float
    """Its share among all turns of its kind (`FailureProfile.rate`)."""


TurnCounts = dict[str, Annotated[int, Field(ge=0, lt=2**31)]]
"""By label."""


class Source(Record):
    """The real or the synthetic tasks of a round."""

    groups: int
    """GRPO groups: prompts."""
    pass_rate: float
    mixed_group_share: float
    labels: TurnCounts


class Round(Record):
    """A line of loop/rounds.jsonl."""

    step: Step
    metrics: dict[str, float] = {}
    rollouts: int | None = None
    dropped_groups: float | None = None
    filtered_groups: float = 0
    """Without variance; logs of older runs do not name them."""
    labels: dict[str, TurnCounts] = {}
    """Turns by category and label."""
    sources: dict[str, Source] = {}
    """Real and synthetic tasks; empty in a round without synthetic ones, and in older logs."""
    scores: dict[str, float] = {}
    """By label: what the synthetic tasks were drawn with; empty if all were drawn alike."""
    interface_shown: Shown | None = None
    """None if the line does not say; the original benchmark has no active part."""
    rates: dict[str, Rates] = {}
    """By label; logs of older runs have none."""

    def turns_by_label(self) -> Counter[str]:
        """Turns of all categories together."""
        return turns_by_label(self.labels)


class Turn(Record):
    """The diagnosis of one turn."""

    label: str
    reason: str = ""
    cascade: bool = False
    """It failed only because an earlier turn had failed."""


class OfStep(Record):
    """Any line that names its step."""

    step: Step


class TrainedRollout(OfStep):
    """A line of loop/rollouts.jsonl: a rollout that was trained on."""

    uid: str | None = None
    """The same as in the file of dialogues; None in logs of older runs."""
    task_id: str
    category: str
    reward: float
    training_reward: float | None = None
    weights: list[float] = []
    """One a turn."""
    turns: list[Turn] = []
    interface_version: int | None = None
    truncated: bool = False
    exit_status: str | None = None
    """`seal.wire.ExitStatus`; None in logs of older runs."""
    turn_spans: list[Annotated[list[int], Field(min_length=3, max_length=3)]] = []
    """(turn, start, end) of each assistant message."""

    @property
    def weight(self) -> float | None:
        """Mean over the turns; None if the line has no weights."""
        return fmean(self.weights) if self.weights else None


class DialogueKey(Record):
    """What the index keeps of a dialogue: not its text."""

    uid: str
    score: float


class Dialogue(DialogueKey):
    """A line of rollouts/<step>.jsonl or of a validation log: what went in and what came out."""

    input: str
    """The prompt, chat template included."""
    output: str
    """Everything after it: the policy's messages, with those of tools and user between them."""


@dataclass(frozen=True)
class Validated:
    """What the index keeps of a line of a validation log."""

    rollout: Rollout
    has_dialogue: bool
    """Whether the line holds what `Dialogue` reads; the copies of a study's logs do not."""


class Phase(Record):
    """A line of loop/phases.jsonl: the trainer began something, or got further with it."""

    time: float
    """Seconds since 1970."""
    phase: str
    step: Step
    ended: int | None = None
    """Prompts whose rollouts have ended, out of `of`."""
    of: int | None = None


def _finite(data: Any) -> Any:
    """The metrics that are numbers and can be drawn."""
    if not isinstance(data, dict):
        return data
    # No metric is 1e300 or more, and float() fails for an integer of 400 digits.
    return {
        name: float(value)
        for name, value in data.items()
        if (isinstance(value, float) and math.isfinite(value))
        or (type(value) is int and abs(value) < 10**300)
    }


class Metrics(Record):
    """A line of metrics.jsonl."""

    step: Step
    data: Annotated[dict[str, float], BeforeValidator(_finite)]
    """Those that are numbers and can be drawn."""


RecordT = TypeVar("RecordT", bound=Record)


def parsed(kind: type[RecordT], line: dict[str, Any]) -> RecordT:
    """The line as a record of a kind.

    Raises:
        BadLine: A field is missing or of the wrong type; the message says which.
    """
    try:
        return kind.model_validate(line)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(str(part) for part in first["loc"])
        raise BadLine(f"{field}: {first['msg'].lower()}") from None


def keep(kind: type[RecordT]) -> Keep[RecordT]:
    """Keeps lines as records of a kind."""
    return lambda _, line: parsed(kind, line)


def keep_validated(number: int, line: dict[str, Any]) -> Validated:
    """Keeps what the page of a validation needs of a line, not its text."""
    has_dialogue = all(name in line for name in Dialogue.model_fields)
    return Validated(rollout_of_line(number, line), has_dialogue)


def keep_key(_: int, line: dict[str, Any]) -> DialogueKey:
    """Keeps what the list of a step needs of a dialogue, not its text."""
    dialogue = parsed(Dialogue, line)
    return DialogueKey(uid=dialogue.uid, score=dialogue.score)
