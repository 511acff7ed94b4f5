"""Pass rates of a validation, their confidence intervals, and differences from a baseline.

In: `Rollout`s of one suite at one step. Out: a `Rate` for each category and one for their average,
each with a 95 % interval. The average is the paper's: the unweighted mean of the category rates.
Compared with a baseline, a `Difference` for each, paired by task. Pure functions, standard library
only.

A task with several rollouts counts with their mean. Its rollouts are not independent of each
other, so intervals over them are too narrow. Differences are therefore tested over tasks.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from statistics import NormalDist, fmean

from seal.validation.log import Rollout

AVERAGE = "average of categories"
Z_95 = NormalDist().inv_cdf(0.975)
"""Standard normal quantile of a two-sided 95 % interval, 1.96."""


@dataclass(frozen=True)
class Interval:
    """Bounds of a 95 % confidence interval, shares from 0 to 1."""

    low: float
    high: float


@dataclass(frozen=True)
class Lengths:
    """Means over rollouts, then over tasks, then over categories; None if a log does not say."""

    prompt_tokens: float | None = None
    """Before the first answer."""
    response_tokens: float | None = None
    """Answers and observations."""
    truncated: float | None = None
    """Share of the rollouts that a limit ended, from 0 to 1."""


@dataclass(frozen=True)
class TaskResult:
    """The result of one task at one step."""

    category: str
    score: float
    """Mean over its rollouts."""
    rollouts: int
    lengths: Lengths = Lengths()


@dataclass(frozen=True)
class Rate:
    """Pass rate of a category, or the average of the categories."""

    rate: float
    """Share from 0 to 1, the mean over tasks."""
    interval: Interval
    tasks: int
    rollouts: int
    lengths: Lengths = Lengths()


@dataclass(frozen=True)
class Difference:
    """A pass rate minus a baseline's, on the tasks that both hold."""

    points: float
    """In percentage points."""
    pairs: int
    """Tasks that both hold."""
    better: int
    """Tasks with a higher score than in the baseline."""
    worse: int
    """Tasks with a lower one."""
    p: float
    """Two-sided, exact McNemar."""


def wilson(rate: float, n: float) -> Interval:
    """95 % Wilson score interval of a proportion.

    (p + z^2/2n -+ z sqrt(p (1 - p)/n + z^2/4n^2)) / (1 + z^2/n)

    A mean of scores between 0 and 1 varies no more than a proportion, so the interval is wide
    enough for it, too.

    >>> interval = wilson(0.5, 10)
    >>> f"{interval.low:.4f} {interval.high:.4f}"
    '0.2366 0.7634'

    Args:
        rate: Observed share, from 0 to 1.
        n: Number of observations, at least 1; an effective number need not be whole.
    """
    if n < 1 or not 0 <= rate <= 1:
        raise ValueError(f"wilson({rate}, {n}): expected a rate from 0 to 1 and n of at least 1")
    centre = rate + Z_95**2 / (2 * n)
    half = Z_95 * math.sqrt(rate * (1 - rate) / n + Z_95**2 / (4 * n**2))
    scale = 1 + Z_95**2 / n
    # At 0 and 1 the rate is itself a bound: rounding must not put it outside.
    low, high = (centre - half) / scale, (centre + half) / scale
    return Interval(min(rate, max(0.0, low)), max(rate, min(1.0, high)))


def average_interval(rate: float, counts: Sequence[int]) -> Interval:
    """95 % Wilson interval of the unweighted mean of the rates of k categories.

    With n_1 ... n_k observations its variance is at most p (1 - p) sum_i 1/n_i / k^2. That is the
    variance of a proportion of n = k^2 / sum_i 1/n_i observations; with equal n_i, n is their sum.
    The more the categories differ, the wider the interval is than needed.

    >>> average_interval(0.4, [100, 100, 100, 100]) == wilson(0.4, 400)
    True
    """
    return wilson(rate, len(counts) ** 2 / sum(1 / count for count in counts))


def mcnemar(better: int, worse: int) -> float:
    """Two-sided p-value of the exact McNemar test.

    Under the null hypothesis each discordant pair is a fair coin:
    p = min(1, 2 P(X <= min(better, worse))), X ~ Binomial(better + worse, 1/2).

    >>> mcnemar(9, 1)
    0.021484375
    """
    if better < 0 or worse < 0:
        raise ValueError(f"mcnemar({better}, {worse}): expected numbers of pairs")
    discordant = better + worse
    tail = sum(math.comb(discordant, k) for k in range(min(better, worse) + 1))
    # Integers up to the division, so nothing is rounded earlier, however many pairs there are.
    return min(1.0, 2 * tail / (1 << discordant))


def task_results(rollouts: Iterable[Rollout]) -> dict[str, TaskResult]:
    """Results by task id, of rollouts of one suite at one step."""
    by_task: dict[str, list[Rollout]] = {}
    for rollout in rollouts:
        by_task.setdefault(rollout.task_id, []).append(rollout)
    return {
        task: TaskResult(
            lines[-1].category,
            fmean(line.score for line in lines),
            len(lines),
            _mean_lengths(
                Lengths(line.prompt_tokens, line.response_tokens, line.truncated) for line in lines
            ),
        )
        for task, lines in by_task.items()
    }


def suite_results(rollouts: Iterable[Rollout], suite: str) -> dict[str, TaskResult]:
    """Results by task id of the rollouts of one step that belong to a suite."""
    return task_results(rollout for rollout in rollouts if rollout.suite == suite)


def _mean_lengths(every: Iterable[Lengths]) -> Lengths:
    columns = zip(*map(astuple, every), strict=True)
    return Lengths(*(None if None in column else fmean(column) for column in columns))


def rates(results: Mapping[str, TaskResult]) -> dict[str, Rate]:
    """The rate of each category in alphabetical order, then AVERAGE; empty without results."""
    by_category: dict[str, list[TaskResult]] = {}
    for result in results.values():
        by_category.setdefault(result.category, []).append(result)
    rate_of = {category: _rate(group) for category, group in sorted(by_category.items())}
    if rate_of:
        parts = list(rate_of.values())
        average = fmean(part.rate for part in parts)
        rate_of[AVERAGE] = Rate(
            average,
            average_interval(average, [part.rollouts for part in parts]),
            sum(part.tasks for part in parts),
            sum(part.rollouts for part in parts),
            _mean_lengths(part.lengths for part in parts),
        )
    return rate_of


def _rate(group: Sequence[TaskResult]) -> Rate:
    rate = fmean(result.score for result in group)
    rollouts = sum(result.rollouts for result in group)
    lengths = _mean_lengths(result.lengths for result in group)
    return Rate(rate, wilson(rate, rollouts), len(group), rollouts, lengths)


def differences(
    results: Mapping[str, TaskResult], baseline: Mapping[str, TaskResult]
) -> dict[str, Difference]:
    """What changed from a baseline in each category, then AVERAGE; empty without common tasks.

    AVERAGE is the unweighted mean of the categories' points, tested over all pairs. For tasks with
    several rollouts the test compares means and is the sign test; with single rollouts the sign
    test is McNemar's.
    """
    pairs: dict[str, list[tuple[float, float]]] = {}
    for task, result in results.items():
        if task in baseline:
            pair = (baseline[task].score, result.score)
            pairs.setdefault(result.category, []).append(pair)
    difference_of = {category: _difference(group) for category, group in sorted(pairs.items())}
    if difference_of:
        points = fmean(part.points for part in difference_of.values())
        every = _difference([pair for group in pairs.values() for pair in group])
        difference_of[AVERAGE] = Difference(points, every.pairs, every.better, every.worse, every.p)
    return difference_of


def _difference(pairs: Sequence[tuple[float, float]]) -> Difference:
    better = sum(after > before for before, after in pairs)
    worse = sum(after < before for before, after in pairs)
    points = 100 * fmean(after - before for before, after in pairs)
    return Difference(points, len(pairs), better, worse, mcnemar(better, worse))
