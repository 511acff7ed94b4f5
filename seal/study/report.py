"""The report of a study as one JSON document: every value that the page and the plots show.

In: the study and its runs' logs. Out: plain values. Scores are shares from 0 to 1.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from scipy import stats

from seal.labels import Label
from seal.records.loop_log import turns_by_label
from seal.study import intervals
from seal.study.comparable import Compose, check
from seal.study.definition import Study, StudyError
from seal.study.launch_log import Launches
from seal.study.logs import ABSENT, FINISHED, RunLogs, gpus
from seal.study.scores import (
    DECLARED,
    DEVELOPMENT,
    LAST,
    Runs,
    Suite,
    curve,
    optimism,
    read_suite,
    step_of,
)
from seal.study.suite_figures import common_seeds, suite_effects, suite_figures

ROUND_METRICS = (
    "seal/pass_rate",
    "seal/mixed_group_share",
    "seal/advantage/token_mean_before",
    "seal/advantage/token_mean_after",
    "seal/weight/mean",
    "seal/truncated_share",
    "seal/entropy",
)
"""Metrics of each round that are shown with a band over seeds."""


def report(
    study: Study,
    runs: Mapping[tuple[str, int], RunLogs],
    left_out: Mapping[str, frozenset[str]],
    launches: Mapping[str, Launches],
    compose: Compose | None = None,
) -> dict[str, Any]:
    """The whole report.

    `left_out` has tasks to leave out, by the name of what remains, e.g. "without defective tasks".

    Raises:
        StudyError: No run of the baseline has finished, or runs may not be compared.
    """
    finished = {key: logs for key, logs in runs.items() if logs.state == FINISHED}
    if not any(recipe == study.baseline for recipe, _ in finished):
        raise StudyError(
            f"no run of the baseline {study.baseline!r} has finished: there is nothing to compare"
        )
    notes = check(study, finished, compose)
    suites = {name: read_suite(name, finished) for name in study.suites}
    _check_declared(study, finished)
    recipes = [name for name in study.recipes if any(recipe == name for recipe, _ in finished)]
    return {
        "study": {**asdict(study), "conf": str(study.conf)},
        "runs": [
            {
                "name": logs.name,
                "recipe": recipe,
                "seed": seed,
                "state": logs.state,
                "launches": asdict(launches.get(logs.name, Launches())),
                "steps": len(logs.rounds),
            }
            for (recipe, seed), logs in runs.items()
        ],
        "complete": all(logs.state == FINISHED for logs in runs.values()),
        "notes": notes + _notes(runs, launches) + _missing_cells(study, finished),
        "suites": {
            name: _suite(suite, study, finished, recipes, left_out)
            for name, suite in suites.items()
        },
        "training": {recipe: _training(recipe, finished) for recipe in recipes},
        "cost": {recipe: _cost(recipe, finished, launches) for recipe in recipes},
    }


def _check_declared(study: Study, runs: Runs) -> None:
    """The primary comparison needs the main suite at the declared step."""
    logs = next(iter(runs.values()))
    main, declared = study.suites[0], study.declared_step
    if declared is not None and step_of(DECLARED, main, logs, study) is None:
        raise StudyError(
            f"{logs.name} has no validation of suite {main!r} at step {declared}, which is the "
            "study's declared_step"
        )


def _notes(runs: Mapping[tuple[str, int], RunLogs], launches: Mapping[str, Launches]) -> list[str]:
    notes = []
    total = sum(run.total for run in launches.values())
    failed = sum(run.failed for run in launches.values())
    if failed:
        notes.append(f"{failed} of {total} launches failed")
    shared = [name for name, run in launches.items() if run.shared]
    if shared:
        notes.append(
            f"{len(shared)} of {len(launches)} runs shared the machine with another one for a part "
            f"of their time, so their times do not compare: {', '.join(shared)}"
        )
    absent: dict[str, list[str]] = {}
    for (recipe, seed), logs in runs.items():
        failed = launches.get(logs.name, Launches()).failed
        if logs.state == ABSENT and not failed:
            absent.setdefault(recipe, []).append(f"s{seed}")
        elif logs.state != FINISHED:
            what = "has not begun" if logs.state == ABSENT else "has not finished"
            notes.append(f"{logs.name} {what}; failed launches: {failed}")
        elif failed:
            notes.append(f"{logs.name} has finished after {failed} failed launches")
    if absent:
        listed = "; ".join(f"{recipe} {', '.join(seeds)}" for recipe, seeds in absent.items())
        notes.append(f"{sum(map(len, absent.values()))} runs have not begun: {listed}")
    return notes


def _missing_cells(study: Study, finished: Runs) -> list[str]:
    """Why a study with a 2 x 2 design has no main effects."""
    if study.factorial is None or common_seeds(study, finished):
        return []
    cells = study.factorial.cells
    without = [cell for cell in cells if not any(recipe == cell for recipe, _ in finished)]
    why = (
        f"no run of {', '.join(without)} has finished"
        if without
        else f"{', '.join(cells)} have no seed in common yet"
    )
    named = " and ".join(study.factorial.factors)
    return [f"main effects and interaction of {named} are not reported: {why}"]


def _suite(
    suite: Suite,
    study: Study,
    runs: Runs,
    recipes: Sequence[str],
    left_out: Mapping[str, frozenset[str]],
) -> dict[str, Any]:
    reference = DEVELOPMENT if study.development else LAST
    return {
        "tasks": len(suite.tasks),
        "rollouts": suite.rollouts,
        "figures": suite_figures(suite, study, runs, recipes, left_out),
        "factorial": suite_effects(suite, study, runs, recipes, left_out),
        "selection": {"against": reference, "optimism": optimism(suite, study, runs, reference)},
        "curves": {recipe: _bands(curve(suite.name, recipe, runs)) for recipe in recipes},
        "tokens": {recipe: _tokens(suite, recipe, study, runs) for recipe in recipes},
    }


def _tokens(suite: Suite, recipe: str, study: Study, runs: Runs) -> dict[str, float | None]:
    """Mean tokens after the prompt of a recipe's rollouts that passed, and of those that failed.

    Counted at the last step of its runs. None: there is no such rollout, or the log has no tokens.
    """
    lengths: dict[str, list[int]] = {"passed": [], "failed": []}
    for (name, _), logs in runs.items():
        if name != recipe:
            continue
        step = step_of(LAST, suite.name, logs, study)
        for rollout in logs.validations.get(step, ()) if step is not None else ():
            if rollout.suite == suite.name and rollout.response_tokens is not None:
                outcome = "passed" if rollout.score > 0 else "failed"
                lengths[outcome].append(rollout.response_tokens)
    return {outcome: fmean(tokens) if tokens else None for outcome, tokens in lengths.items()}


def _training(recipe: str, runs: Runs) -> dict[str, Any]:
    """Curves over training steps with bands over seeds."""
    of_recipe = [logs for (name, _), logs in sorted(runs.items()) if name == recipe]
    values: dict[str, dict[int, list[float]]] = {}
    parts: dict[str, dict[int, list[float]]] = {}
    for logs in of_recipe:
        for line in logs.rounds:
            step = int(line["step"])
            measured = {key: line["metrics"].get(key) for key in ROUND_METRICS}
            measured |= _label_shares(line["labels"])
            for key, value in measured.items():
                if value is not None:
                    values.setdefault(key, {}).setdefault(step, []).append(value)
            for part in line["interface"]["active"]:
                parts.setdefault(part, {}).setdefault(step, []).append(1.0)
    return {
        "metrics": {key: _bands(by_step) for key, by_step in values.items()},
        # Share of the runs in which a part was active for the next round.
        "interface": {
            part: {str(step): len(runs_on) / len(of_recipe) for step, runs_on in by_step.items()}
            for part, by_step in sorted(parts.items())
        },
    }


def _label_shares(labels: Mapping[str, Mapping[str, int]]) -> dict[str, float]:
    """Share of each label among all turns of a round."""
    counts = turns_by_label(labels)
    turns = max(1, counts.total())
    return {f"label/{label.value}": counts[label.value] / turns for label in Label}


def _bands(by_step: Mapping[int, Sequence[float]]) -> dict[str, dict[str, float | None]]:
    """Mean over seeds at each step, with a 95 % interval (Student's t) if there are two seeds."""
    bands = {}
    for step, values in sorted(by_step.items()):
        middle, half = fmean(values), None
        if len(values) > 1:
            quantile = float(stats.t.ppf((1 + intervals.LEVEL) / 2, len(values) - 1))
            half = quantile * stdev(values) / math.sqrt(len(values))
        bands[str(step)] = {
            "mean": middle,
            "low": None if half is None else middle - half,
            "high": None if half is None else middle + half,
            "seeds": len(values),
        }
    return bands


def _cost(recipe: str, runs: Runs, launches: Mapping[str, Launches]) -> dict[str, float | None]:
    """Means over runs: tokens, seconds, and hours of the cores and GPUs it had.

    Tokens are those of all dialogues of all steps, with their prompts. The wall time of a run is
    that of all its launches, also failed and interrupted ones. If the study did not launch it, its
    wall time is that of its steps and validations.
    """
    costs: dict[str, list[float]] = {"tokens": [], "step_s": []}
    for logs in (logs for (name, _), logs in runs.items() if name == recipe):
        every = logs.metrics.values()
        steps = [metrics["timing_s/step"] for metrics in every if "timing_s/step" in metrics]
        costs["step_s"] += [fmean(steps)] if steps else []
        launched = launches.get(logs.name)
        testing = sum(metrics.get("timing_s/testing", 0.0) for metrics in every)
        wall = launched.seconds if launched else sum(steps) + testing
        cores = int(logs.config["trainer.nnodes"]) * int(logs.records[0]["machine"]["cores"] or 1)
        for key, value in {
            "tokens": sum(metrics.get("perf/total_num_tokens", 0.0) for metrics in every),
            "wall_s": wall,
            "core_hours": wall * cores / 3600,
            "gpu_hours": wall * gpus(logs.config) / 3600,
        }.items():
            costs.setdefault(key, []).append(value)
    return {key: fmean(values) if values else None for key, values in costs.items()}


def sibling_tasks(suite_tasks: Sequence[str], training: Sequence[str]) -> frozenset[str]:
    """Evaluated tasks that share their scenario with a training task.

    BFCL's tasks with the same number share a scenario in all categories.

    >>> sibling_tasks(["multi_turn_base_1", "multi_turn_base_2"], ["multi_turn_miss_func_1"])
    frozenset({'multi_turn_base_1'})
    """
    trained = {task.rpartition("_")[2] for task in training}
    return frozenset(task for task in suite_tasks if task.rpartition("_")[2] in trained)


def training_tasks(root: Path, config: Mapping[str, Any]) -> list[str]:
    """Tasks of a run's training files, without files that no longer exist."""
    import pyarrow.parquet

    named = config["data.train_files"]
    tasks = []
    for file in named if isinstance(named, list) else [named]:
        path = root / str(file)
        if path.is_file():
            rows = pyarrow.parquet.read_table(path, columns=["extra_info"]).to_pylist()
            tasks += [str(row["extra_info"]["task_id"]) for row in rows]
    return tasks
