"""The lines of the loop log that a round leaves for each of its rollouts."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from labelled import rollout

from seal.coevolution.drawing import Drawing
from seal.coevolution.interface import INITIAL
from seal.coevolution.weights import WeightConfig
from seal.labels import Label
from seal.records.json_lines import LineReader
from seal.records.loop_log import ROLLOUTS, ROUNDS, LoopLog, group_of
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


def test_a_rounds_line_tells_the_sources_apart_and_has_the_scores(tmp_path: Path) -> None:
    tasks = ["multi_turn_base_1", "multi_turn_base_1", "synthetic_some_000001_1"]
    batch = RoundBatch(
        partition_id="train",
        keys=list(MASKS),
        rollouts=[rollout([Label.PASS], 1.0, task_id=task) for task in tasks],
        advantages=(torch.ones(1),) * 3,
        masks=(torch.ones(1),) * 3,
        log_probs=None,
    )
    log = RoundLog(LoopLog(tmp_path), WeightConfig(), PER_DIALOGUE)
    metrics: dict[str, Any] = {}
    before = LoopState(drawing=Drawing("hash", scores={Label.STATE_MISMATCH: 1.0}))
    after = LoopState(drawing=Drawing("hash", scores={Label.MISSING_TOOL_CALL: 1.0}))
    log.weighted(1, batch, [[1.0]] * 3, batch.advantages, before, INITIAL, metrics)
    log.evolved(after, INITIAL.to_reply(), 1)
    (line,) = LineReader(tmp_path / ROUNDS).new()
    assert (line["scores"], line["next_scores"]) == (
        {"state_mismatch": 1.0},
        {"missing_tool_call": 1.0},
    )
    assert [(name, of["groups"]) for name, of in line["sources"].items()] == [
        ("real", 1),
        ("synthetic", 1),
    ]
    assert metrics["seal/synthetic/pass_rate"] == metrics["seal/real/pass_rate"] == 1.0
    # Without a pool there is nothing of it.
    (tmp_path / ROUNDS).unlink()
    real = replace(batch, rollouts=[rollout([Label.PASS], 1.0)] * 3)
    metrics.clear()
    log.weighted(1, real, [[1.0]] * 3, real.advantages, LoopState(), INITIAL, metrics)
    log.evolved(LoopState(), INITIAL.to_reply(), 1)
    (line,) = LineReader(tmp_path / ROUNDS).new()
    assert line["sources"] == line["scores"] == line["next_scores"] == {}
    assert not any("synthetic" in name or "/real/" in name for name in metrics)
