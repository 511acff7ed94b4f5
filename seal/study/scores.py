"""Scores of a study's runs as matrices (seeds, tasks).

In: finished runs. Out: the passes of each task, for a suite, a recipe and a rule that names a step
of each run. All runs must hold the same tasks with the same number of rollouts.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from seal.study.definition import Study, StudyError
from seal.study.intervals import Matrix
from seal.study.logs import RunLogs
from seal.validation.statistics import AVERAGE, rates, suite_results

LAST, DECLARED, DEVELOPMENT, BEST = "last", "declared", "development", "best"
"""Rules that name a step: the last step, the study's declared step, the step with the best score on
the development suite, and the step with the best score on the reported suite itself. BEST selects
on the suite that it reports, so its figure is too high."""
START = "start"
"""Rule that names the step before training."""

Runs = Mapping[tuple[str, int], RunLogs]
"""Finished runs, by recipe and seed."""


@dataclass(frozen=True)
class Suite:
    """The tasks of a suite, the same in every run."""

    name: str
    tasks: tuple[str, ...]
    categories: tuple[str, ...]
    """The category of each task."""
    rollouts: int
    """Rollouts of each task."""

    def columns(self, without: frozenset[str]) -> list[int]:
        """Indices of the tasks that are not left out."""
        return [place for place, task in enumerate(self.tasks) if task not in without]


@dataclass(frozen=True)
class Counted:
    """A recipe's runs at the steps that a rule names."""

    seeds: list[int]
    steps: list[int]
    """The step of each seed."""
    passes: Matrix
    """(seeds, tasks), from 0 to the suite's rollouts."""


def read_suite(name: str, runs: Runs) -> Suite:
    """The suite, which all runs must hold alike.

    Raises:
        StudyError: A run has no such suite, or has other steps, tasks or numbers of rollouts than
            another.
    """
    suites: list[Suite] = []
    first = next(iter(runs.values()))
    for logs in runs.values():
        steps = _steps(name, logs)
        if not steps:
            known = {rollout.suite for log in logs.validations.values() for rollout in log}
            raise StudyError(
                f"{logs.name} has no validation of suite {name!r}; there are: "
                f"{', '.join(sorted(known)) or 'none'}"
            )
        if steps != _steps(name, first):
            raise StudyError(
                f"{logs.name} has validations of suite {name!r} at steps {steps}, {first.name} at "
                f"{_steps(name, first)}; is a file of a validation missing?"
            )
        for step in steps:
            results = suite_results(logs.validations[step], name)
            tasks = {task: result.category for task, result in sorted(results.items())}
            counts = {result.rollouts for result in results.values()}
            suites.append(Suite(name, tuple(tasks), tuple(tasks.values()), min(counts)))
            if suites[-1] != suites[0] or len(counts) > 1:
                raise StudyError(
                    f"{logs.name}, step {step}, suite {name!r}: other tasks, or other numbers of "
                    "rollouts, than in the study's first run; was a validation cut off?"
                )
    return suites[0]


def step_of(rule: str, suite: str, logs: RunLogs, study: Study) -> int | None:
    """The step that a rule names in a run; None if it names none."""
    steps = _steps(suite, logs)
    trained = [step for step in steps if step > 0]
    if rule == START:
        return 0 if 0 in steps else None
    if not trained:
        return None
    if rule == LAST:
        return trained[-1]
    if rule == DECLARED:
        return study.declared_step if study.declared_step in trained else None
    judge = suite if rule == BEST else study.development
    if judge is None or (rule == BEST and len(trained) < 2):  # there is nothing to select
        return None
    judged = [step for step in _steps(judge, logs) if step > 0]
    # The first of equal steps: more training for the same score is not better.
    chosen = max(judged, key=lambda step: average(judge, logs, step), default=None)
    # A suite that is played only first and last (seal.rare_suites) has no score there.
    return chosen if chosen in trained else None


def average(suite: str, logs: RunLogs, step: int) -> float:
    """The average of categories of a suite at a step."""
    return rates(suite_results(logs.validations[step], suite))[AVERAGE].rate


def counted(suite: Suite, recipe: str, rule: str, runs: Runs, study: Study) -> Counted | None:
    """A recipe's finished runs at the steps of a rule; None if it names no step of one of them."""
    seeds = [seed for seed in study.seeds if (recipe, seed) in runs]
    steps, rows = [], []
    for seed in seeds:
        logs = runs[recipe, seed]
        step = step_of(rule, suite.name, logs, study)
        if step is None:
            return None
        results = suite_results(logs.validations[step], suite.name)
        steps.append(step)
        rows.append([results[task].score * suite.rollouts for task in suite.tasks])
    return Counted(seeds, steps, np.array(rows))


def curve(suite: str, recipe: str, runs: Runs) -> dict[int, list[float]]:
    """Averages of categories at each validated step, one for each seed."""
    by_step: dict[int, list[float]] = {}
    for (name, _), logs in sorted(runs.items()):
        if name == recipe:
            for step in _steps(suite, logs):
                by_step.setdefault(step, []).append(average(suite, logs, step))
    return by_step


def optimism(suite: Suite, study: Study, runs: Runs, reference: str) -> float | None:
    """How much higher the best step on the reported suite scores than the step of another rule.

    Mean over all runs, as a share from 0 to 1. None if no run has both steps.
    """
    gaps = []
    for logs in runs.values():
        best = step_of(BEST, suite.name, logs, study)
        other = step_of(reference, suite.name, logs, study)
        if best is not None and other is not None:
            gaps.append(average(suite.name, logs, best) - average(suite.name, logs, other))
    return fmean(gaps) if gaps else None


def _steps(suite: str, logs: RunLogs) -> list[int]:
    """Steps at which a suite was played, ascending."""
    return sorted(
        step
        for step, rollouts in logs.validations.items()
        if any(rollout.suite == suite for rollout in rollouts)
    )
