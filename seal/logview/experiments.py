"""The folders of runs: which files they have, and what these say.

In: the experiments folder. Out: runs, rounds, the rollouts of a step joined with their dialogues,
validations. Nothing is written.

A name or number from an address is only looked up in a listing of the folder, never made into a
path, so an address cannot leave the folder.
"""

import os
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seal.logview.growing import Contents, Files, Line, object_at
from seal.logview.lines import (
    Dialogue,
    DialogueKey,
    Metrics,
    OfStep,
    Phase,
    Round,
    TrainedRollout,
    Validated,
    keep,
    keep_key,
    keep_validated,
    parsed,
)
from seal.records.json_lines import BadLine
from seal.records.loop_log import DONE, FAILED, INTERRUPTED, PHASES, ROLLOUTS, ROUNDS, group_of
from seal.validation.log import Rollout
from seal.validation.metrics import metrics_of_log, suite_of_pass_rate

VALIDATIONS = "tech_synthetic"
"""Folder among the runs that holds the validation logs of all runs."""
RUNNING_S = 600.0
"""A run without a noted end counts as running until its files are this many seconds old."""

Step = int
_KEEP_PHASE, _KEEP_ROUND, _KEEP_METRICS = keep(Phase), keep(Round), keep(Metrics)
Points = list[tuple[Step, float]]
"""A metric's values with their steps, ascending."""


class NotThere(Exception):
    """There is no such run, step or line; the message says which."""


@dataclass(frozen=True)
class State:
    """What the list of runs says about one run."""

    name: str
    written: float
    """Time of the newest file, seconds since 1970; 0.0 without files."""
    phase: Phase | None
    """What the trainer began last, or how the run ended."""
    round: Round | None
    """The last finished round."""
    validations: Mapping[str, tuple[Step, float]]
    """Step and pass rate of the last validation of each suite."""

    @property
    def ended(self) -> str | None:
        """How the run ended; None while it runs, or if its launcher was killed or it had none."""
        if self.phase is None or self.phase.phase not in (DONE, FAILED, INTERRUPTED):
            return None
        return self.phase.phase

    @property
    def running(self) -> bool:
        """Whether its end is not noted and its files are young."""
        return self.ended is None and time.time() - self.written < RUNNING_S


@dataclass(frozen=True)
class StepRollout:
    """A rollout of a training step: its record, its dialogue, or both."""

    record: TrainedRollout | None
    """None if the loop log has no line with the dialogue's uid."""
    line: int | None
    """Line of the dialogue; None if it is not written."""
    reward: float


class Experiments:
    """All runs of a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._files = Files()

    def runs(self) -> list["Run"]:
        """Every run, the one with the newest file first."""
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
        runs = [Run(self.folder, name, self._files) for name in validated | trained]
        return sorted(runs, key=lambda run: (-run.written(), run.name))

    def run(self, name: str) -> "Run":
        """The run of a name.

        Raises:
            NotThere: No run has this name.
        """
        for run in self.runs():
            if run.name == name:
                return run
        raise NotThere(f"There is no run of this name in {self.folder}.")


class Run:
    """The files of one run."""

    def __init__(self, experiments: Path, name: str, files: Files) -> None:
        self.name = name
        self.folder = experiments / name
        self.validation_folder = experiments / VALIDATIONS / name / "validation_log"
        self._files = files

    def written(self) -> float:
        """Time of the newest file, seconds since 1970."""
        own = (self.folder, self.folder / "loop", self.folder / "rollouts")
        return max(_newest(folder) for folder in (*own, self.validation_folder))

    def state(self) -> State:
        """What the run did last."""
        phases = self._files.contents(self.folder / "loop" / PHASES, _KEEP_PHASE).lines
        rounds = self.rounds()[0]
        return State(
            name=self.name,
            written=self.written(),
            phase=phases[-1].kept if phases else None,
            round=rounds[max(rounds)] if rounds else None,
            validations={suite: points[-1] for suite, points in self.pass_rates().items()},
        )

    def rounds(self) -> tuple[dict[Step, Round], tuple[str, ...]]:
        """Finished rounds by step in ascending order, and what could not be read."""
        contents = self._files.contents(self.folder / "loop" / ROUNDS, _KEEP_ROUND)
        by_step = {line.kept.step: line.kept for line in contents.lines}
        return dict(sorted(by_step.items())), contents.faults

    def metrics(self) -> tuple[dict[str, Points], tuple[str, ...]]:
        """Values of every metric with their steps, and what could not be read."""
        contents = self._files.contents(self.folder / "metrics.jsonl", _KEEP_METRICS)
        by_name: dict[str, dict[Step, float]] = {}
        for line in contents.lines:
            for name, value in line.kept.data.items():
                # A resumed run makes the steps after its checkpoint once more.
                by_name.setdefault(name, {})[line.kept.step] = value
        values = {name: sorted(points.items()) for name, points in sorted(by_name.items())}
        return values, contents.faults

    def pass_rates(self) -> dict[str, Points]:
        """The pass rate of every validation, by suite.

        It is a metric. If the metrics have none of a validation's step, its log is counted.
        """
        by_suite: dict[str, dict[Step, float]] = {}
        for name, points in self.metrics()[0].items():
            if (suite := suite_of_pass_rate(name)) is not None:
                by_suite[suite] = dict(points)
        known = {step for by_step in by_suite.values() for step in by_step}
        for step in self.validation_steps():
            if step not in known:
                rollouts = [line.kept.rollout for line in self.validation(step).lines]
                for name, value in metrics_of_log(rollouts).items():
                    if (suite := suite_of_pass_rate(name)) is not None:
                        by_suite.setdefault(suite, {})[step] = value
        return {suite: sorted(by_step.items()) for suite, by_step in sorted(by_suite.items())}

    def steps(self) -> list[Step]:
        """Training steps of which anything is written."""
        logged = {line.kept for line in self._logged_steps().lines}
        return sorted({*self.rounds()[0], *logged, *_steps(self.folder / "rollouts")})

    def validation_steps(self) -> list[Step]:
        """Steps with a validation log; 0 is before training."""
        return sorted(_steps(self.validation_folder))

    def rollouts(self, step: Step) -> tuple[list[StepRollout], tuple[str, ...]]:
        """The rollouts of a training step with their dialogues, and what could not be read.

        Raises:
            NotThere: Nothing is written of this step.
        """
        if step not in self.steps():
            raise NotThere(f"Nothing is written of step {step} of {self.name}.")
        labelled, faults = self._labelled(step)
        dialogues = self._dialogues(step)
        by_uid = {line.kept.uid: line for line in dialogues.lines}
        rollouts = []
        for record in labelled:
            line = by_uid.pop(record.uid, None) if record.uid is not None else None
            rollouts.append(StepRollout(record, line.number if line else None, record.reward))
        rollouts += [StepRollout(None, line.number, line.kept.score) for line in by_uid.values()]
        # As in the file of dialogues, where the rollouts of a group stand together.
        rollouts.sort(key=lambda rollout: (rollout.line is None, rollout.line or 0))
        return rollouts, (*faults, *dialogues.faults)

    def dialogue(self, step: Step, number: int) -> tuple[Dialogue, TrainedRollout | None]:
        """A line of a step's dialogues, with its record in the loop log if it has one.

        Raises:
            NotThere: There is no such line.
            BadLine: It has changed since its place was noted.
        """
        line = _line(self._dialogues(step), number, f"the dialogues of step {step}")
        dialogue = self._read(self.folder / "rollouts", step, line)
        labelled = [record for record in self._labelled(step)[0] if record.uid == dialogue.uid]
        return dialogue, labelled[-1] if labelled else None

    def group(self, step: Step, uid: str) -> list[Line[DialogueKey]]:
        """The GRPO group of a dialogue: the dialogues of the step that share its prompt."""
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
        return self._files.contents(path, keep_validated)

    def validation_dialogue(self, step: Step, number: int) -> tuple[Dialogue, Rollout]:
        """A line of a validation log: its text and the rest.

        Raises:
            NotThere: There is no such line.
            BadLine: It has changed since its place was noted.
        """
        line = _line(self.validation(step), number, f"the validation log of step {step}")
        return self._read(self.validation_folder, step, line), line.kept.rollout

    def _logged_steps(self) -> Contents[Step]:
        # All rollouts of a run are in one file: each is checked only when its step is looked at.
        path = self.folder / "loop" / ROLLOUTS
        return self._files.contents(path, _keep_step)

    def _labelled(self, step: Step) -> tuple[list[TrainedRollout], tuple[str, ...]]:
        contents = self._logged_steps()
        path = self.folder / "loop" / ROLLOUTS
        records, faults = [], list(contents.faults)
        for line in contents.lines:
            if line.kept == step:
                try:
                    records.append(parsed(TrainedRollout, object_at(path, line.offset)))
                except BadLine as error:
                    faults.append(f"{path.name}, line {line.number}: {error}")
        return records, tuple(faults)

    def _dialogues(self, step: Step) -> Contents[DialogueKey]:
        path = _steps(self.folder / "rollouts").get(step)
        return Contents() if path is None else self._files.contents(path, keep_key)

    def _read(self, folder: Path, step: Step, line: Line[Any]) -> Dialogue:
        return parsed(Dialogue, object_at(_steps(folder)[step], line.offset))


def _keep_step(_: int, line: dict[str, Any]) -> Step:
    return parsed(OfStep, line).step


def _line(contents: Contents[Any], number: int, place: str) -> Line[Any]:
    for line in contents.lines:
        if line.number == number:
            return line
    raise NotThere(f"There is no line {number} that can be read in {place}.")


def _folders(parent: Path) -> list[str]:
    try:
        with os.scandir(parent) as entries:
            # An unprintable name cannot be shown, and perhaps not even be written as UTF-8.
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
        # int() also accepts 007, digits of other scripts and numbers of any length.
        if re.fullmatch(r"(0|[1-9][0-9]{0,11})\.jsonl", path.name)
    }


def _newest(folder: Path) -> float:
    """Time of the newest JSON lines file of a folder; 0.0 without any."""
    newest = 0.0
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.endswith(".jsonl"):
                    newest = max(newest, entry.stat().st_mtime)
    except OSError:  # no such folder, or a file that vanished meanwhile
        pass
    return newest
