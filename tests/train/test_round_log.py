"""The lines of the loop log that a round leaves for each of its rollouts."""

from pathlib import Path
from typing import Any

import torch

from seal.coevolution.interface import INITIAL
from seal.coevolution.labels import Label
from seal.coevolution.weights import WeightConfig
from seal.records.json_lines import LineReader
from seal.records.loop_log import ROLLOUTS, LoopLog, group_of
from seal.train.advantages import PER_DIALOGUE
from seal.train.round import RolloutRecord
from seal.train.round_batch import RoundBatch
from seal.train.round_log import RoundLog
from seal.train.state import LoopState
from seal.wire import TurnDiagnosis

MASKS = {
    # Two messages with an observation of three tokens between them, one message, and nothing.
    "a_0_0": [1, 1, 0, 0, 0, 1],
    "a_1_0": [1, 1, 1],
    "b_0_0": [0],
}


def record(spans: tuple[tuple[int, int, int], ...]) -> RolloutRecord:
    return RolloutRecord(
        task_id="multi_turn_base_1",
        category="multi_turn_base",
        reward=1.0,
        training_reward=1.0,
        turns=(TurnDiagnosis(0, Label.PASS.value, "why", None),),
        interface_version=0,
        interface_shown=True,
        exit_status="completed",
        environment_s=0.1,
        turn_spans=spans,
    )


def logged(folder: Path) -> list[dict[str, Any]]:
    masks = tuple(torch.tensor(mask) for mask in MASKS.values())
    spans = (((0, 0, 2), (0, 5, 6)), ((0, 0, 3),), ())
    batch = RoundBatch(
        partition_id="train",
        keys=list(MASKS),
        records=[record(one) for one in spans],
        advantages=tuple(torch.ones(len(mask)) for mask in masks),
        masks=masks,
        log_probs=None,
    )
    log = RoundLog(LoopLog(folder), WeightConfig(), PER_DIALOGUE)
    log.weighted(3, batch, [[1.0]] * 3, batch.advantages, LoopState(), INITIAL, {})
    return list(LineReader(folder / ROLLOUTS).new())


def test_a_rollouts_line_has_its_group_and_its_lengths(tmp_path: Path) -> None:
    lines = logged(tmp_path)
    assert [(one["uid"], one["group"]) for one in lines] == [(key, group_of(key)) for key in MASKS]
    assert [one["group"] for one in lines] == ["a", "a", "b"]
    assert [one["policy_tokens"] for one in lines] == [3, 3, 0]
    assert [one["response_tokens"] for one in lines] == [6, 3, 1]
    # The policy's tokens are those of its messages.
    for one in lines:
        assert one["policy_tokens"] == sum(end - start for _, start, end in one["turn_spans"])
