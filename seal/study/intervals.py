"""Estimates over seeds and tasks together, with 95 % intervals.

In: scores as matrices (seeds, tasks), those of two recipes with the same seeds and tasks. Out:
`Estimate`s. Both are drawn anew, seeds and tasks (the "pigeonhole" bootstrap of a crossed design,
Owen 2007, arXiv 0711.1031): what is claimed is meant for other seeds and other tasks of the kind.

That bootstrap counts the noise of a single score three times and knows nothing of few seeds. For
means, where the variance of a crossed design is known, its draws are therefore scaled to it, and
widened from the normal distribution to Student's t. For the other statistics (interquartile mean,
probability of improvement, as defined by Agarwal et al. 2021, arXiv 2108.13264) they stay as they
are, which is too wide rather than too narrow. Pure functions.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Matrix: TypeAlias = NDArray[np.float64]
DRAWS = 4000
LEVEL = 0.95


@dataclass(frozen=True)
class Estimate:
    """A figure and its 95 % interval, in the scores' unit."""

    value: float
    low: float | None
    """None where a single score gives no interval."""
    high: float | None
    seeds: int
    tasks: int

    @property
    def excludes_zero(self) -> bool:
        """Whether the interval, of a difference, is on one side of 0."""
        return self.low is not None and self.high is not None and (self.low > 0 or self.high < 0)


def mean(scores: Matrix, categories: Sequence[str], seed: int = 0) -> Estimate:
    """The mean over seeds of the average of categories, as the paper averages.

    With one seed the interval is of the tasks alone: it holds for this seed only.

    Args:
        scores: (seeds, tasks); for a paired difference, those of the differences.
        categories: Of each task.
        seed: Of the draws.

    >>> scores = np.array([[0.0, 1.0, 0.5, 0.5], [0.5, 1.0, 0.5, 1.0]])
    >>> found = mean(scores, ["a", "a", "b", "b"])
    >>> found.value, found.low < 0.625 < found.high
    (0.625, True)
    """
    parts = _columns(categories)
    value = float(np.mean([scores[:, part].mean() for part in parts]))
    error, freedom = _standard_error(scores, parts)
    seeds, tasks = scores.shape
    if error == 0 or math.isnan(error):
        bound = value if error == 0 else None
        return Estimate(value, bound, bound, seeds, tasks)
    drawn = np.mean([_drawn(scores, part, seed).mean(axis=(1, 2)) for part in parts], axis=0)
    if np.ptp(drawn) == 0:
        return Estimate(value, value, value, seeds, tasks)
    widened = stats.t.ppf((1 + LEVEL) / 2, freedom) / stats.norm.ppf((1 + LEVEL) / 2)
    scaled = value + (drawn - drawn.mean()) * (error / drawn.std()) * widened
    low, high = np.quantile(scaled, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Estimate(value, float(low), float(high), seeds, tasks)


def interquartile_mean(scores: Matrix, seed: int = 0) -> Estimate:
    """Mean of the middle half of all scores of all seeds and tasks (25 % trimmed mean).

    >>> interquartile_mean(np.array([[0.0, 0.4, 0.6, 1.0]])).value
    0.5
    """
    value = float(stats.trim_mean(scores, 0.25, axis=None))
    drawn = _drawn(scores, range(scores.shape[1]), seed)
    flat = drawn.reshape(len(drawn), -1)
    return _plain(value, stats.trim_mean(flat, 0.25, axis=1), scores.shape)


def probability_of_improvement(scores: Matrix, baseline: Matrix, seed: int = 0) -> Estimate:
    """Chance that a run beats one of the baseline on a task, a tie counting half; mean over tasks.

    Args:
        scores: (seeds, tasks).
        baseline: Of the same seeds and tasks.
        seed: Of the draws.

    >>> probability_of_improvement(np.array([[1.0, 0.5]]), np.array([[0.0, 0.5]])).value
    0.75
    """

    def chance(ours: Matrix, theirs: Matrix) -> Matrix:
        difference = ours[..., :, None, :] - theirs[..., None, :, :]
        won: Matrix = (np.sign(difference) + 1) / 2
        return np.asarray(won.mean(axis=(-1, -2, -3)))

    both = np.stack([scores, baseline])
    drawn = _drawn(both, range(scores.shape[1]), seed)
    found = [chance(ours, theirs) for ours, theirs in drawn]
    return _plain(float(chance(scores, baseline)), np.array(found), scores.shape)


def pass_at(passes: Matrix, rollouts: int, k: int) -> Matrix:
    """Chance that at least one of k rollouts of a task passes (Chen et al. 2021, arXiv 2107.03374).

    1 - C(n - c, k) / C(n, k) with c passes of n rollouts.

    >>> pass_at(np.array([0.0, 1.0, 4.0]), rollouts=4, k=2).tolist()
    [0.0, 0.5, 1.0]
    """
    return _each(passes, lambda c: 1 - math.comb(rollouts - c, k) / math.comb(rollouts, k))


def pass_all(passes: Matrix, rollouts: int, k: int) -> Matrix:
    """Chance that all of k rollouts of a task pass, pass^k (tau-bench, arXiv 2406.12045).

    C(c, k) / C(n, k) with c passes of n rollouts.

    >>> pass_all(np.array([1.0, 2.0, 4.0]), rollouts=4, k=2).round(3).tolist()
    [0.0, 0.167, 1.0]
    """
    return _each(passes, lambda c: math.comb(c, k) / math.comb(rollouts, k))


def _each(passes: Matrix, chance: Callable[[int], float]) -> Matrix:
    return np.asarray(np.vectorize(lambda one: chance(round(one)), otypes=[np.float64])(passes))


def _columns(categories: Sequence[str]) -> list[list[int]]:
    found: dict[str, list[int]] = {}
    for place, category in enumerate(categories):
        found.setdefault(category, []).append(place)
    return list(found.values())


def _standard_error(scores: Matrix, parts: Sequence[Sequence[int]]) -> tuple[float, float]:
    """Of the average of categories, with its degrees of freedom (Satterthwaite).

    Each score is a sum: task + seed + noise. A mean over tasks varies by tasks and noise, one over
    seeds by seeds and noise; the noise is subtracted once.
    """
    seeds = scores.shape[0]
    by_seed = np.mean([scores[:, part].mean(axis=1) for part in parts], axis=0)
    of_seeds = float(by_seed.var(ddof=1)) / seeds if seeds > 1 else 0.0
    of_tasks = of_noise = freedom_of_tasks = 0.0
    for part in parts:
        if len(part) < 2:
            return math.nan, 0.0
        block = scores[:, part]
        of_tasks += float(block.mean(axis=0).var(ddof=1)) / len(part)
        freedom_of_tasks += len(part) - 1
        if seeds > 1:
            rest = block - block.mean(axis=0) - block.mean(axis=1, keepdims=True) + block.mean()
            spread = float((rest**2).sum()) / ((seeds - 1) * (len(part) - 1))
            of_noise += spread / block.size
    of_tasks, of_noise = of_tasks / len(parts) ** 2, of_noise / len(parts) ** 2
    variance = max(of_seeds + of_tasks - of_noise, of_seeds, of_tasks)
    if variance == 0:
        return 0.0, 1.0
    parts_of_freedom = of_tasks**2 / freedom_of_tasks
    if seeds > 1:
        parts_of_freedom += of_seeds**2 / (seeds - 1)
    return math.sqrt(variance), max(1.0, variance**2 / parts_of_freedom)


def _drawn(scores: Matrix, columns: Sequence[int] | range, seed: int) -> Matrix:
    """Seeds and tasks drawn with replacement: (DRAWS, ..., seeds, tasks)."""
    draw = np.random.default_rng(seed)
    seeds, places = scores.shape[-2], np.asarray(columns)
    rows = draw.integers(0, seeds, (DRAWS, seeds))
    chosen = places[draw.integers(0, len(places), (DRAWS, len(places)))]
    picked = scores[..., rows[:, :, None], chosen[:, None, :]]
    return np.asarray(picked if scores.ndim == 2 else np.moveaxis(picked, 0, 1))


def _plain(value: float, drawn: Matrix, shape: tuple[int, ...]) -> Estimate:
    if shape[0] * shape[1] == 1:
        return Estimate(value, None, None, shape[0], shape[1])
    low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Estimate(value, float(low), float(high), shape[0], shape[1])
