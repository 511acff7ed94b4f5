from seal.coevolution.labels import Label
from seal.train.round import RolloutRecord, label_counts, mixed_group_share, round_metrics


def record(reward: float, *labels: Label, category: str = "multi_turn_base") -> RolloutRecord:
    return RolloutRecord("task", category, reward, labels, 0, False, 0.5)


def test_a_record_is_read_from_what_the_agent_loop_wrote() -> None:
    written = {
        "task_id": "multi_turn_base_1",
        "category": "multi_turn_base",
        "reward": 1.0,
        "labels": ["pass", "state_mismatch"],
        "turns": [],
        "interface_version": 4,
        "truncated": False,
        "environment_s": 0.25,
    }
    read = RolloutRecord.from_extra_fields({"seal": written})
    assert read.labels == (Label.PASS, Label.STATE_MISMATCH)
    assert (read.reward, read.interface_version) == (1.0, 4)
    assert read.labeled().category == "multi_turn_base"


def test_only_groups_with_both_outcomes_are_mixed() -> None:
    assert mixed_group_share({"a": [0.0, 1.0, 1.0], "b": [0.0, 0.0], "c": [1.0, 1.0]}) == 1 / 3


def test_metrics_of_a_round() -> None:
    records = [record(1.0, Label.PASS), record(0.0, Label.PASS, Label.INVALID_TOOL_CALL)]
    metrics = round_metrics(records, [1.0, 2.0], w_min=0.5, w_max=2.0)
    assert metrics["seal/pass_rate"] == 0.5
    assert metrics["seal/label/pass"] == 2 / 3
    assert metrics["seal/label/state_mismatch"] == 0.0
    assert metrics["seal/weight/mean"] == 1.5
    assert metrics["seal/weight/clipped_share"] == 0.5


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
