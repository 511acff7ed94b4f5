"""The one reader of validation logs: `<step>.jsonl` in a folder, a line a rollout.

verl writes them after each validation; what a line holds besides the dialogue is decided in
`seal.train.agent_loop`. In: a folder or a file. Out: `Rollout`s. Read by the report at the end of a
run and by scripts/stats_validation_bfcl.py.

Not covered: which tasks a log should hold, which only its evaluation file knows.

Standard library only, so the launcher can read without importing torch.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any


class BadValidationLog(Exception):
    """A log cannot be used; the message says which file and line, what is wrong, and what to do."""


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
    """The diagnosis of each turn; empty where the program that wrote the log made none."""
    ended: str | None = None
    """completed, or the limit that ended it: step_limit, response_length or max_model_len. This and
    what follows is None in a log of before they were noted."""
    truncated: bool | None = None
    """Whether a limit ended it."""
    prompt_tokens: int | None = None
    """Before the first answer."""
    response_tokens: int | None = None
    """After the prompt: answers and observations."""


def log_files(folder: Path) -> list[Path]:
    """The logs of a folder, ordered by step; none where there is no such folder.

    Raises:
        BadValidationLog: A file is named after no step, or two after the same.
    """
    by_step: dict[int, Path] = {}
    for path in sorted(folder.glob("*.jsonl")):
        other = by_step.setdefault(_step(path), path)
        if other != path:
            raise BadValidationLog(
                f"{other} and {path} are logs of the same step; leave one of them in the folder"
            )
    return [by_step[step] for step in sorted(by_step)]


def read_folder(folder: Path) -> dict[int, tuple[Rollout, ...]]:
    """Every log of a folder, by step in ascending order.

    Raises:
        BadValidationLog: There is none, or one of them cannot be used.
    """
    if not folder.is_dir():
        found = "is no folder" if folder.exists() else "does not exist"
        raise BadValidationLog(f"{folder} {found}; expected a folder of validation logs")
    logs = log_files(folder)
    if not logs:
        raise BadValidationLog(
            f"no validation logs (<step>.jsonl) in {folder}; has the run validated yet?"
        )
    return {_step(log): read_log(log) for log in logs}


def read_log(path: Path) -> tuple[Rollout, ...]:
    """The rollouts of one log, in the order of its lines.

    Raises:
        BadValidationLog: It is empty, or a line is no rollout of the step it is named after.
    """
    rollouts, step = [], _step(path)
    for number, line in json_objects(path):
        rollout = rollout_of_line(f"{path}, line {number}", number, line)
        if rollout.step != step:
            raise BadValidationLog(
                f"{path}, line {number}: a rollout of step {rollout.step} in the log of step "
                f"{step}; was the file renamed?"
            )
        rollouts.append(rollout)
    if not rollouts:
        raise BadValidationLog(f"{path} is empty: the validation of this step did not finish")
    return tuple(rollouts)


def _step(path: Path) -> int:
    # isdecimal alone allows digits of other scripts.
    if not (path.stem.isascii() and path.stem.isdecimal()):
        raise BadValidationLog(f"{path} is not named after a step; expected e.g. 10.jsonl")
    return int(path.stem)


def json_objects(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Line number and object of each line of a JSON lines file.

    Raises:
        BadValidationLog: The file cannot be read, or a line is no JSON object in UTF-8.
    """
    try:
        # In bytes: a dialogue may hold characters that text mode or splitlines take for line ends.
        with path.open("rb") as lines:
            for number, raw in enumerate(lines, 1):
                yield number, _json_object(f"{path}, line {number}", raw)
    except OSError as error:
        raise BadValidationLog(f"cannot read {path}: {error.strerror}") from None


def _json_object(where: str, raw: bytes) -> dict[str, Any]:
    try:
        line = json.loads(raw.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise BadValidationLog(
            f"{where}: not UTF-8 (byte {error.start + 1} is 0x{raw[error.start]:02x}); is the file "
            "damaged, or no JSON lines file?"
        ) from None
    except (ValueError, RecursionError) as error:
        raise BadValidationLog(
            f"{where}: not JSON ({error}); was the run cut off while writing?"
        ) from None
    if not isinstance(line, dict):
        raise BadValidationLog(
            f"{where}: expected a JSON object, got {type(line).__name__}; is this a validation log?"
        )
    return line


def rollout_of_line(where: str, number: int, line: dict[str, Any]) -> Rollout:
    """The rollout that one line holds.

    Args:
        where: File and line, for the error.
        number: Of the line, from 1.
        line: Its JSON object.

    Raises:
        BadValidationLog: A field is missing or of the wrong kind.
    """

    def field(name: str, *kinds: type) -> Any:
        if name not in line:
            raise BadValidationLog(f"{where}: no {name!r}; is this a validation log?")
        if type(line[name]) not in kinds:
            expected = " or ".join(kind.__name__ for kind in kinds)
            raise BadValidationLog(
                f"{where}: {name!r} is {type(line[name]).__name__}, expected {expected}; is this a "
                "validation log?"
            )
        return line[name]

    score = field("score", int, float)
    # The comparison also refuses NaN, which Python's JSON lets pass.
    if not 0 <= score <= 1:
        raise BadValidationLog(f"{where}: score {score}, expected a number from 0 to 1")
    # An evaluation without a diagnosis has no labels, and its pass rate needs none.
    labels = field("labels", str) if "labels" in line else ""
    truncated = field("truncated", bool, int, float) if "truncated" in line else None
    return Rollout(
        line=number,
        step=field("step", int),
        suite=field("suite", str),
        task_id=field("task_id", str),
        category=field("category", str),
        score=float(score),
        labels=tuple(label for label in labels.split(",") if label),
        ended=field("ended", str) if "ended" in line else None,
        truncated=None if truncated is None else bool(truncated),
        prompt_tokens=field("prompt_tokens", int) if "prompt_tokens" in line else None,
        response_tokens=field("response_tokens", int) if "response_tokens" in line else None,
    )
