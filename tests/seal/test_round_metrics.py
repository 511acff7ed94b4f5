"""Figures of a round."""

from labelled import rollout, turn

from seal.coevolution.weights import UTILITIES, WeightConfig, batch_weights
from seal.labels import Label
from seal.records.round_metrics import by_source, label_counts, round_metrics
from seal.wire import ExitStatus


def test_metrics_of_a_round() -> None:
    rollouts = [rollout([Label.PASS], 1.0), rollout([Label.PASS, Label.INVALID_TOOL_CALL])]
    config = WeightConfig(w_max=1.25)
    weights = batch_weights(rollouts, ["a", "a"], UTILITIES, config)
    metrics = round_metrics(rollouts, weights, UTILITIES, config)
    assert metrics["seal/pass_rate"] == 0.5
    assert metrics["seal/label/pass"] == 2 / 3
    assert metrics["seal/label/state_mismatch"] == 0.0
    # The second's utilities are 1.0 and 2.0, their mean is clipped to 1.25.
    assert metrics["seal/weight/mean"] == (1.0 + 1.25) / 2
    assert metrics["seal/weight/clipped_share"] == 0.5


def test_passes_with_a_failed_turn_are_counted() -> None:
    spurious = Label.SPURIOUS_TOOL_CALL
    rollouts = [
        rollout([Label.PASS, spurious], 1.0),
        rollout([Label.PASS], 1.0),
        rollout([spurious]),
        rollout([Label.CHECKER_ERROR], 1.0),
    ]
    metrics = round_metrics(rollouts, [(1.0,)] * 4, UTILITIES, WeightConfig())
    assert metrics["seal/passed_with_failure_share"] == 1 / 4


def test_limits_are_counted_apart() -> None:
    ends: list[ExitStatus] = ["completed", "step_limit", "response_length", "response_length"]
    rollouts = [rollout([Label.PASS], exit_status=end) for end in ends]
    metrics = round_metrics(rollouts, [(1.0,)] * 4, UTILITIES, WeightConfig())
    assert {name: share for name, share in metrics.items() if "exit" in name} == {
        "seal/exit/completed": 0.25,
        "seal/exit/step_limit": 0.25,
        "seal/exit/response_length": 0.5,
        "seal/exit/max_model_len": 0.0,
    }
    assert metrics["seal/truncated_share"] == 0.75


def test_the_share_of_failures_that_only_follow_from_earlier_ones() -> None:
    wrong, follows = turn(Label.STATE_MISMATCH), turn(Label.STATE_MISMATCH, cascade=True)
    rollouts = [rollout([Label.PASS, wrong, follows])]
    metrics = round_metrics(rollouts, [(1.0, 1.0, 1.0)], UTILITIES, WeightConfig())
    assert metrics["seal/cascade_share"] == 0.5


def test_labels_are_counted_by_category() -> None:
    counts = label_counts(
        [
            rollout([Label.PASS, Label.PASS], 1.0, "multi_turn_base"),
            rollout([Label.SPURIOUS_TOOL_CALL], 0.0, "multi_turn_miss_param"),
        ]
    )
    assert counts == {
        "multi_turn_base": {"pass": 2},
        "multi_turn_miss_param": {"spurious_tool_call": 1},
    }


def test_real_and_synthetic_tasks_are_told_apart() -> None:
    real, drawn = "multi_turn_base_1", "synthetic_some_000001_1"
    rollouts = [
        rollout([Label.PASS, Label.PASS], 1.0, task_id=real),
        rollout([Label.PASS, Label.STATE_MISMATCH], task_id=real),
        rollout([Label.STATE_MISMATCH], task_id=drawn),
        rollout([Label.MISSING_TOOL_CALL], task_id=drawn),
        rollout([Label.PASS], 1.0, task_id=drawn),
        rollout([Label.PASS], 1.0, task_id=drawn),
    ]
    assert by_source(rollouts, ["a", "a", "b", "b", "c", "c"]) == {
        "real": {
            "groups": 1,
            "pass_rate": 0.5,
            "mixed_group_share": 1.0,
            "labels": {"pass": 3, "state_mismatch": 1},
        },
        "synthetic": {
            "groups": 2,
            "pass_rate": 0.5,
            "mixed_group_share": 0.0,
            "labels": {"state_mismatch": 1, "missing_tool_call": 1, "pass": 2},
        },
    }
    assert by_source(rollouts[2:], ["b", "b", "c", "c"]).keys() == {"synthetic"}
    assert by_source(rollouts[:2], ["a", "a"]) == {}
