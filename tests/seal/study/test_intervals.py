"""Estimates with known answers: coverage by simulation, planted differences, counts by hand."""

import itertools
from statistics import fmean

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seal.study.intervals import (
    Matrix,
    interquartile_mean,
    mean,
    pass_all,
    pass_at,
    probability_of_improvement,
)

UNTIMED = settings(deadline=None)


def crossed(
    draw: np.random.Generator, seeds: int, tasks: int, of_seeds: float, of_tasks: float
) -> Matrix:
    """Differences of two recipes whose true mean is 0: of seeds, of tasks, and of single scores."""
    return (
        draw.normal(0, of_seeds, (seeds, 1))
        + draw.normal(0, of_tasks, (1, tasks))
        + draw.normal(0, 0.2, (seeds, tasks))
    )


@pytest.mark.parametrize(
    ("seeds", "tasks", "of_seeds", "of_tasks"),
    [(5, 32, 0.0, 0.0), (5, 32, 0.03, 0.1), (3, 100, 0.03, 0.0), (5, 32, 0.0, 0.2), (2, 20, 0, 0)],
)
def test_intervals_cover_the_truth_as_often_as_they_say(
    seeds: int, tasks: int, of_seeds: float, of_tasks: float
) -> None:
    draw = np.random.default_rng(7)
    missed = 0
    for _ in range(200):
        found = mean(crossed(draw, seeds, tasks, of_seeds, of_tasks), ["a"] * tasks)
        assert found.low is not None and found.high is not None
        missed += not found.low <= 0 <= found.high
    # Of 200 intervals of 95 %, more than 18 miss with a chance of 1 %.
    assert missed <= 18


def test_an_interval_of_noise_alone_is_not_much_wider_than_it_has_to_be() -> None:
    draw = np.random.default_rng(3)
    widths = []
    for _ in range(50):
        found = mean(crossed(draw, 5, 32, 0.0, 0.0), ["a"] * 32)
        assert found.low is not None and found.high is not None
        widths.append(found.high - found.low)
    # Known variance: 2 * 1.96 * 0.2 / sqrt(160) is 0.062.
    assert 0.05 < fmean(widths) < 0.11


def test_a_planted_difference_is_found_and_none_is_not() -> None:
    draw = np.random.default_rng(1)
    base = crossed(draw, 5, 32, 0.02, 0.05)
    assert mean(base + 0.15, ["a"] * 32).excludes_zero
    assert not mean(base - base.mean(), ["a"] * 32).excludes_zero


def test_the_mean_is_that_of_the_categories() -> None:
    scores = np.array([[1.0, 1.0, 1.0, 0.0, 0.2], [1.0, 1.0, 0.0, 0.0, 0.4]])
    found = mean(scores, ["a", "a", "a", "b", "b"])
    assert found.value == pytest.approx((5 / 6 + 0.15) / 2)
    assert (found.seeds, found.tasks) == (2, 5)


def test_one_seed_has_an_interval_of_its_tasks_and_one_score_has_none() -> None:
    found = mean(np.array([[0.0, 1.0, 1.0, 0.0, 1.0, 1.0]]), ["a"] * 6)
    assert found.low is not None and found.low < found.value < (found.high or 0)
    alone = mean(np.array([[0.5]]), ["a"])
    assert (alone.value, alone.low, alone.high) == (0.5, None, None)
    assert not alone.excludes_zero


def test_scores_that_do_not_vary_have_an_interval_without_width() -> None:
    found = mean(np.full((3, 4), 0.25), ["a"] * 4)
    assert (found.low, found.value, found.high) == (0.25, 0.25, 0.25)


@UNTIMED
@given(st.integers(1, 8), st.data())
def test_pass_at_k_and_pass_all_count_the_choices(rollouts: int, data: st.DataObject) -> None:
    c = data.draw(st.integers(0, rollouts))
    k = data.draw(st.integers(1, rollouts))
    every = list(itertools.combinations([1] * c + [0] * (rollouts - c), k))
    counts = np.array([float(c)])
    assert pass_at(counts, rollouts, k)[0] == pytest.approx(fmean(any(one) for one in every))
    assert pass_all(counts, rollouts, k)[0] == pytest.approx(fmean(all(one) for one in every))


def test_the_interquartile_mean_leaves_out_a_quarter_at_each_end() -> None:
    found = interquartile_mean(np.array([[0.0, 0.1, 0.4], [0.6, 0.7, 0.8], [0.9, 1.0, 0.5]]))
    # Nine scores: two are cut at each end.
    assert found.value == pytest.approx(fmean([0.4, 0.5, 0.6, 0.7, 0.8]))
    assert found.low is not None and found.low <= found.value <= (found.high or 0)


def test_the_probability_of_improvement_compares_every_pair_of_runs() -> None:
    ours, theirs = np.array([[0.2, 0.5], [0.8, 0.5]]), np.array([[0.2, 0.1], [0.4, 0.1]])
    # Task 1: 0.2 ties with 0.2 and loses to 0.4, 0.8 beats both; task 2: all wins.
    found = probability_of_improvement(ours, theirs)
    assert found.value == pytest.approx(((0.5 + 0 + 1 + 1) / 4 + 1) / 2)
    assert probability_of_improvement(theirs, ours).value == pytest.approx(1 - found.value)
    assert probability_of_improvement(ours, ours).value == 0.5
