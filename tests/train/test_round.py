"""The lines of the loop log that a round leaves for each of its rollouts."""

from pathlib import Path
from typing import Any

import torch
from labelled import rollout

from seal.coevolution.interface import INITIAL
from seal.coevolution.weights import WeightConfig
from seal.labels import Label
from seal.records.json_lines import LineReader
from seal.records.loop_log import ROLLOUTS, LoopLog, group_of
from seal.train.advantages import PER_DIALOGUE
from seal.train.round import RoundBatch, RoundLog
from seal.train.state import LoopState

MASKS = {
    # Two messages with an observation of three tokens between them, one message, and nothing.
    "a_0_0": [1, 1, 0, 0, 0, 1],
    "a_1_0": [1, 1, 1],
    "b_0_0": [0],
}


def logged(folder: Path) -> list[dict[str, Any]]:
    masks = tuple(torch.tensor(mask) for mask in MASKS.values())
    spans = (((0, 0, 2), (0, 5, 6)), ((0, 0, 3),), ())
    batch = RoundBatch(
        partition_id="train",
        keys=list(MASKS),
        rollouts=[rollout([Label.PASS], 1.0, turn_spans=messages) for messages in spans],
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
