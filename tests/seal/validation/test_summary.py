import pytest

from seal.validation.log import BadValidationFile, Rollout
from seal.validation.statistics import AVERAGE
from seal.validation.summary import (
    Expected,
    baseline_step,
    complaints,
    results_of,
    summarise,
)

EXPECTED = {
    "benchmark": {f"base_{i}": Expected("base", 1) for i in range(8)},
    "fixed": {"miss_1": Expected("miss", 2)},
}


def rollout(task: str, score: float = 1.0, suite: str = "benchmark") -> Rollout:
    return Rollout(1, 0, suite, task, task.rpartition("_")[0], score, ())


def complete(score: float = 1.0) -> list[Rollout]:
    benchmark = [rollout(task, score) for task in EXPECTED["benchmark"]]
    return [*benchmark, rollout("miss_1", 0.0, "fixed"), rollout("miss_1", 1.0, "fixed")]


def test_a_complete_run_has_nothing_to_complain_of() -> None:
    assert list(complaints(results_of({0: complete()}, EXPECTED, "val"), EXPECTED, "val")) == []


def test_what_is_missing_or_too_much_is_named() -> None:
    run = {10: [rollout("base_7"), rollout("base_7"), rollout("miss_1", suite="fixed")]}
    assert list(complaints(results_of(run, EXPECTED, "val"), EXPECTED, "val")) == [
        "val, step 10, suite 'benchmark': 7 of 8 tasks are missing: "
        "base_0, base_1, base_2, base_3, base_4, ...",
        "val, step 10, suite 'benchmark': 1 of 8 tasks are duplicate (the mean counts): base_7",
        "val, step 10, suite 'fixed': 1 of 1 tasks are short of rollouts: miss_1",
    ]


def test_a_suite_may_be_played_at_the_first_and_the_last_step_alone() -> None:
    rare = [one for one in complete() if one.suite != "fixed"]
    run = results_of({0: complete(), 5: rare, 10: complete()}, EXPECTED, "val")
    assert ([*run["fixed"]], [*run["benchmark"]]) == ([0, 10], [0, 5, 10])
    assert list(complaints(run, EXPECTED, "val")) == []
    summarise(run, run, frozenset({"base_3"}))
    # A run that has not come to its end, or whose last validation lost a suite.
    run = results_of({0: complete(), 5: rare}, EXPECTED, "val")
    assert list(complaints(run, EXPECTED, "val"))[0] == (
        "val, step 5, suite 'fixed': 1 of 1 tasks are missing: miss_1"
    )


def test_an_average_without_a_category_is_said() -> None:
    expected = {"benchmark": {"base_1": Expected("base", 1), "miss_1": Expected("miss", 1)}}
    found = complaints(results_of({0: [rollout("base_1")]}, expected, "val"), expected, "val")
    assert list(found)[1] == (
        "val, step 0, suite 'benchmark': no task of miss: the average is without it"
    )


def test_foreign_tasks_are_refused() -> None:
    for foreign in (rollout("tau_1"), rollout("base_1", suite="fixed")):
        with pytest.raises(BadValidationFile, match="is not in the evaluation file"):
            results_of({0: [foreign]}, EXPECTED, "val")
    other = Rollout(1, 0, "benchmark", "base_1", "miss", 1.0, ())
    with pytest.raises(BadValidationFile, match="line 1: task 'base_1' is of category 'miss'"):
        results_of({0: [other]}, EXPECTED, "val")


def test_rows_with_and_without_defective_tasks_against_a_baseline() -> None:
    after = results_of({0: complete(), 10: complete()}, EXPECTED, "val")
    before = results_of({0: complete(0.0)}, EXPECTED, "base")
    rows = summarise(after, before, frozenset({"base_3"}))
    found = {(r.suite, r.step, r.defective_tasks, r.category): r for r in rows}
    assert len(rows) == len(found) == 2 * 2 * 2 * 2
    row = found["benchmark", 10, "excluded", AVERAGE]
    assert (row.pass_rate, row.tasks, row.baseline_step, row.pairs) == (1.0, 7, 0, 7)
    assert (row.difference_points, row.better, row.worse) == (100.0, 7, 0)
    assert row.p_value == 2 / 2**7
    assert found["benchmark", 10, "included", "base"].tasks == 8
    fixed = found["fixed", 0, "included", "miss"]
    assert (fixed.tasks, fixed.rollouts, fixed.pass_rate, fixed.p_value) == (1, 2, 0.5, 1.0)


def test_no_list_of_defective_tasks_and_no_baseline_leave_their_part_out() -> None:
    rows = summarise(results_of({0: complete()}, EXPECTED, "val"), None, None)
    assert {row.defective_tasks for row in rows} == {"included"}
    assert {row.p_value for row in rows} == {None}


def test_the_step_to_compare_with() -> None:
    assert baseline_step(20, {0: None}) == 0
    assert baseline_step(20, {0: None, 20: None}) == 20
    assert baseline_step(20, {0: None, 10: None}) is None
    assert baseline_step(20, {}) is None
