"""Estimates with known answers: coverage by simulation, planted differences, counts by hand."""

import itertools
from collections import Counter
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
    [
        *((5, 32, 0.0, 0.0), (5, 32, 0.03, 0.1), (3, 100, 0.03, 0.0), (5, 32, 0.0, 0.2)),
        *((2, 20, 0.0, 0.0), (2, 32, 0.1, 0.0)),
    ],
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
    sure = mean(np.array([[0.5, 0.6, 0.5, 0.6, 0.5, 0.6]]), ["a"] * 6)
    assert sure.low is not None and sure.low > 0
    # Of one seed nothing is claimed.
    assert not sure.excludes_zero and sure.p_value is None
    alone = mean(np.array([[0.5]]), ["a"])
    assert (alone.value, alone.low, alone.high) == (0.5, None, None)
    assert not alone.excludes_zero


def test_scores_that_do_not_vary_say_nothing_of_how_sure_they_are() -> None:
    found = mean(np.zeros((3, 4)), ["a"] * 4)
    assert (found.value, found.low, found.high) == (0.0, None, None)


def test_tasks_of_a_scenario_are_drawn_together() -> None:
    """Each scenario has a task in four categories, whose scores are nearly the same."""
    draw = np.random.default_rng(11)
    categories = [f"c{number % 4}" for number in range(100)]
    scenarios = [str(number // 4) for number in range(100)]
    missed = Counter[str]()
    for _ in range(200):
        own = np.repeat(draw.normal(0, 0.3, 25), 4)
        scores = own + draw.normal(0, 0.1, (4, 100))
        for name, drawn_by in (("scenarios", scenarios), ("tasks", None)):
            found = mean(scores, categories, drawn_by)
            assert found.value == pytest.approx(scores.mean())
            assert found.low is not None and found.high is not None
            missed[name] += not found.low <= 0 <= found.high
    assert missed["scenarios"] <= 18 < missed["tasks"]


def test_easy_categories_and_large_scenarios_do_not_look_like_good_scores() -> None:
    """A draw with more of them has other weights, not other scores."""
    categories = ["easy"] * 12 + ["hard"] * 12
    # Scenarios of one to four tasks, of one or both categories.
    scenarios = [str(number % 7) for number in range(12)] + [str(number) for number in range(12)]
    levels = np.array([0.9] * 12 + [0.1] * 12)
    sure = mean(np.tile(levels, (4, 1)), categories, scenarios)
    assert sure.value == pytest.approx(0.5)
    assert (sure.low, sure.high) == (None, None)
    draw = np.random.default_rng(4)
    missed = 0
    for _ in range(200):
        scores = levels + crossed(draw, 4, 24, 0.02, 0.1)
        found = mean(scores, categories, scenarios)
        assert found.low is not None and found.high is not None
        missed += not found.low <= 0.5 <= found.high
    assert missed <= 18


def shares(draw: np.random.Generator) -> Matrix:
    """Scores of 5 seeds and 24 tasks around 0.5, the tasks spread alike every time."""
    level = draw.normal(0, 0.2, (5, 1)) + draw.permuted(np.linspace(-0.2, 0.2, 24))
    return np.asarray(0.5 + level + draw.normal(0, 0.05, (5, 24)))


def test_intervals_of_other_statistics_cover_the_truth_too() -> None:
    draw = np.random.default_rng(8)
    missed = Counter[str]()
    for _ in range(60):
        ours, theirs = shares(draw), shares(draw)
        for name, found in (
            ("interquartile mean", interquartile_mean(ours)),
            ("improvement", probability_of_improvement(ours, theirs)),
        ):
            assert found.low is not None and found.high is not None
            missed[name] += not found.low <= 0.5 <= found.high
    # Of 60 intervals of 95 %, more than 8 miss with a chance of 1 %.
    assert all(count <= 8 for count in missed.values())


def test_p_values_agree_with_intervals() -> None:
    draw = np.random.default_rng(2)
    found = [mean(crossed(draw, 4, 30, 0.02, 0.1) + 0.05, ["a"] * 30) for _ in range(60)]
    agree = [(one.p_value or 0) < 0.05 for one in found]
    assert sum(a == b.excludes_zero for a, b in zip(agree, found, strict=True)) >= 56
    assert 5 < sum(agree) < 55


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
    scores = np.array([[0.0, 0.1, 0.4], [0.6, 0.7, 0.8], [0.9, 1.0, 0.5]])
    # Nine scores: two are cut at each end.
    assert interquartile_mean(scores).value == pytest.approx(fmean([0.4, 0.5, 0.6, 0.7, 0.8]))
    # With few seeds, draws say too little.
    assert interquartile_mean(scores).low is None
    found = interquartile_mean(np.concatenate([scores, scores]))
    assert found.low is not None and found.low <= found.value <= (found.high or 0)


def test_the_probability_of_improvement_compares_every_pair_of_runs() -> None:
    ours, theirs = np.array([[0.2, 0.5], [0.8, 0.5]]), np.array([[0.2, 0.1], [0.4, 0.1]])
    # Task 1: 0.2 ties with 0.2 and loses to 0.4, 0.8 beats both; task 2: all wins.
    found = probability_of_improvement(ours, theirs)
    assert found.value == pytest.approx(((0.5 + 0 + 1 + 1) / 4 + 1) / 2)
    assert probability_of_improvement(theirs, ours).value == pytest.approx(1 - found.value)
    assert probability_of_improvement(ours, ours).value == 0.5
