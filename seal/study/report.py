"""The report of a study as one JSON document: every figure that the pages and the figures show.

In: the study and its runs' logs. Out: plain values. Scores are shares from 0 to 1.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
from scipy import stats

from seal.coevolution.labels import Label
from seal.study import intervals
from seal.study.comparable import Compose, check
from seal.study.definition import Study, StudyError
from seal.study.logs import ABSENT, FINISHED, RunLogs
from seal.study.scores import (
    BEST,
    DECLARED,
    DEVELOPMENT,
    LAST,
    START,
    Runs,
    Suite,
    curve,
    optimism,
    passes,
    read_suite,
    step_of,
)

RULES = (START, LAST, DECLARED, DEVELOPMENT, BEST)
ALL = "all"
ROUND_METRICS = (
    "seal/pass_rate",
    "seal/mixed_group_share",
    "seal/advantage/token_mean_before",
    "seal/advantage/token_mean_after",
    "seal/weight/mean",
    "seal/truncated_share",
)
"""Of each round, with a band over seeds; actor/entropy comes from verl."""


def report(
    study: Study,
    runs: Mapping[tuple[str, int], RunLogs],
    left_out: Mapping[str, frozenset[str]],
    failures: Mapping[str, int],
    compose: Compose | None = None,
) -> dict[str, Any]:
    """Everything there is to say.

    Args:
        study: What is compared.
        runs: All of the study's runs, finished or not, by recipe and seed.
        left_out: Tasks to leave out, by the name of what is left, e.g. "without defective tasks".
        failures: Launches that failed, by name of the run.
        compose: As for `comparable.check`.

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
    recipes = [name for name in study.recipes if any(one == name for one, _ in finished)]
    return {
        "study": {**asdict(study), "conf": str(study.conf)},
        "runs": [
            {
                "name": logs.name,
                "recipe": recipe,
                "seed": seed,
                "state": logs.state,
                "failed_launches": failures.get(logs.name, 0),
                "steps": len(logs.rounds),
            }
            for (recipe, seed), logs in runs.items()
        ],
        "complete": all(logs.state == FINISHED for logs in runs.values()),
        "notes": notes + _notes(runs, failures),
        "suites": {
            name: _suite(suite, study, finished, recipes, left_out)
            for name, suite in suites.items()
        },
        "training": {recipe: _training(recipe, finished) for recipe in recipes},
        "cost": {recipe: _cost(recipe, finished) for recipe in recipes},
    }


def _notes(runs: Mapping[tuple[str, int], RunLogs], failures: Mapping[str, int]) -> list[str]:
    notes = []
    for logs in runs.values():
        failed = failures.get(logs.name, 0)
        if logs.state != FINISHED:
            what = "has not begun" if logs.state == ABSENT else "has not finished"
            notes.append(f"{logs.name} {what}; failed launches: {failed}")
        elif failed:
            notes.append(f"{logs.name} has finished after {failed} failed launches")
    return notes


def _suite(
    suite: Suite,
    study: Study,
    runs: Runs,
    recipes: Sequence[str],
    left_out: Mapping[str, frozenset[str]],
) -> dict[str, Any]:
    figures = []
    for kind, without in {ALL: frozenset[str](), **left_out}.items():
        columns = suite.columns(without)
        if not columns or (kind != ALL and len(columns) == len(suite.tasks)):
            continue
        for rule in RULES:
            figures += [
                {"tasks": kind, "step_rule": rule, "recipe": recipe, **found}
                for recipe in recipes
                if (found := _figure(suite, columns, recipe, rule, study, runs)) is not None
            ]
    if suite.name == study.suites[0]:
        _mark_notable(study, figures)
    reference = DEVELOPMENT if study.development else LAST
    return {
        "tasks": len(suite.tasks),
        "rollouts": suite.rollouts,
        "figures": figures,
        "selection": {
            "against": reference,
            "optimism": optimism(suite, study, runs, reference),
        },
        "curves": {recipe: _bands(curve(suite.name, recipe, runs)) for recipe in recipes},
    }


def _figure(
    suite: Suite, columns: Sequence[int], recipe: str, rule: str, study: Study, runs: Runs
) -> dict[str, Any] | None:
    """A recipe's figures at the steps that a rule names, and those against the baseline."""
    seeds = [seed for seed in study.seeds if (recipe, seed) in runs]
    counted = passes(suite, recipe, seeds, rule, runs, study)
    if counted is None:
        return None
    counted = counted[:, list(columns)]
    categories, scenarios = _kinds(suite, columns)
    n = suite.rollouts
    scores = counted / n
    found: dict[str, Any] = {
        "seeds": seeds,
        "steps": [step_of(rule, suite.name, runs[recipe, seed], study) for seed in seeds],
        "by_seed": [intervals.mean(row[None], categories).value for row in scores],
        "mean": asdict(intervals.mean(scores, categories, scenarios)),
    }
    if n > 1:  # of passes and failures alone, an interquartile mean is 0 or 1 nearly always
        found["interquartile_mean"] = asdict(intervals.interquartile_mean(scores))
        found["pass_at"] = {
            str(k): asdict(intervals.mean(intervals.pass_at(counted, n, k), categories, scenarios))
            for k in _ks(n)
        }
        found["pass_all"] = {
            str(k): asdict(intervals.mean(intervals.pass_all(counted, n, k), categories, scenarios))
            for k in _ks(n)
        }
    if recipe != study.baseline:
        found["against_baseline"] = _against(suite, columns, recipe, rule, study, runs)
    return found


def _against(
    suite: Suite, columns: Sequence[int], recipe: str, rule: str, study: Study, runs: Runs
) -> dict[str, Any] | None:
    """Paired by seed and task; None without a seed that both have."""
    both = [
        seed for seed in study.seeds if (recipe, seed) in runs and (study.baseline, seed) in runs
    ]
    if not both:
        return None
    ours = passes(suite, recipe, both, rule, runs, study)
    theirs = passes(suite, study.baseline, both, rule, runs, study)
    if ours is None or theirs is None:
        return None
    categories, scenarios = _kinds(suite, columns)
    chosen = list(columns)
    ours, theirs = ours[:, chosen] / suite.rollouts, theirs[:, chosen] / suite.rollouts
    difference = intervals.mean(ours - theirs, categories, scenarios)
    return {
        "seeds": both,
        "difference": {
            **asdict(difference),
            "excludes_zero": difference.excludes_zero,
            "notable": False,
        },
        "probability_of_improvement": asdict(intervals.probability_of_improvement(ours, theirs)),
    }


def _kinds(suite: Suite, columns: Sequence[int]) -> tuple[list[str], list[str]]:
    """Category and scenario of some tasks; tasks of one number are of one scenario."""
    tasks = [suite.tasks[place] for place in columns]
    return [suite.categories[place] for place in columns], [t.rpartition("_")[2] for t in tasks]


def _mark_notable(study: Study, figures: Sequence[dict[str, Any]]) -> None:
    """Mark the study's primary differences that stay after a correction for their number.

    Primary is the main suite with all tasks, at the declared step (without one, the last). All
    other differences are there to be looked at: of a hundred intervals, five miss by chance.
    """
    rule = LAST if study.declared_step is None else DECLARED
    primary = [
        one["against_baseline"]["difference"]
        for one in figures
        if (one["tasks"], one["step_rule"]) == (ALL, rule) and one.get("against_baseline")
    ]
    tested = [one for one in primary if one["p_value"] is not None]
    corrected = intervals.holm([one["p_value"] for one in tested])
    for one, p_value in zip(tested, corrected, strict=True):
        one["p_value_corrected"] = p_value
        one["notable"] = one["excludes_zero"] and p_value < 1 - intervals.LEVEL


def _ks(rollouts: int) -> list[int]:
    """Powers of two up to the number of rollouts, and that number."""
    powers = [2**power for power in range(1, rollouts.bit_length()) if 2**power < rollouts]
    return [*powers, rollouts]


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
            of_verl = logs.metrics.get(step, {})
            # Of the old policy, or, where its pass is left out, of the first one that is updated.
            measured["actor/entropy"] = of_verl.get(
                "actor/entropy", of_verl.get("actor/entropy_loss")
            )
            for key, value in measured.items():
                if value is not None:
                    values.setdefault(key, {}).setdefault(step, []).append(value)
            for part in line["interface"]["active"]:
                parts.setdefault(part, {}).setdefault(step, []).append(1.0)
    return {
        "metrics": {key: _bands(by_step) for key, by_step in values.items()},
        # Share of the runs in which a part was on for the next round.
        "interface": {
            part: {str(step): len(runs_on) / len(of_recipe) for step, runs_on in by_step.items()}
            for part, by_step in sorted(parts.items())
        },
    }


def _label_shares(labels: Mapping[str, Mapping[str, int]]) -> dict[str, float]:
    """Share of each label among all turns of a round."""
    counts: dict[str, int] = {}
    for of_category in labels.values():
        for label, count in of_category.items():
            counts[label] = counts.get(label, 0) + count
    turns = max(1, sum(counts.values()))
    return {f"label/{label.value}": counts.get(label.value, 0) / turns for label in Label}


def _bands(by_step: Mapping[int, Sequence[float]]) -> dict[str, dict[str, float | None]]:
    """Mean over seeds at each step with its 95 % interval (Student's t); None with one seed."""
    found = {}
    for step, values in sorted(by_step.items()):
        middle, half = fmean(values), None
        if len(values) > 1:
            quantile = float(stats.t.ppf((1 + intervals.LEVEL) / 2, len(values) - 1))
            half = quantile * stdev(values) / math.sqrt(len(values))
        found[str(step)] = {
            "mean": middle,
            "low": None if half is None else middle - half,
            "high": None if half is None else middle + half,
            "seeds": len(values),
        }
    return found


def _cost(recipe: str, runs: Runs) -> dict[str, float | None]:
    """Means of a run: tokens trained on, seconds, and the hours of what it had to itself."""
    tokens, step_s, wall_s, core_h, gpu_h = [], [], [], [], []
    for (name, _), logs in runs.items():
        if name != recipe:
            continue
        every = logs.metrics.values()
        tokens.append(sum(one.get("perf/total_num_tokens", 0.0) for one in every))
        steps = [one["timing_s/step"] for one in every if "timing_s/step" in one]
        step_s.append(fmean(steps) if steps else math.nan)
        wall = sum(steps) + sum(one.get("timing_s/testing", 0.0) for one in every)
        wall_s.append(wall)
        nodes = int(logs.config["trainer.nnodes"])
        on_gpus = logs.config["trainer.device"] == "cuda"
        gpus = nodes * int(logs.config["trainer.n_gpus_per_node"]) if on_gpus else 0
        gpu_h.append(wall * gpus / 3600)
        core_h.append(wall * nodes * int(logs.records[0]["machine"]["cores"] or 1) / 3600)
    return {
        "trained_tokens": fmean(tokens),
        "step_s": float(np.nanmean(step_s)) if not all(map(math.isnan, step_s)) else None,
        "wall_s": fmean(wall_s),
        "core_hours": fmean(core_h),
        "gpu_hours": fmean(gpu_h),
    }


def sibling_tasks(suite_tasks: Sequence[str], training: Sequence[str]) -> frozenset[str]:
    """Evaluated tasks that share their scenario with a training task.

    BFCL's tasks of one number are of one scenario in all categories.

    >>> sibling_tasks(["multi_turn_base_1", "multi_turn_base_2"], ["multi_turn_miss_func_1"])
    frozenset({'multi_turn_base_1'})
    """
    trained = {task.rpartition("_")[2] for task in training}
    return frozenset(task for task in suite_tasks if task.rpartition("_")[2] in trained)


def training_tasks(root: Path, config: Mapping[str, Any]) -> list[str]:
    """Tasks of a run's training files; none where a file is no longer there."""
    import pyarrow.parquet

    named = config["data.train_files"]
    tasks = []
    for one in named if isinstance(named, list) else [named]:
        path = root / str(one)
        if path.is_file():
            rows = pyarrow.parquet.read_table(path, columns=["extra_info"]).to_pylist()
            tasks += [str(row["extra_info"]["task_id"]) for row in rows]
    return tasks
