import json
from dataclasses import replace

from seal.coevolution.labels import Label
from seal.coevolution.weights import UTILITIES, WeightConfig, batch_weights
from seal.train.round import RolloutRecord, label_counts, round_metrics
from seal.wire import ExitStatus, TurnDiagnosis


def record(reward: float, *labels: Label, category: str = "multi_turn_base") -> RolloutRecord:
    turns = tuple(TurnDiagnosis(i, label.value, "why", None) for i, label in enumerate(labels))
    return RolloutRecord(
        task_id="task",
        category=category,
        reward=reward,
        training_reward=reward,
        turns=turns,
        interface_version=0,
        interface_shown=True,
        exit_status="completed",
        environment_s=0.5,
        turn_spans=((0, 0, 3),),
    )


def test_a_record_survives_its_way_through_plain_values() -> None:
    written = record(1.0, Label.PASS, Label.STATE_MISMATCH)
    read = RolloutRecord.from_json(json.loads(json.dumps(written.to_json())))
    assert read == written
    assert read.labels == (Label.PASS, Label.STATE_MISMATCH)
    assert read.labeled().category == "multi_turn_base"


def test_metrics_of_a_round() -> None:
    records = [record(1.0, Label.PASS), record(0.0, Label.PASS, Label.INVALID_TOOL_CALL)]
    config = WeightConfig(w_max=1.25)
    labeled = [record.labeled() for record in records]
    weights = batch_weights(labeled, ["a", "a"], UTILITIES, config)
    metrics = round_metrics(records, weights, UTILITIES, config)
    assert metrics["seal/pass_rate"] == 0.5
    assert metrics["seal/label/pass"] == 2 / 3
    assert metrics["seal/label/state_mismatch"] == 0.0
    # The second's utilities are 1.0 and 2.0, their mean is clipped to 1.25.
    assert metrics["seal/weight/mean"] == (1.0 + 1.25) / 2
    assert metrics["seal/weight/clipped_share"] == 0.5


def test_passes_with_a_failed_turn_are_counted() -> None:
    spurious = Label.SPURIOUS_TOOL_CALL
    records = [
        record(1.0, Label.PASS, spurious),
        record(1.0, Label.PASS),
        record(0.0, spurious),
        record(1.0, Label.CHECKER_ERROR),
    ]
    metrics = round_metrics(records, [(1.0,)] * 4, UTILITIES, WeightConfig())
    assert metrics["seal/passed_with_failure_share"] == 1 / 4


def test_limits_are_counted_apart() -> None:
    ends: list[ExitStatus] = ["completed", "step_limit", "response_length", "response_length"]
    records = [replace(record(0.0, Label.PASS), exit_status=end) for end in ends]
    metrics = round_metrics(records, [(1.0,)] * 4, UTILITIES, WeightConfig())
    assert {name: share for name, share in metrics.items() if "exit" in name} == {
        "seal/exit/completed": 0.25,
        "seal/exit/step_limit": 0.25,
        "seal/exit/response_length": 0.5,
        "seal/exit/max_model_len": 0.0,
    }
    assert metrics["seal/truncated_share"] == 0.75
    assert [one.to_json()["truncated"] for one in records] == [False, True, True, True]


def test_the_share_of_failures_that_only_follow_from_earlier_ones() -> None:
    failed = record(0.0, Label.PASS, Label.STATE_MISMATCH, Label.STATE_MISMATCH)
    turns = (*failed.turns[:2], replace(failed.turns[2], cascade=True))
    records = [replace(failed, turns=turns)]
    metrics = round_metrics(records, [(1.0, 1.0, 1.0)], UTILITIES, WeightConfig())
    assert metrics["seal/cascade_share"] == 0.5


def test_labels_are_counted_by_category() -> None:
    counts = label_counts(
        [
            record(1.0, Label.PASS, Label.PASS),
            record(0.0, Label.SPURIOUS_TOOL_CALL, category="multi_turn_miss_param"),
        ]
    )
    assert counts == {
        "multi_turn_base": {"pass": 2},
        "multi_turn_miss_param": {"spurious_tool_call": 1},
    }
