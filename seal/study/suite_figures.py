"""The figures of one suite: each recipe at the step of each rule, against the baseline and others.

Also the main effects and the interaction of four recipes that are a 2 x 2 design.

In: the suite and the finished runs. Out: plain values, shares from 0 to 1.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from seal.study import intervals
from seal.study.definition import INTERACTION, Study
from seal.study.effects import effects
from seal.study.scores import (
    BEST,
    DECLARED,
    DEVELOPMENT,
    LAST,
    START,
    Counted,
    Runs,
    Suite,
    counted,
)

ALL = "all"
"""Name of a suite's tasks if none is left out."""
RULES = (START, LAST, DECLARED, DEVELOPMENT, BEST)


def suite_figures(
    suite: Suite,
    study: Study,
    runs: Runs,
    recipes: Sequence[str],
    left_out: Mapping[str, frozenset[str]],
) -> list[dict[str, Any]]:
    """Every figure of a suite."""
    by_rule = _by_rule(suite, study, runs, recipes)
    figures = []
    for kind, columns in _kinds_of_tasks(suite, left_out).items():
        for (rule, recipe), ours in by_rule.items():
            figure: dict[str, Any] = {"tasks": kind, "step_rule": rule, "recipe": recipe}
            figure |= _figure(suite, columns, ours)
            baseline = by_rule.get((rule, study.baseline))
            if recipe != study.baseline and baseline is not None:
                figure["against_baseline"] = _against(suite, columns, ours, baseline)
            figure["contrasts"] = {
                other: _against(suite, columns, ours, by_rule[rule, other])
                for first, other in study.contrasts
                if first == recipe and (rule, other) in by_rule
            }
            figures.append(figure)
    if suite.name == study.suites[0]:
        _mark_notable(study, figures)
    return figures


def suite_effects(
    suite: Suite,
    study: Study,
    runs: Runs,
    recipes: Sequence[str],
    left_out: Mapping[str, frozenset[str]],
) -> list[dict[str, Any]]:
    """Main effects and interaction of the study's 2 x 2 design, paired by seed and task.

    None are given without such a design, or if its four recipes have no common seed.
    """
    design = study.factorial
    common = common_seeds(study, runs)
    if design is None or not common:
        return []
    by_rule = _by_rule(suite, study, runs, recipes)
    rows = []
    for kind, columns in _kinds_of_tasks(suite, left_out).items():
        for rule in dict.fromkeys(rule for rule, _ in by_rule):
            scores = {
                cell: _scores(suite, columns, by_rule[rule, cell], common) for cell in design.cells
            }
            estimates = {}
            for name, matrix in effects(design, scores).items():
                most = 2.0 if name == INTERACTION else 1.0
                estimate = intervals.mean(matrix, *_kinds(suite, columns))
                estimates[name] = asdict(_within(estimate, -most, most))
            rows.append({"tasks": kind, "step_rule": rule, "seeds": common, "effects": estimates})
    return rows


def common_seeds(study: Study, runs: Runs) -> list[int]:
    """Seeds with a run of each recipe of the study's 2 x 2 design."""
    cells = study.factorial.cells if study.factorial else ()
    return [seed for seed in study.seeds if cells and all((cell, seed) in runs for cell in cells)]


def _by_rule(
    suite: Suite, study: Study, runs: Runs, recipes: Sequence[str]
) -> dict[tuple[str, str], Counted]:
    """Passes by rule and recipe."""
    by_rule: dict[tuple[str, str], Counted] = {}
    for rule in RULES:
        named = {recipe: counted(suite, recipe, rule, runs, study) for recipe in recipes}
        # A rule that names no step of some recipe compares nothing.
        if all(named.values()):
            by_rule |= {(rule, recipe): passes for recipe, passes in named.items() if passes}
    return by_rule


def _kinds_of_tasks(suite: Suite, left_out: Mapping[str, frozenset[str]]) -> dict[str, list[int]]:
    """Columns of all tasks, and of what remains of them where something is left out."""
    columns = {kind: suite.columns(without) for kind, without in left_out.items()}
    some = {kind: chosen for kind, chosen in columns.items() if 0 < len(chosen) < len(suite.tasks)}
    return {ALL: suite.columns(frozenset()), **some}


def _figure(suite: Suite, columns: Sequence[int], runs: Counted) -> dict[str, Any]:
    """A recipe's own figures on some tasks."""
    chosen = runs.passes[:, list(columns)]
    kinds = _kinds(suite, columns)
    n = suite.rollouts
    scores = chosen / n
    figure: dict[str, Any] = {
        "seeds": runs.seeds,
        "steps": runs.steps,
        "by_seed": [intervals.mean(row[None], kinds[0]).value for row in scores],
        "mean": _share(intervals.mean(scores, *kinds)),
    }
    if n > 1:  # a mean of single passes and failures is nearly always 0 or 1
        figure["interquartile_mean"] = asdict(intervals.interquartile_mean(scores))
        for name, share in (("pass_at", intervals.pass_at), ("pass_all", intervals.pass_all)):
            figure[name] = {
                str(k): _share(intervals.mean(share(chosen, n, k), *kinds)) for k in _ks(n)
            }
    return figure


def _share(estimate: intervals.Estimate) -> dict[str, Any]:
    """A share; the widened interval of a mean can end where no share can be."""
    return asdict(_within(estimate, 0.0))


def _within(estimate: intervals.Estimate, least: float, most: float = 1.0) -> intervals.Estimate:
    """The interval cut off at the least and at the largest possible value."""
    if estimate.low is None or estimate.high is None:
        return estimate
    return replace(estimate, low=max(least, estimate.low), high=min(most, estimate.high))


def _against(
    suite: Suite, columns: Sequence[int], ours: Counted, baseline: Counted
) -> dict[str, Any] | None:
    """Difference from another recipe, paired by seed and task; None without a common seed."""
    both = [seed for seed in ours.seeds if seed in baseline.seeds]
    if not both:
        return None
    scores, others = (_scores(suite, columns, recipe, both) for recipe in (ours, baseline))
    difference = intervals.mean(scores - others, *_kinds(suite, columns))
    return {
        "seeds": both,
        "difference": {
            **asdict(_within(difference, -1.0)),
            "excludes_zero": difference.excludes_zero,
            "notable": False,
        },
        "probability_of_improvement": asdict(intervals.probability_of_improvement(scores, others)),
    }


def _scores(
    suite: Suite, columns: Sequence[int], runs: Counted, seeds: Sequence[int]
) -> intervals.Matrix:
    """Scores of some seeds on some tasks: (seeds, tasks), from 0 to 1."""
    rows = [runs.seeds.index(seed) for seed in seeds]
    return np.asarray(runs.passes[np.ix_(rows, list(columns))] / suite.rollouts)


def _kinds(suite: Suite, columns: Sequence[int]) -> tuple[list[str], list[str]]:
    """Categories and scenarios of some tasks; tasks with the same number share a scenario."""
    tasks = [suite.tasks[place] for place in columns]
    return [suite.categories[place] for place in columns], [t.rpartition("_")[2] for t in tasks]


def _mark_notable(study: Study, figures: Sequence[dict[str, Any]]) -> None:
    """Mark the primary differences that stay significant after a correction for their number.

    Primary are the recipes with all of the study's seeds, on the main suite with all tasks, at the
    declared step (without one, at the last). All other differences are exploratory: of a hundred
    intervals, five miss by chance. Nothing is marked before all of the primary runs have finished:
    their number would be too small, and a study that is looked at often would find something.
    """
    rule = LAST if study.declared_step is None else DECLARED
    primary = [
        figure["against_baseline"]
        for figure in figures
        if (figure["tasks"], figure["step_rule"]) == (ALL, rule)
        and figure["recipe"] in study.primary()
    ]
    finished = [against for against in primary if against and against["seeds"] == list(study.seeds)]
    differences = [against["difference"] for against in finished]
    tested = [difference for difference in differences if difference["p_value"] is not None]
    if len(tested) < len(study.primary()):
        return
    corrected = intervals.holm([difference["p_value"] for difference in tested])
    for difference, p_value in zip(tested, corrected, strict=True):
        difference["p_value_corrected"] = p_value
        difference["notable"] = difference["excludes_zero"] and p_value < 1 - intervals.LEVEL


def _ks(rollouts: int) -> list[int]:
    """Powers of four below the number of rollouts, and that number.

    >>> _ks(2), _ks(8), _ks(32)
    ([2], [4, 8], [4, 16, 32])
    """
    powers = [4**power for power in range(1, rollouts.bit_length()) if 4**power < rollouts]
    return [*powers, rollouts]
