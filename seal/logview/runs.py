"""The folders of runs: which files there are, and what they say.

In: the experiments folder. Out: runs, rounds, the rollouts of a step joined with their dialogues,
validations. Called by `seal.logview.app`. Nothing is written.

A name or number from an address is looked up among what a listing found and never made into a path
otherwise, so an address cannot leave the folder.
"""

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seal.logview import growing, records
from seal.logview.growing import Contents, Files, Line, Unreadable
from seal.logview.records import Dialogue, Key, Metrics, OfStep, Phase, Rollout, Round, Validated
from seal.records.loop_log import DONE, FAILED, INTERRUPTED, PHASES, ROLLOUTS, ROUNDS

VALIDATIONS = "tech_synthetic"
"""Folder among the runs that holds the validation logs of all."""
RUNNING_S = 600.0
"""Seconds since the last sign of life after which a run whose end nobody noted has ended."""

Step = int


class NotThere(Exception):
    """There is no such run, step or line; the message says which."""


@dataclass(frozen=True)
class State:
    """What the list of runs says of one."""

    name: str
    written: float
    """Seconds since 1970 of the newest file; 0.0 without any."""
    phase: Phase | None
    """What the trainer began last, or how the run ended."""
    round: Round | None
    """The last finished round."""
    validations: Mapping[str, tuple[Step, float]]
    """Step and pass rate of the last validation of each suite."""

    @property
    def ended(self) -> str | None:
        """How the run ended; None while it runs, and where its launcher was killed or had none."""
        if self.phase is None or self.phase.phase not in (DONE, FAILED, INTERRUPTED):
            return None
        return self.phase.phase

    @property
    def running(self) -> bool:
        """Its end is not noted, and its files are young."""
        return self.ended is None and time.time() - self.written < RUNNING_S


@dataclass(frozen=True)
class Row:
    """A rollout of a training step: its record, its dialogue, or both."""

    rollout: Rollout | None
    """None where the loop log has no line with the dialogue's uid."""
    line: int | None
    """Line of the dialogue; None where it is not written."""
    reward: float


class Experiments:
    """All runs of a folder.

    Args:
        folder: E.g. experiments/.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._files = Files()

    def runs(self) -> list["Run"]:
        """Every run, the one that was written last first."""
        validated = {
            name
            for name in _folders(self.folder / VALIDATIONS)
            if (self.folder / VALIDATIONS / name / "validation_log").is_dir()
        }
        trained = {
            name
            for name in _folders(self.folder)
            if any((self.folder / name / part).exists() for part in ("loop", "metrics.jsonl"))
        }
        found = [Run(self.folder, name, self._files) for name in validated | trained]
        return sorted(found, key=lambda run: (-run.written(), run.name))

    def run(self, name: str) -> "Run":
        """One of them.

        Raises:
            NotThere: No run has this name.
        """
        for run in self.runs():
            if run.name == name:
                return run
        raise NotThere(f"There is no run of this name in {self.folder}.")


class Run:
    """The files of one run.

    Args:
        experiments: The folder that it is in.
        name: A folder that a listing found.
        files: Indexes that all runs share.
    """

    def __init__(self, experiments: Path, name: str, files: Files) -> None:
        self.name = name
        self.folder = experiments / name
        self.validation_folder = experiments / VALIDATIONS / name / "validation_log"
        self._files = files

    def written(self) -> float:
        """Time of the newest file, seconds since 1970."""
        folders = (
            self.folder,
            self.folder / "loop",
            self.folder / "rollouts",
            self.validation_folder,
        )
        return max((_newest(folder) for folder in folders), default=0.0)

    def state(self) -> State:
        """What the run did last."""
        phases = self._files.contents(self.folder / "loop" / PHASES, _keep_phase).lines
        rounds = self.rounds()[0]
        validations: dict[str, tuple[Step, float]] = {}
        for name, points in self.metrics()[0].items():
            suite = suite_of(name)
            if suite is not None:
                validations[suite] = points[-1]
        return State(
            name=self.name,
            written=self.written(),
            phase=phases[-1].kept if phases else None,
            round=rounds[max(rounds)] if rounds else None,
            validations=validations,
        )

    def rounds(self) -> tuple[dict[Step, Round], tuple[str, ...]]:
        """Finished rounds by step in ascending order, and what could not be read."""
        contents = self._files.contents(self.folder / "loop" / ROUNDS, _keep_round)
        by_step = {line.kept.step: line.kept for line in contents.lines}
        return dict(sorted(by_step.items())), contents.faults

    def metrics(self) -> tuple[dict[str, list[tuple[Step, float]]], tuple[str, ...]]:
        """Values of every metric with their steps, and what could not be read."""
        contents = self._files.contents(self.folder / "metrics.jsonl", _keep_metrics)
        by_name: dict[str, dict[Step, float]] = {}
        for line in contents.lines:
            step, values = line.kept
            for name, value in values.items():
                # A resumed run makes the steps after its checkpoint once more.
                by_name.setdefault(name, {})[step] = value
        return {name: sorted(points.items()) for name, points in sorted(by_name.items())}, (
            contents.faults
        )

    def steps(self) -> list[Step]:
        """Training steps of which anything is written."""
        logged = {line.kept for line in self._rollouts().lines}
        return sorted({*self.rounds()[0], *logged, *_steps(self.folder / "rollouts")})

    def validation_steps(self) -> list[Step]:
        """Steps with a validation log; 0 is before training."""
        return sorted(_steps(self.validation_folder))

    def rows(self, step: Step) -> tuple[list[Row], tuple[str, ...]]:
        """The rollouts of a training step with their dialogues, and what could not be read.

        Raises:
            NotThere: Nothing is written of this step.
        """
        if step not in self.steps():
            raise NotThere(f"Nothing is written of step {step} of {self.name}.")
        labelled, faults = self._labelled(step)
        dialogues = self._dialogues(step)
        by_uid = {line.kept.uid: line for line in dialogues.lines}
        rows = []
        for rollout in labelled:
            line = by_uid.pop(rollout.uid, None) if rollout.uid is not None else None
            rows.append(Row(rollout, line.number if line else None, rollout.reward))
        rows += [Row(None, line.number, line.kept.score) for line in by_uid.values()]
        # As in the file of dialogues, where the rollouts of a group stand together.
        rows.sort(key=lambda row: (row.line is None, row.line or 0))
        return rows, (*faults, *dialogues.faults)

    def dialogue(self, step: Step, number: int) -> tuple[Dialogue, Rollout | None]:
        """A line of a step's dialogues, with its record in the loop log if there is one.

        Raises:
            NotThere: There is no such line.
            Unreadable: It has changed since its place was noted.
        """
        line = _line(self._dialogues(step), number, f"the dialogues of step {step}")
        dialogue = self._read(self.folder / "rollouts", step, line)
        labelled = [one for one in self._labelled(step)[0] if one.uid == dialogue.uid]
        return dialogue, labelled[-1] if labelled else None

    def group(self, step: Step, uid: str) -> list[Line[Key]]:
        """Dialogues of a step that share their prompt with one: its GRPO group."""
        prefix = group_of(uid)
        return [line for line in self._dialogues(step).lines if group_of(line.kept.uid) == prefix]

    def validation(self, step: Step) -> Contents[Validated]:
        """Lines of a validation log.

        Raises:
            NotThere: There is none of this step.
        """
        if step not in self.validation_steps():
            raise NotThere(f"There is no validation log of step {step} of {self.name}.")
        path = _steps(self.validation_folder)[step]
        return self._files.contents(path, records.validated_of)

    def validation_dialogue(self, step: Step, number: int) -> tuple[Dialogue, Validated]:
        """A line of a validation log, with what was kept of it.

        Raises:
            NotThere: There is no such line.
            Unreadable: It has changed since its place was noted.
        """
        line = _line(self.validation(step), number, f"the validation log of step {step}")
        return self._read(self.validation_folder, step, line), line.kept

    def _rollouts(self) -> Contents[Step]:
        return self._files.contents(self.folder / "loop" / ROLLOUTS, _keep_step)

    def _labelled(self, step: Step) -> tuple[list[Rollout], tuple[str, ...]]:
        contents = self._rollouts()
        path = self.folder / "loop" / ROLLOUTS
        found, faults = [], list(contents.faults)
        for line in contents.lines:
            if line.kept == step:
                try:
                    found.append(records.parsed(Rollout, growing.object_at(path, line.offset)))
                except Unreadable as error:
                    faults.append(f"{path.name}, line {line.number}: {error}")
        return found, tuple(faults)

    def _dialogues(self, step: Step) -> Contents[Key]:
        path = _steps(self.folder / "rollouts").get(step)
        if path is None:
            return Contents((), (), exists=False)
        return self._files.contents(path, records.key_of)

    def _read(self, folder: Path, step: Step, line: Line[Any]) -> Dialogue:
        path = _steps(folder)[step]
        return records.parsed(Dialogue, growing.object_at(path, line.offset))


def suite_of(metric: str) -> str | None:
    """Name of the suite of which a metric is the pass rate.

    >>> suite_of("val-seal/fixed/pass_rate"), suite_of("seal/pass_rate")
    ('fixed', None)
    """
    inner = metric.removeprefix("val-seal/").removesuffix("/pass_rate")
    return inner if metric == f"val-seal/{inner}/pass_rate" else None


def group_of(uid: str) -> str:
    """The part of a uid that the rollouts of one GRPO group share: all but the last two numbers."""
    return uid.rsplit("_", 2)[0]


def _line(contents: Contents[Any], number: int, place: str) -> Line[Any]:
    for line in contents.lines:
        if line.number == number:
            return line
    raise NotThere(f"There is no line {number} that can be read in {place}.")


def _folders(parent: Path) -> list[str]:
    try:
        with os.scandir(parent) as entries:
            # An unprintable name cannot be shown, or even be written as UTF-8.
            return [entry.name for entry in entries if entry.is_dir() and entry.name.isprintable()]
    except OSError:
        return []


def _steps(folder: Path) -> dict[Step, Path]:
    """Files of a folder that are named after a step."""
    try:
        paths = list(folder.iterdir())
    except OSError:
        return {}
    return {
        int(path.stem): path
        for path in paths
        # int() also takes 007, digits of other scripts and numbers of any length.
        if path.suffix == ".jsonl" and path.stem.isdecimal() and path.stem == _plain(path.stem)
    }


def _plain(digits: str) -> str:
    return str(int(digits)) if len(digits) <= 12 else ""


def _newest(folder: Path) -> float:
    newest = 0.0
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.endswith(".jsonl"):
                    newest = max(newest, entry.stat().st_mtime)
    except OSError:
        return newest
    return newest


def _keep_phase(number: int, line: dict[str, Any]) -> Phase:
    return records.parsed(Phase, line)


def _keep_round(number: int, line: dict[str, Any]) -> Round:
    return records.parsed(Round, line)


def _keep_metrics(number: int, line: dict[str, Any]) -> tuple[Step, dict[str, float]]:
    metrics = records.parsed(Metrics, line)
    return metrics.step, metrics.finite()


def _keep_step(number: int, line: dict[str, Any]) -> Step:
    # All rollouts of a run are in one file: each is checked only when its step is looked at.
    return records.parsed(OfStep, line).step
