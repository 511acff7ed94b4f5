import doctest
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seal.validation import statistics
from seal.validation.log import Rollout
from seal.validation.statistics import (
    AVERAGE,
    Z_95,
    Interval,
    TaskResult,
    average_interval,
    differences,
    mcnemar,
    rates,
    task_results,
    wilson,
)

COUNTS = st.integers(0, 400).flatmap(lambda k: st.tuples(st.just(k), st.integers(max(1, k), 400)))


def test_worked_examples() -> None:
    assert doctest.testmod(statistics).failed == 0


@pytest.mark.parametrize(
    ("passed", "n", "low", "high"),
    [
        (5, 10, 0.2366, 0.7634),
        # Newcombe, Statistics in Medicine 17 (1998), table I, method 3.
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_wilson_against_published_values(passed: int, n: int, low: float, high: float) -> None:
    interval = wilson(passed / n, n)
    assert interval.low == pytest.approx(low, abs=5e-5)
    assert interval.high == pytest.approx(high, abs=5e-5)


@given(COUNTS)
def test_wilson_lies_around_the_rate_and_is_what_the_score_test_accepts(
    counts: tuple[int, int],
) -> None:
    passed, n = counts
    rate = passed / n
    interval = wilson(rate, n)
    assert 0 <= interval.low <= rate <= interval.high <= 1
    mirrored = wilson((n - passed) / n, n)
    assert mirrored.low == pytest.approx(1 - interval.high)
    for bound in (interval.low, interval.high):
        # The definition: both bounds are z standard errors, at the bound, away from the rate.
        if 0 < bound < 1:
            assert abs(rate - bound) == pytest.approx(Z_95 * math.sqrt(bound * (1 - bound) / n))


@pytest.mark.parametrize(("rate", "n"), [(0.5, 0), (-0.1, 5), (1.1, 5)])
def test_wilson_of_nothing(rate: float, n: int) -> None:
    with pytest.raises(ValueError, match="expected a rate"):
        wilson(rate, n)


@pytest.mark.parametrize(
    ("better", "worse", "p"),
    [
        (0, 0, 1.0),
        (5, 5, 1.0),
        (1, 0, 1.0),
        (6, 0, 2 / 64),
        (9, 1, 2 * (1 + 10) / 1024),
        (16, 6, 2 * (1 + 22 + 231 + 1540 + 7315 + 26334 + 74613) / 2**22),
        # The approval ratings of Agresti, Categorical Data Analysis, table 10.1.
        (150, 86, 3.716e-05),
    ],
)
def test_mcnemar_against_known_values(better: int, worse: int, p: float) -> None:
    assert mcnemar(better, worse) == pytest.approx(p, rel=2e-4)


@settings(deadline=None)  # a busy machine
@given(st.integers(0, 400), st.integers(0, 400))
def test_mcnemar_is_a_symmetric_p_value(better: int, worse: int) -> None:
    p = mcnemar(better, worse)
    assert 0 <= p <= 1
    assert p == mcnemar(worse, better)
    if better > worse:
        assert mcnemar(better + 1, worse) <= p


def test_mcnemar_holds_for_many_pairs_and_refuses_fewer_than_none() -> None:
    assert mcnemar(3000, 3000) == 1.0
    assert mcnemar(6000, 0) == 0.0
    with pytest.raises(ValueError, match="expected numbers of pairs"):
        mcnemar(-1, 2)


def results(**scores: float) -> dict[str, TaskResult]:
    """Single rollouts; the category is the name up to its last underscore."""
    return {task: TaskResult(task.rpartition("_")[0], score, 1) for task, score in scores.items()}


def test_categories_weigh_the_same_in_the_average() -> None:
    found = rates(results(base_1=1.0, base_2=1.0, base_3=1.0, miss_1=0.0))
    assert list(found) == ["base", "miss", AVERAGE]
    assert found["base"].rate == 1.0
    assert found[AVERAGE].rate == 0.5
    assert (found[AVERAGE].tasks, found[AVERAGE].rollouts) == (4, 4)
    # Two categories of 3 and of 1 tell as much as 4 / (1/3 + 1/1) = 3 tasks.
    assert found[AVERAGE].interval == wilson(0.5, 3)
    assert rates({}) == {}


@given(st.lists(COUNTS, min_size=1, max_size=6))
def test_the_average_lies_within_its_interval(categories: list[tuple[int, int]]) -> None:
    rate = sum(passed / n for passed, n in categories) / len(categories)
    interval = average_interval(min(1.0, rate), [n for _, n in categories])
    assert isinstance(interval, Interval)
    assert 0 <= interval.low <= min(1.0, rate) <= interval.high <= 1


def test_rollouts_of_a_task_count_with_their_mean() -> None:
    def rollout(task: str, score: float) -> Rollout:
        return Rollout(1, 0, "fixed", task, "base", score, ())

    found = task_results([rollout("a", 1.0), rollout("b", 0.0), rollout("a", 0.0)])
    assert found == {"a": TaskResult("base", 0.5, 2), "b": TaskResult("base", 0.0, 1)}
    rate = rates(found)["base"]
    assert (rate.rate, rate.tasks, rate.rollouts) == (0.25, 2, 3)


def test_differences_are_paired_by_task() -> None:
    before = results(base_1=0.0, base_2=0.0, base_3=1.0, base_4=1.0, miss_1=0.0, gone_1=1.0)
    after = results(base_1=1.0, base_2=1.0, base_3=0.0, base_4=1.0, miss_1=1.0, new_1=1.0)
    found = differences(after, before)
    assert list(found) == ["base", "miss", AVERAGE]
    base = found["base"]
    assert (base.points, base.pairs, base.better, base.worse, base.p) == (25.0, 4, 2, 1, 1.0)
    average = found[AVERAGE]
    assert (average.points, average.pairs, average.better, average.worse) == (62.5, 5, 3, 1)
    assert average.p == mcnemar(3, 1)
    assert differences(after, {}) == {}
