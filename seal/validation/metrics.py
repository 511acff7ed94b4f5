"""The scalars of a validation that a run writes into its metrics, by suite.

In: what is known of each rollout: from the trainer, or from a validation log. Out: metrics by name.
Pure functions, standard library only.
"""

import re
from collections.abc import Sequence
from statistics import fmean

from seal.records.loop_log import exit_shares, mixed_group_share
from seal.validation.log import Rollout

COMPLETED = "completed"
"""Exit status (`seal.wire.ExitStatus`) of a dialogue that no limit cut."""


def validation_metrics(
    suites: Sequence[str],
    categories: Sequence[str],
    groups: Sequence[str],
    rewards: Sequence[float],
    exit_statuses: Sequence[str],
) -> dict[str, float]:
    """Scalars of a validation for verl's loggers, under `val-seal/<suite>/`.

    Each sequence has an entry for each rollout. A group is a GRPO group: the rollouts of one task.

    `category_average` is the paper's average: the unweighted mean of the categories' pass rates.

    >>> categories = ["base", "base", "miss"]
    >>> ends = ["completed", "step_limit", "completed"]
    >>> metrics = validation_metrics("bbb", categories, "xyz", [1.0, 0.0, 1.0], ends)
    >>> metrics["val-seal/b/category_average"], round(metrics["val-seal/b/pass_rate"], 3)
    (0.75, 0.667)
    """
    by_category: dict[str, dict[str, list[float]]] = {}
    by_group: dict[str, dict[str, list[float]]] = {}
    ends: dict[str, list[str]] = {}
    for suite, category, group, reward, exit_status in zip(
        suites, categories, groups, rewards, exit_statuses, strict=True
    ):
        by_category.setdefault(suite, {}).setdefault(category, []).append(reward)
        by_group.setdefault(suite, {}).setdefault(group, []).append(reward)
        ends.setdefault(suite, []).append(exit_status)
    metrics: dict[str, float] = {}
    for suite, of_category in by_category.items():
        every = [reward for group in by_group[suite].values() for reward in group]
        metrics |= {
            f"val-seal/{suite}/category_average": fmean(map(fmean, of_category.values())),
            f"val-seal/{suite}/pass_rate": fmean(every),
            f"val-seal/{suite}/mixed_group_share": mixed_group_share(by_group[suite]),
            f"val-seal/{suite}/truncated_share": fmean(end != COMPLETED for end in ends[suite]),
            **exit_shares(f"val-seal/{suite}/exit", ends[suite]),
        }
    return metrics


def metrics_of_log(rollouts: Sequence[Rollout]) -> dict[str, float]:
    """The metrics that the trainer wrote of the validation with this log.

    A GRPO group of a validation is a task of a suite. What a suite's log does not say is left out:
    which share of the rollouts a limit ended, and which limit.
    """
    metrics = validation_metrics(
        [line.suite for line in rollouts],
        [line.category for line in rollouts],
        [line.task_id for line in rollouts],
        [line.score for line in rollouts],
        [line.exit_status or ("truncated" if line.truncated else COMPLETED) for line in rollouts],
    )
    unknown = [f"val-seal/{line.suite}/exit/" for line in rollouts if line.exit_status is None]
    unknown += [
        f"val-seal/{line.suite}/truncated_share" for line in rollouts if line.truncated is None
    ]
    return {name: value for name, value in metrics.items() if not name.startswith(tuple(unknown))}


def suite_of_pass_rate(metric: str) -> str | None:
    """The suite whose pass rate a metric is; None if it is another metric.

    >>> suite_of_pass_rate("val-seal/fixed/pass_rate"), suite_of_pass_rate("seal/pass_rate")
    ('fixed', None)
    """
    match = re.fullmatch("val-seal/(.*)/pass_rate", metric)
    return match[1] if match else None
