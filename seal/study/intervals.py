"""Estimates over seeds and tasks together, with 95 % intervals.

In: scores as matrices (seeds, tasks); two recipes have the same seeds and tasks. Out: `Estimate`s.
Seeds and tasks are both resampled (the "pigeonhole" bootstrap of a crossed design, Owen 2007,
arXiv 0711.1031), because a claim is meant for other seeds and other tasks of the same kind. BFCL
has each scenario in four categories; tasks of one scenario are drawn together.

That bootstrap counts the noise of a single score three times and ignores that there are few seeds.
For means the variance of a crossed design is known. Their draws are therefore scaled to it, and
widened from the normal distribution to Student's t. With two seeds t has one degree of freedom. The
other statistics (interquartile mean, probability of improvement, as defined by Agarwal et al. 2021,
arXiv 2108.13264) have an interval only from five seeds on: with fewer, the draws say too little. It
is widened as if all of its width came from seeds, so it is too wide where tasks vary more than
seeds. Pure functions.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

Matrix: TypeAlias = NDArray[np.float64]
DRAWS = 4000
LEVEL = 0.95
LEAST_SEEDS = 5
"""With fewer seeds, a statistic other than a mean has no interval."""
_ROUNDING = 1e-12


@dataclass(frozen=True)
class Estimate:
    """A figure and its 95 % interval, in the scores' unit."""

    value: float
    low: float | None
    """None if the data say nothing about the interval."""
    high: float | None
    seeds: int
    tasks: int
    p_value: float | None = None
    """Two-sided, for a mean of 0; None with one seed and for other statistics."""

    @property
    def excludes_zero(self) -> bool:
        """Whether the interval of a difference, over several seeds, is on one side of 0."""
        if self.low is None or self.high is None or self.seeds < 2:
            return False
        return self.low > 0 or self.high < 0


def mean(
    scores: Matrix, categories: Sequence[str], scenarios: Sequence[str] | None = None
) -> Estimate:
    """The mean over seeds of the average of categories, as the paper averages.

    With one seed the interval covers the tasks only: it holds for this seed.

    Args:
        scores: (seeds, tasks); for a paired comparison, the differences.
        categories: The category of each task.
        scenarios: The scenario of each task; None: every task has its own.

    >>> scores = np.array([[0.0, 1.0, 0.5, 0.5], [0.5, 1.0, 0.5, 1.0]])
    >>> estimate = mean(scores, ["a", "a", "b", "b"])
    >>> estimate.value, estimate.low < 0.625 < estimate.high
    (0.625, True)
    """
    tasks = scores.shape[1]
    by_scenario = _of_scenarios(scores, categories, scenarios or [str(n) for n in range(tasks)])
    value = float(by_scenario.mean())
    seeds = len(scores)
    error, freedom = _standard_error(by_scenario)
    drawn = _drawn(by_scenario).mean(axis=(1, 2))
    if not error > _ROUNDING or drawn.std() == 0:
        return Estimate(value, None, None, seeds, tasks)
    widened = stats.t.ppf((1 + LEVEL) / 2, freedom) / stats.norm.ppf((1 + LEVEL) / 2)
    scaled = value + (drawn - drawn.mean()) * (error / drawn.std()) * widened
    low, high = np.quantile(scaled, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    p_value = float(2 * stats.t.sf(abs(value) / error, freedom)) if seeds > 1 else None
    return Estimate(value, float(low), float(high), seeds, tasks, p_value)


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values corrected for their number (Holm 1979), in the same order.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    order = sorted(range(len(p_values)), key=lambda place: p_values[place])
    corrected, least = [0.0] * len(p_values), 0.0
    for rank, place in enumerate(order):
        least = max(least, min(1.0, (len(p_values) - rank) * p_values[place]))
        corrected[place] = least
    return corrected


def interquartile_mean(scores: Matrix) -> Estimate:
    """Mean of the middle half of all scores of all seeds and tasks (25 % trimmed mean).

    >>> interquartile_mean(np.array([[0.0, 0.4, 0.6, 1.0]])).value
    0.5
    """
    value = float(stats.trim_mean(scores, 0.25, axis=None))
    drawn = _drawn(scores)
    flat = drawn.reshape(len(drawn), -1)
    return _plain(value, stats.trim_mean(flat, 0.25, axis=1), scores.shape)


def probability_of_improvement(scores: Matrix, baseline: Matrix) -> Estimate:
    """Chance that a run beats a baseline run on a task; a tie counts half. Mean over tasks.

    >>> probability_of_improvement(np.array([[1.0, 0.5]]), np.array([[0.0, 0.5]])).value
    0.75
    """

    def chance(ours: Matrix, theirs: Matrix) -> Matrix:
        difference = ours[..., :, None, :] - theirs[..., None, :, :]
        won: Matrix = (np.sign(difference) + 1) / 2
        return np.asarray(won.mean(axis=(-1, -2, -3)))

    drawn = [chance(ours, theirs) for ours, theirs in _drawn(np.stack([scores, baseline]))]
    return _plain(float(chance(scores, baseline)), np.array(drawn), scores.shape)


def pass_at(passes: Matrix, rollouts: int, k: int) -> Matrix:
    """Chance that at least one of k rollouts of a task passes (Chen et al. 2021, arXiv 2107.03374).

    1 - C(n - c, k) / C(n, k) with c passes of n rollouts.

    >>> pass_at(np.array([0.0, 1.0, 4.0]), rollouts=4, k=2).tolist()
    [0.0, 0.5, 1.0]
    """
    failures = rollouts - np.round(passes)
    return np.asarray(1 - special.comb(failures, k) / special.comb(rollouts, k))


def pass_all(passes: Matrix, rollouts: int, k: int) -> Matrix:
    """Chance that all of k rollouts of a task pass, pass^k (tau-bench, arXiv 2406.12045).

    C(c, k) / C(n, k) with c passes of n rollouts.

    >>> pass_all(np.array([1.0, 2.0, 4.0]), rollouts=4, k=2).round(3).tolist()
    [0.0, 0.167, 1.0]
    """
    return np.asarray(special.comb(np.round(passes), k) / special.comb(rollouts, k))


def _of_scenarios(scores: Matrix, categories: Sequence[str], scenarios: Sequence[str]) -> Matrix:
    """One column for each scenario, such that their mean is the average of categories.

    A task weighs 1 / (tasks of its category * categories). A scenario's column is the weighted sum
    of its tasks' distances from the mean of their category, times the number of scenarios, plus the
    average of categories. Without the distances a draw with more or larger scenarios, or more of
    an easy category, would look like one with better scores.
    """
    kinds = np.array(categories)
    counts = {category: categories.count(category) for category in categories}
    weights = np.array([1 / (counts[category] * len(counts)) for category in categories])
    levels = {category: float(scores[:, kinds == category].mean()) for category in counts}
    centred = scores - np.array([levels[category] for category in categories])
    places = {name: place for place, name in enumerate(dict.fromkeys(scenarios))}
    belongs = np.zeros((scores.shape[1], len(places)))
    for task, name in enumerate(scenarios):
        belongs[task, places[name]] = 1.0
    average = sum(levels.values()) / len(levels)
    return np.asarray((centred * weights) @ belongs * len(places) + average)


def _standard_error(scores: Matrix) -> tuple[float, float]:
    """Standard error of the mean of (seeds, scenarios), and its degrees of freedom (Satterthwaite).

    Each score is a sum: scenario + seed + noise. The variance of the means of scenarios holds
    scenario and noise, that of the means of seeds holds seed and noise; one noise is subtracted.
    """
    seeds, scenarios = scores.shape
    if scenarios < 2:
        return math.nan, 1.0
    by_seed, by_scenario = scores.mean(axis=1), scores.mean(axis=0)
    of_scenarios = float(by_scenario.var(ddof=1)) / scenarios
    if seeds < 2:
        return math.sqrt(of_scenarios), scenarios - 1
    of_seeds = float(by_seed.var(ddof=1)) / seeds
    of_noise = noise_variance(scores) / scores.size
    variance = max(of_seeds + of_scenarios - of_noise, of_seeds, of_scenarios)
    if variance == 0:
        return 0.0, 1.0
    if seeds == 2:  # their spread is hardly known, and would look small by chance
        return math.sqrt(variance), 1.0
    freedom = variance**2 / (of_seeds**2 / (seeds - 1) + of_scenarios**2 / (scenarios - 1))
    return math.sqrt(variance), max(1.0, freedom)


def noise_variance(scores: Matrix) -> float:
    """Variance of a score beyond the levels of its row and column, of at least two each."""
    by_row, by_column = scores.mean(axis=1), scores.mean(axis=0)
    rest = scores - by_column - by_row[:, None] + scores.mean()
    return float((rest**2).sum()) / ((len(by_row) - 1) * (len(by_column) - 1))


def _drawn(scores: Matrix) -> Matrix:
    """Seeds and tasks drawn with replacement, always the same: (DRAWS, ..., seeds, tasks)."""
    draw = np.random.default_rng(0)
    seeds, tasks = scores.shape[-2:]
    rows = draw.integers(0, seeds, (DRAWS, seeds))
    chosen = draw.integers(0, tasks, (DRAWS, tasks))
    picked = scores[..., rows[:, :, None], chosen[:, None, :]]
    return np.asarray(picked if scores.ndim == 2 else np.moveaxis(picked, 0, 1))


def _plain(value: float, drawn: Matrix, shape: tuple[int, ...]) -> Estimate:
    """The interval of a share, widened for few seeds."""
    seeds, tasks = shape
    if seeds < LEAST_SEEDS:
        return Estimate(value, None, None, seeds, tasks)
    upper = (1 + LEVEL) / 2
    widened = stats.t.ppf(upper, seeds - 1) / stats.norm.ppf(upper) * math.sqrt(seeds / (seeds - 1))
    ends = np.quantile(value + (drawn - value) * widened, [1 - upper, upper])
    low, high = (float(end) for end in ends.clip(0, 1))
    return Estimate(value, low, high, seeds, tasks)
