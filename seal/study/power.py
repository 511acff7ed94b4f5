"""What a study could show before it runs: the difference it would find four times in five.

In: scores of baseline runs, those of the study so far or of another one. Out: the smallest true
difference of two recipes whose interval excludes zero with a probability of 0.8, by simulation.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from seal.study.intervals import LEVEL, Matrix, mean

POWER = 0.8
TRIALS = 100
STEP = 0.01
"""Differences that are tried, as shares: 1 point apart."""


@dataclass(frozen=True)
class Spread:
    """How scores of one recipe vary, as standard deviations of shares."""

    seeds: float
    """From seed to seed, of a whole run."""
    noise: float
    """Of one task in one run, beyond its own level and the run's."""


def spread(scores: Matrix) -> Spread:
    """From baseline runs (seeds, tasks), at least two of each.

    The expected mean squares of a crossed design: noise^2, and noise^2 + tasks * seeds^2.
    """
    runs, tasks = scores.shape
    if runs < 2 or tasks < 2:
        raise ValueError(f"expected two runs and two tasks at least, got {runs} and {tasks}")
    by_run, by_task = scores.mean(axis=1), scores.mean(axis=0)
    rest = scores - by_task - by_run[:, None] + scores.mean()
    noise = float((rest**2).sum()) / ((runs - 1) * (tasks - 1))
    between = float(by_run.var(ddof=1)) - noise / tasks
    return Spread(float(np.sqrt(max(0.0, between))), float(np.sqrt(noise)))


def sureness(runs: int) -> tuple[float, float]:
    """Between which multiples of a standard deviation that is taken from some runs the true one is.

    95 % of the chi-squared distribution with runs - 1 degrees of freedom.

    >>> [round(one, 2) for one in sureness(2)], [round(one, 2) for one in sureness(5)]
    ([0.45, 31.91], [0.6, 2.87])
    """
    free, tail = runs - 1, (1 - LEVEL) / 2
    low, high = (math.sqrt(free / stats.chi2.ppf(share, free)) for share in (1 - tail, tail))
    return low, high


def detectable(found: Spread, seeds: int, tasks: int, seed: int = 0) -> float | None:
    """The smallest difference, as a share, that is found with probability POWER.

    The differences of two runs vary twice as much as one run, in variance. Tasks on which a recipe
    helps more than on others add to that and are not known beforehand, so this is the least.
    None: not even 50 points would be found.
    """
    draw = np.random.default_rng(seed)
    shape = (TRIALS, seeds, tasks)
    noise = draw.normal(0, np.sqrt(2) * found.noise, shape)
    runs = draw.normal(0, np.sqrt(2) * found.seeds, (TRIALS, seeds, 1))
    low, high = 0, round(0.5 / STEP)
    if _power(runs + noise + high * STEP, tasks) < POWER:
        return None
    while high - low > 1:
        middle = (low + high) // 2
        if _power(runs + noise + middle * STEP, tasks) < POWER:
            low = middle
        else:
            high = middle
    return high * STEP


def _power(trials: Sequence[Matrix] | Matrix, tasks: int) -> float:
    categories = ["all"] * tasks
    return float(np.mean([mean(one, categories).excludes_zero for one in trials]))
