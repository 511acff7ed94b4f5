"""The scalars of a validation: by hand, and from the logs of this project's own runs."""

from typing import Any

from seal.validation.log import Rollout
from seal.validation.metrics import metrics_of_log, validation_metrics
from seal.validation.statistics import AVERAGE, rates, task_results

CUT: Any = {"truncated": True, "exit_status": "step_limit"}
ANSWERED: Any = {"truncated": False, "exit_status": "completed"}


def test_the_best_checkpoint_is_chosen_by_the_average_that_the_summary_prints() -> None:
    tasks = [
        ("base", "a"),
        ("base", "a"),
        ("base", "b"),
        ("base", "b"),
        ("miss", "c"),
        ("miss", "c"),
    ]
    rewards = [1.0, 0.0, 1.0, 1.0, 0.0, 1.0]
    exit_statuses = ["max_model_len", *["completed"] * 5]
    groups, categories = [task for _, task in tasks], [category for category, _ in tasks]
    found = validation_metrics(
        suites=[*["benchmark"] * 6, "fixed"],
        categories=[*categories, "base"],
        groups=[*groups, "d"],
        rewards=[*rewards, 0.0],
        exit_statuses=[*exit_statuses, "step_limit"],
    )
    rollouts = [
        Rollout(1, 0, "benchmark", task, category, reward, ())
        for (category, task), reward in zip(tasks, rewards, strict=True)
    ]
    average = rates(task_results(rollouts))[AVERAGE].rate
    assert found["val-seal/benchmark/category_average"] == average == 0.625
    assert found["val-seal/benchmark/pass_rate"] == 4 / 6
    assert found["val-seal/benchmark/mixed_group_share"] == 2 / 3
    assert found["val-seal/benchmark/truncated_share"] == 1 / 6
    assert found["val-seal/benchmark/exit/max_model_len"] == 1 / 6
    assert found["val-seal/benchmark/exit/step_limit"] == 0.0
    assert found["val-seal/fixed/exit/step_limit"] == found["val-seal/fixed/truncated_share"] == 1.0
    assert found["val-seal/fixed/category_average"] == 0.0


def test_the_metrics_of_a_log_are_those_that_the_trainer_wrote() -> None:
    rollouts = [
        Rollout(1, 4, "fixed", "multi_turn_base_1", "multi_turn_base", 1.0, (), **CUT),
        Rollout(2, 4, "fixed", "multi_turn_base_1", "multi_turn_base", 0.0, (), **ANSWERED),
        Rollout(3, 4, "fixed", "multi_turn_base_2", "multi_turn_base", 1.0, (), **ANSWERED),
        # A task of another suite is another group.
        Rollout(4, 4, "progress", "multi_turn_base_1", "multi_turn_base", 0.0, ()),
    ]
    found = metrics_of_log(rollouts)
    written = validation_metrics(
        suites=["fixed", "fixed", "fixed", "progress"],
        categories=["multi_turn_base"] * 4,
        groups=["uid 1", "uid 1", "uid 2", "uid 3"],
        rewards=[1.0, 0.0, 1.0, 0.0],
        exit_statuses=["step_limit", *["completed"] * 3],
    )
    # An older log does not say what ended a rollout.
    unknown = {name for name in written if "progress/exit/" in name}
    unknown.add("val-seal/progress/truncated_share")
    assert len(unknown) == 5
    assert found == {name: value for name, value in written.items() if name not in unknown}
    assert found["val-seal/fixed/mixed_group_share"] == 0.5
    assert found["val-seal/fixed/truncated_share"] == 1 / 3
