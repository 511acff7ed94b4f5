"""The power of a study before it runs: the smallest difference that it would find.

In: scores of baseline runs, of this study or another one. Out: the smallest true difference of two
recipes that is significant with a probability of 0.8, by simulation.
"""

import math
from bisect import bisect_left
from dataclasses import dataclass

import numpy as np
from scipy import stats

from seal.study.intervals import LEVEL, Matrix, mean, noise_variance

POWER = 0.8
TRIALS = 100
STEP = 0.01
"""Distance between the differences that are tried, as a share: 1 point."""


@dataclass(frozen=True)
class Spread:
    """How the scores of one recipe vary: standard deviations of shares."""

    seeds: float
    """Of a whole run, from seed to seed."""
    noise: float
    """Of one task in one run, beyond the level of the task and that of the run."""
    runs: float
    """Of the mean of a run as it is measured, from seed to seed: it holds both."""


def spread(scores: Matrix) -> Spread:
    """The spread of baseline runs.

    From the expected mean squares of a crossed design: noise^2, and noise^2 + tasks * seeds^2.

    Args:
        scores: (seeds, tasks), at least two of each.
    """
    runs, tasks = scores.shape
    if runs < 2 or tasks < 2:
        raise ValueError(f"expected two runs and two tasks at least, got {runs} and {tasks}")
    noise = noise_variance(scores)
    measured = float(scores.mean(axis=1).var(ddof=1))
    between = max(0.0, measured - noise / tasks)
    return Spread(math.sqrt(between), math.sqrt(noise), math.sqrt(measured))


def sureness(runs: int) -> tuple[float, float]:
    """95 % interval of a true standard deviation, as multiples of the one measured on runs.

    From the chi-squared distribution with runs - 1 degrees of freedom.

    >>> [round(end, 2) for end in sureness(2)], [round(end, 2) for end in sureness(5)]
    ([0.45, 31.91], [0.6, 2.87])
    """
    free, tail = runs - 1, (1 - LEVEL) / 2
    low, high = (math.sqrt(free / stats.chi2.ppf(share, free)) for share in (1 - tail, tail))
    return low, high


def detectable(measured: Spread, seeds: int, tasks: int, comparisons: int = 1) -> float | None:
    """The smallest difference, as a share, that is found with probability POWER.

    It is found if it is the most significant of so many comparisons and remains so after their
    correction (Holm). The difference of two runs has twice the variance of one run. A recipe that
    helps on some tasks more than on others adds to it. That is not known beforehand, so the result
    is a lower bound. None: not even 50 points would be found.
    """
    draw = np.random.default_rng(0)
    shape = (TRIALS, seeds, tasks)
    noise = draw.normal(0, np.sqrt(2) * measured.noise, shape)
    runs = draw.normal(0, np.sqrt(2) * measured.seeds, (TRIALS, seeds, 1))
    level = (1 - LEVEL) / comparisons

    def enough(steps: int) -> bool:
        return _power(runs + noise + steps * STEP, level) >= POWER

    most = round(0.5 / STEP)
    return bisect_left(range(most), True, lo=1, key=enough) * STEP if enough(most) else None


def _power(trials: Matrix, level: float) -> float:
    """Share of the trials (trials, seeds, tasks) with a p-value below a level."""
    categories = ["all"] * trials.shape[-1]
    p_values = [mean(trial, categories).p_value for trial in trials]
    return float(np.mean([p_value is not None and p_value < level for p_value in p_values]))
