"""The scalars of a validation that a run writes into its metrics, by suite.

In: what is known of each rollout: from the trainer, or from a validation log. Out: metrics by name.
Pure functions, standard library only.
"""

import re
from collections.abc import Sequence
from statistics import fmean

from seal.records.loop_log import mixed_group_share
from seal.records.validation_log import Rollout


def validation_metrics(
    suites: Sequence[str],
    categories: Sequence[str],
    groups: Sequence[str],
    rewards: Sequence[float],
    truncated: Sequence[float],
) -> dict[str, float]:
    """Scalars of a validation for verl's loggers, under `val-seal/<suite>/`.

    Each sequence has an entry for each rollout. A group is a GRPO group: the rollouts of one task.

    `category_average` is the paper's average: the unweighted mean of the categories' pass rates.

    >>> categories = ["base", "base", "miss"]
    >>> found = validation_metrics("bbb", categories, "xyz", [1.0, 0.0, 1.0], [0.0, 1.0, 0.0])
    >>> found["val-seal/b/category_average"], round(found["val-seal/b/pass_rate"], 3)
    (0.75, 0.667)
    """
    by_category: dict[str, dict[str, list[float]]] = {}
    by_group: dict[str, dict[str, list[float]]] = {}
    cut: dict[str, list[float]] = {}
    for suite, category, group, reward, was_cut in zip(
        suites, categories, groups, rewards, truncated, strict=True
    ):
        by_category.setdefault(suite, {}).setdefault(category, []).append(reward)
        by_group.setdefault(suite, {}).setdefault(group, []).append(reward)
        cut.setdefault(suite, []).append(was_cut)
    metrics: dict[str, float] = {}
    for suite, of_category in by_category.items():
        every = [reward for group in by_group[suite].values() for reward in group]
        metrics |= {
            f"val-seal/{suite}/category_average": fmean(map(fmean, of_category.values())),
            f"val-seal/{suite}/pass_rate": fmean(every),
            f"val-seal/{suite}/mixed_group_share": mixed_group_share(by_group[suite]),
            f"val-seal/{suite}/truncated_share": fmean(cut[suite]),
        }
    return metrics


def metrics_of_log(rollouts: Sequence[Rollout]) -> dict[str, float]:
    """The metrics that the trainer wrote of the validation with this log.

    A GRPO group of a validation is a task of a suite. The share of rollouts that a limit ended is
    left out of suites whose log does not say it.
    """
    found = validation_metrics(
        [one.suite for one in rollouts],
        [one.category for one in rollouts],
        [one.task_id for one in rollouts],
        [one.score for one in rollouts],
        [float(bool(one.truncated)) for one in rollouts],
    )
    for suite in {one.suite for one in rollouts if one.truncated is None}:
        del found[f"val-seal/{suite}/truncated_share"]
    return found


def suite_of_pass_rate(metric: str) -> str | None:
    """The suite whose pass rate a metric is; None if it is another metric.

    >>> suite_of_pass_rate("val-seal/fixed/pass_rate"), suite_of_pass_rate("seal/pass_rate")
    ('fixed', None)
    """
    found = re.fullmatch("val-seal/(.*)/pass_rate", metric)
    return found[1] if found else None
