"""Reads validation logs: `<step>.jsonl` in a folder, one line for each rollout.

verl writes them after each validation; `seal.train.agent_loop` decides what a line holds besides
the dialogue. In: a folder or a file. Out: `Rollout`s.

Not covered: which tasks a log should hold, which only its evaluation file knows.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seal.records.json_lines import BadLine, read_json_lines


class BadValidationFile(Exception):
    """A log or an evaluation file cannot be used.

    The message says which file and line, what is wrong, and what to do.
    """


@dataclass(frozen=True)
class Rollout:
    """One line of a validation log."""

    line: int
    """Its number in the file, from 1."""
    step: int
    """Training steps done at the validation; 0 is before training."""
    suite: str
    """benchmark, or another set of tasks of the evaluation file, e.g. fixed."""
    task_id: str
    """E.g. multi_turn_base_17."""
    category: str
    """E.g. multi_turn_base."""
    score: float
    """The verifier's reward, from 0 to 1."""
    labels: tuple[str, ...]
    """The diagnosis of each turn; empty if the program that wrote the log made none."""
    exit_status: str | None = None
    """`seal.wire.ExitStatus`: completed, or the limit that ended it. Older logs call it `ended`.
    This field and the next ones are None in still older logs, which do not hold them."""
    truncated: bool | None = None
    """Whether a limit ended it."""
    prompt_tokens: int | None = None
    """Before the first answer."""
    response_tokens: int | None = None
    """After the prompt: answers and observations."""


def log_files(folder: Path) -> list[Path]:
    """The logs of a folder, ordered by step; none if there is no such folder.

    Raises:
        BadValidationFile: A file is not named after a step, or two files are of the same step.
    """
    by_step: dict[int, Path] = {}
    for path in sorted(folder.glob("*.jsonl")):
        other = by_step.setdefault(_step(path), path)
        if other != path:
            raise BadValidationFile(
                f"{other} and {path} are logs of the same step; leave one of them in the folder"
            )
    return [by_step[step] for step in sorted(by_step)]


def read_folder(folder: Path) -> dict[int, tuple[Rollout, ...]]:
    """Every log of a folder, by step in ascending order.

    Raises:
        BadValidationFile: There is none, or one of them cannot be used.
    """
    if not folder.is_dir():
        reason = "is no folder" if folder.exists() else "does not exist"
        raise BadValidationFile(f"{folder} {reason}; expected a folder of validation logs")
    logs = log_files(folder)
    if not logs:
        raise BadValidationFile(
            f"no validation logs (<step>.jsonl) in {folder}; has the run validated yet?"
        )
    return {_step(log): read_log(log) for log in logs}


def read_log(path: Path) -> tuple[Rollout, ...]:
    """The rollouts of one log, in the order of its lines.

    Raises:
        BadValidationFile: The log cannot be read or is empty, or a line is no rollout of its step.
    """
    step = _step(path)

    def keep(number: int, line: dict[str, Any]) -> Rollout:
        rollout = rollout_of_line(number, line)
        if rollout.step != step:
            raise BadLine(
                f"a rollout of step {rollout.step} in the log of step {step}; was the file renamed?"
            )
        return rollout

    try:
        rollouts = tuple(read_json_lines(path, keep))
    except BadLine as error:
        raise BadValidationFile(str(error)) from None
    except OSError as error:
        raise BadValidationFile(f"cannot read {path}: {error.strerror}") from None
    if not rollouts:
        raise BadValidationFile(f"{path} is empty: the validation of this step did not finish")
    return rollouts


def _step(path: Path) -> int:
    # isdecimal alone allows digits of other scripts.
    if not (path.stem.isascii() and path.stem.isdecimal()):
        raise BadValidationFile(f"{path} is not named after a step; expected e.g. 10.jsonl")
    return int(path.stem)


def rollout_of_line(number: int, line: dict[str, Any]) -> Rollout:
    """The rollout that one line holds.

    Raises:
        BadLine: A field is missing or of the wrong kind.
    """

    def field(name: str, *kinds: type) -> Any:
        if name not in line:
            raise BadLine(f"no {name!r}; is this a validation log?")
        if type(line[name]) not in kinds:
            expected = " or ".join(kind.__name__ for kind in kinds)
            raise BadLine(
                f"{name!r} is {type(line[name]).__name__}, expected {expected}; is this a "
                "validation log?"
            )
        return line[name]

    def optional(name: str, *kinds: type) -> Any:
        return field(name, *kinds) if name in line else None

    score = field("score", int, float)
    # The comparison also refuses NaN, which Python's JSON accepts.
    if not 0 <= score <= 1:
        raise BadLine(f"score {score}, expected a number from 0 to 1")
    # An evaluation without a diagnosis has no labels, and its pass rate needs none.
    labels = optional("labels", str) or ""
    truncated = optional("truncated", bool, int, float)
    return Rollout(
        line=number,
        step=field("step", int),
        suite=field("suite", str),
        task_id=field("task_id", str),
        category=field("category", str),
        score=float(score),
        labels=tuple(label for label in labels.split(",") if label),
        exit_status=optional("exit_status" if "exit_status" in line else "ended", str),
        truncated=None if truncated is None else bool(truncated),
        prompt_tokens=optional("prompt_tokens", int),
        response_tokens=optional("response_tokens", int),
    )
