"""One dialogue of a demonstrator with the environment, and the mistakes that it can make.

In: a task, how it is shown, then what the demonstrator says. Out: the messages, each assistant
message with a flag that says whether the policy learns it, and the verdict.
"""

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from env_service.environments.base import EpisodeOptions
from env_service.environments.bfcl.episode import BfclEpisode
from env_service.environments.bfcl.tasks import BfclTask
from seal.coevolution.interface import INITIAL, Interface
from seal.formats import ToolCall, render_calls
from seal.labels import FAILURES
from seal.wire import Message, Mode, StepReply

CLOSING = "Done."
"""What the demonstrator says when a turn is finished, or when it wrongly believes that."""


class Mistake(StrEnum):
    """A mistake in a turn, and the label that it usually gets."""

    EARLY_ANSWER = "early_answer"
    """Answers without a call: missing_tool_call."""
    SKIPPED_CALL = "skipped_call"
    """Leaves the last call out: state_mismatch, or missing_tool_call if the state is right."""
    WRONG_VALUE = "wrong_value"
    """Uses another value for one argument: state_mismatch, or an error and recovery_failure."""
    MISSING_ARGUMENT = "missing_argument"
    """Leaves an argument out: argument_mismatch."""
    UNKNOWN_TOOL = "unknown_tool"
    """Calls a tool that does not exist: invalid_tool_call."""
    BROKEN_CALL = "broken_call"
    """Writes an unreadable call: invalid_tool_call."""


@dataclass(frozen=True)
class Attempt:
    """One answer of the demonstrator to a turn."""

    text: str
    """The assistant message."""
    repair: tuple[ToolCall, ...]
    """Calls that still solve the turn after an error; empty if no error follows."""


class Demonstration:
    """A dialogue as it grows."""

    def __init__(self, task: BfclTask, options: EpisodeOptions) -> None:
        self.task_id = task.task_id
        self.options = options
        self._episode = BfclEpisode(task, options)
        opened = self._episode.open()
        self._tools = opened.info.tools
        self._messages: list[Message] = list(opened.state)

    def say(self, text: str, *, learn: bool = True) -> StepReply:
        """Say one message; `learn` says whether the policy learns it."""
        answer: Message = {"role": "assistant", "content": text}
        reply = self._episode.step(answer)
        self._messages.extend([{**answer, "learn": learn}, *reply.state])
        return reply

    def call(self, calls: Sequence[ToolCall], *, learn: bool = True) -> StepReply:
        """Say a message that makes the calls, or closes the turn if there are none."""
        return self.say(written(calls, self.options.tool_format), learn=learn)

    def shows(self, value: str | int | float) -> bool:
        """Whether the dialogue so far contains the value: the word, or an equal number."""
        text = "\n".join(str(message["content"]) for message in self._messages)
        if isinstance(value, str):
            return re.search(rf"(?<![\w.]){re.escape(value)}(?!\w|\.\d)", text) is not None
        return value in map(float, re.findall(r"(?<![\w.,])\d+(?:\.\d+)?(?!\w|[.,]\d)", text))

    def line(self) -> dict[str, Any]:
        """The dialogue with its verdict, as a line of the output."""
        verdict = self._episode.evaluate()
        return {
            "task_id": self.task_id,
            "mode": self.options.mode,
            "messages": self._messages,
            "tools": self._tools,
            "reward": verdict.accuracy,
            "labels": [entry.label for entry in verdict.diagnosis],
        }


def attempt_with(
    mistake: Mistake, calls: Sequence[ToolCall], rng: random.Random, tool_format: str
) -> Attempt | None:
    """The turn's answer with one mistake in it; None if the mistake is not possible there."""
    last = calls[-1]
    match mistake:
        case Mistake.EARLY_ANSWER:
            return Attempt(CLOSING, ())
        case Mistake.SKIPPED_CALL:
            return Attempt(written(calls[:-1], tool_format), ()) if len(calls) > 1 else None
        case Mistake.BROKEN_CALL:
            text = written(calls, tool_format)
            # In the format hermes this is the call's last brace, else the last bracket of any kind.
            cut = max(text.rfind("}"), text.rfind(")"))
            return Attempt(text[:cut] + text[cut + 1 :].lstrip(), tuple(calls))
        case Mistake.UNKNOWN_TOOL:
            wrong = ToolCall(rng.choice(["run", "do", "call"]) + "_" + last.name, last.arguments)
        case Mistake.MISSING_ARGUMENT:
            if not last.arguments:
                return None
            dropped = rng.choice(sorted(last.arguments))
            rest = {key: value for key, value in last.arguments.items() if key != dropped}
            wrong = ToolCall(last.name, rest)
        case Mistake.WRONG_VALUE:
            others = [v for call in calls for v in call.arguments.values() if isinstance(v, str)]
            arguments = _with_wrong_value(last.arguments, others, rng)
            if arguments is None:
                return None
            wrong = ToolCall(last.name, arguments)
    return Attempt(written([*calls[:-1], wrong], tool_format), (last,))


def written(calls: Sequence[ToolCall], tool_format: str) -> str:
    """A message that makes the calls, or closes the turn if there are none."""
    return render_calls(calls, tool_format) if calls else CLOSING


def has_error(reply: StepReply) -> bool:
    """Whether a result reports an error."""
    return any("error" in str(message["content"]).lower() for message in reply.state)


def shown(mode: Mode, rng: random.Random, tool_format: str) -> EpisodeOptions:
    """How a dialogue is shown: mode train with a random learning interface, or the benchmark."""
    interface = random_interface(rng) if mode == "train" else INITIAL
    return EpisodeOptions(mode, interface, tool_format, "structured")


def random_interface(rng: random.Random) -> Interface:
    """A random learning interface, so that the policy meets all of its texts."""
    return Interface(
        version=1,
        schema_cues=rng.random() < 0.5,
        affordance_cues=rng.random() < 0.5,
        recovery_feedback=rng.random() < 0.7,
        guidelines=tuple(rng.sample(FAILURES, k=rng.randint(0, 3))),
    )


def _with_wrong_value(
    arguments: Mapping[str, Any], others: Sequence[str], rng: random.Random
) -> dict[str, Any] | None:
    for key in rng.sample(sorted(arguments), k=len(arguments)):
        value = arguments[key]
        if isinstance(value, bool):
            return {**arguments, key: not value}
        if isinstance(value, int | float):
            return {**arguments, key: value * 10}
        if isinstance(value, str):
            different = [other for other in others if other != value]
            return {**arguments, key: rng.choice(different) if different else value + "_1"}
    return None
