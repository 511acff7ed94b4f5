"""Demonstrations for the tiny policy: reference programs of training tasks, played with mistakes.

In: a file with task ids. Out: one JSON line a dialogue: task_id, messages, tools, reward, labels,
every message as the environment gave or took it. Called by `scripts/make_tiny_policy.py`; this is
the one place where a reference program leaves the environment, and only for training tasks.

A demonstrator without mistakes leaves nothing to learn: what its clone does wrong is noise spread
over all tokens. So each turn of a task has two temptations, the same in every dialogue, and the
demonstrator falls for one of them now and then. They are of the kinds that the diagnosis names;
some are followed by an error of the environment and a repair.
"""

import argparse
import json
import random
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from env_service.environments.base import EpisodeOptions
from env_service.environments.bfcl.episode import BfclEpisode
from env_service.environments.bfcl.tasks import BfclTask, load_tasks, reference_calls
from seal.coevolution.interface import INITIAL, Interface
from seal.coevolution.labels import FAILURES
from seal.formats import ToolCall, render_calls
from seal.wire import Message, Mode, StepReply

TOOL_FORMAT = "hermes"
CLOSING = "Done."
"""What the demonstrator says when a turn is finished, or when it wrongly thinks so."""

MISTAKE_RATE = 0.35
"""Probability that a turn is answered with one of its temptations."""
REPAIR_RATE = 0.4
"""Probability that an error is repaired."""
HINTED_REPAIR_RATE = 0.8
"""The same where the learning interface gives recovery feedback."""


class Mistake(StrEnum):
    """What a demonstrator can get wrong in a turn, and the label it usually earns."""

    EARLY_ANSWER = "early_answer"
    """Answers without a call: missing_tool_call."""
    SKIPPED_CALL = "skipped_call"
    """Leaves the last call out: state mismatch, or missing_tool_call where the state is right."""
    WRONG_VALUE = "wrong_value"
    """Another value for one argument: state mismatch, or an error and recovery_failure."""
    MISSING_ARGUMENT = "missing_argument"
    """Leaves an argument out: argument_mismatch."""
    UNKNOWN_TOOL = "unknown_tool"
    """A tool that is not there: invalid_tool_call."""
    BROKEN_CALL = "broken_call"
    """A call that is no JSON: invalid_tool_call."""


@dataclass(frozen=True)
class Attempt:
    """One answer of the demonstrator to a turn."""

    text: str
    """The assistant message."""
    repair: tuple[ToolCall, ...]
    """What would still set the turn right after an error; empty where no error comes."""


def attempt_with(mistake: Mistake, calls: Sequence[ToolCall], rng: random.Random) -> Attempt | None:
    """The turn's answer with one mistake in it; None where the turn has no room for it."""
    last = calls[-1]
    match mistake:
        case Mistake.EARLY_ANSWER:
            return Attempt(CLOSING, ())
        case Mistake.SKIPPED_CALL:
            return Attempt(_text(calls[:-1]), ()) if len(calls) > 1 else None
        case Mistake.BROKEN_CALL:
            text = _text(calls)
            return Attempt(text[: text.rindex("}")] + "</tool_call>", tuple(calls))
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
    return Attempt(_text([*calls[:-1], wrong]), (last,))


def temptations(task_id: str, turn: int, calls: Sequence[ToolCall]) -> list[Attempt]:
    """The two mistakes that suggest themselves in this turn, the same in every dialogue."""
    rng = random.Random(f"{task_id}/{turn}")
    order = rng.sample(list(Mistake), k=len(Mistake))
    possible = (attempt_with(mistake, calls, rng) for mistake in order)
    return [attempt for attempt in possible if attempt is not None][:2]


def play(task: BfclTask, options: EpisodeOptions, rng: random.Random) -> dict[str, Any]:
    """One dialogue, as a line of the output."""
    episode = BfclEpisode(task, options)
    opened = episode.open()
    messages: list[Message] = list(opened.state)
    program = reference_calls(task)
    hinted = options.mode == "train" and options.interface.recovery_feedback
    repair_rate = HINTED_REPAIR_RATE if hinted else REPAIR_RATE

    def say(text: str) -> StepReply:
        answer: Message = {"role": "assistant", "content": text}
        reply = episode.step(answer)
        messages.extend([{**answer, "learn": True}, *reply.state])
        return reply

    for turn, calls in enumerate(program):
        attempt = Attempt(_text(calls), ())
        if calls and rng.random() < MISTAKE_RATE:
            attempt = rng.choice(temptations(task.task_id, turn, calls))
        reply = say(attempt.text)
        if reply.turn == turn and not reply.terminated:
            if attempt.repair and _errs(reply) and rng.random() < repair_rate:
                say(_text(attempt.repair))
            reply = say(CLOSING)
        if reply.terminated:
            break
    verdict = episode.evaluate()
    return {
        "task_id": task.task_id,
        "messages": messages,
        "tools": opened.tools,
        "reward": verdict.accuracy,
        "labels": [entry.label for entry in verdict.turns],
    }


def random_interface(rng: random.Random) -> Interface:
    """Some state of the learning interface, so that the policy has met all of its texts."""
    return Interface(
        version=1,
        schema_cues=rng.random() < 0.5,
        affordance_cues=rng.random() < 0.5,
        recovery_feedback=rng.random() < 0.7,
        guidelines=tuple(rng.sample(FAILURES, k=rng.randint(0, 3))),
    )


def _text(calls: Sequence[ToolCall]) -> str:
    return render_calls(calls, TOOL_FORMAT) if calls else CLOSING


def _errs(reply: StepReply) -> bool:
    return any("error" in str(message["content"]).lower() for message in reply.state)


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


def main() -> int:
    """Read the command line and write the dialogues."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="JSON lines file to write")
    parser.add_argument("--task-ids", type=Path, required=True, help="JSON list of training tasks")
    parser.add_argument("--dialogues", type=int, default=48, help="dialogues a task")
    parser.add_argument("--seed", type=int, default=1, help="seed")
    args = parser.parse_args()
    tasks = load_tasks()
    passed = written = 0
    with args.out.open("w", encoding="utf-8") as file:
        for task_id in json.loads(args.task_ids.read_text("utf-8")):
            for number in range(args.dialogues):
                rng = random.Random(f"{args.seed}/{task_id}/{number}")
                interface = random_interface(rng) if number % 2 else INITIAL
                mode: Mode = "train" if number % 2 else "eval"
                options = EpisodeOptions(mode, interface, TOOL_FORMAT, "structured")
                line = play(tasks[task_id], options, rng)
                file.write(json.dumps(line) + "\n")
                passed += int(line["reward"])
                written += 1
    sys.stdout.write(f"{written} demonstrations, {passed / written:.0%} pass\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
