"""Whole groups or none: verl's buffer is replaced below ours, TransferQueue is not needed."""

from typing import Any

import pytest
import transfer_queue as tq
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer

from seal.client import EnvironmentFault
from seal.train.replay import WholeGroupReplayBuffer


@pytest.fixture
def cleared(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    keys: list[str] = []
    monkeypatch.setattr(tq, "kv_clear", lambda keys, partition_id: cleared_keys.extend(keys))
    cleared_keys = keys
    return keys


def buffer_with(
    monkeypatch: pytest.MonkeyPatch, keys: list[str], failed: set[str], max_failed_share: float
) -> WholeGroupReplayBuffer:
    def sample(self: Any, *args: Any, **kwargs: Any) -> tuple[KVBatchMeta, dict[str, Any]]:
        return KVBatchMeta(partition_id="train", keys=keys, tags=[{"key": key} for key in keys]), {}

    monkeypatch.setattr(ReplayBuffer, "sample", sample)
    buffer = WholeGroupReplayBuffer.__new__(WholeGroupReplayBuffer)
    buffer.failure_keys = {"train": failed, "val": failed}
    buffer.sampler_kwargs = {"max_failed_share": max_failed_share}
    return buffer


def test_what_is_left_of_a_failed_group_is_dropped(
    monkeypatch: pytest.MonkeyPatch, cleared: list[str]
) -> None:
    keys = ["a_0_0", "a_1_0", "b_0_0", "c_0_0", "c_1_0"]
    buffer = buffer_with(monkeypatch, keys, {"b"}, max_failed_share=0.5)
    batch, metrics = buffer.sample(global_steps=3, partition_id="train", batch_size=3)
    assert batch.keys == ["a_0_0", "a_1_0", "c_0_0", "c_1_0"]
    assert [tag["key"] for tag in batch.tags] == batch.keys
    assert metrics["seal/dropped_groups"] == 1
    assert cleared == ["b_0_0"]


def test_too_many_failed_groups_end_the_run(
    monkeypatch: pytest.MonkeyPatch, cleared: list[str]
) -> None:
    buffer = buffer_with(monkeypatch, ["a_0_0"], {"b", "c"}, max_failed_share=0.5)
    with pytest.raises(EnvironmentFault, match="2 of 3 groups of step 3"):
        buffer.sample(global_steps=3, partition_id="train", batch_size=3)


def test_a_validation_that_lost_a_rollout_is_no_validation(
    monkeypatch: pytest.MonkeyPatch, cleared: list[str]
) -> None:
    buffer = buffer_with(monkeypatch, ["a_0_0"], {"b"}, max_failed_share=1.0)
    with pytest.raises(EnvironmentFault):
        buffer.sample(global_steps=0, partition_id="val", batch_size=100)


def test_a_whole_batch_passes_untouched(
    monkeypatch: pytest.MonkeyPatch, cleared: list[str]
) -> None:
    buffer = buffer_with(monkeypatch, ["a_0_0", "a_1_0"], set(), max_failed_share=0.0)
    batch, metrics = buffer.sample(global_steps=1, partition_id="train", batch_size=1)
    assert (batch.keys, metrics["seal/dropped_groups"], cleared) == (["a_0_0", "a_1_0"], 0, [])
