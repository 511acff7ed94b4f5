"""The spread of baseline runs, and the difference that a study can find."""

import numpy as np
import pytest

from seal.study.power import Spread, detectable, spread


def test_the_spread_of_made_up_runs_is_found() -> None:
    draw = np.random.default_rng(5)
    of_seeds = draw.normal(0, 0.05, (60, 1))
    scores = of_seeds + draw.uniform(0, 1, (1, 80)) + draw.normal(0, 0.2, (60, 80))
    found = spread(scores)
    assert found.seeds == pytest.approx(0.05, rel=0.3)
    assert found.noise == pytest.approx(0.2, rel=0.05)
    assert found.runs == pytest.approx(scores.mean(axis=1).std(ddof=1))


def test_one_run_has_no_spread() -> None:
    with pytest.raises(ValueError, match="two runs and two tasks at least, got 1 and 9"):
        spread(np.zeros((1, 9)))


def varies(seeds: float, noise: float, tasks: int = 32) -> Spread:
    return Spread(seeds, noise, float(np.hypot(seeds, noise / np.sqrt(tasks))))


def test_more_seeds_find_less_and_noise_and_comparisons_hide_more() -> None:
    few = detectable(varies(0.02, 0.2), seeds=4, tasks=32)
    many = detectable(varies(0.02, 0.2), seeds=8, tasks=32)
    noisy = detectable(varies(0.02, 0.5), seeds=8, tasks=32)
    corrected = detectable(varies(0.02, 0.2), seeds=8, tasks=32, comparisons=10)
    assert few and many and noisy and corrected
    assert many < few and many < noisy and many < corrected
    # Known variance: (1.96 + 0.84) * sqrt(2) * sqrt(0.02^2 + 0.2^2 / 32) / sqrt(8) is 0.057.
    assert 0.05 <= many <= 0.09
    assert detectable(varies(1.0, 0.2), seeds=2, tasks=32) is None
