"""Whole groups or none: verl's buffer is replaced below ours, TransferQueue is not needed."""

from pathlib import Path
from typing import Any

import pytest
import transfer_queue as tq
from omegaconf import OmegaConf
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer

from seal.environment.client import EnvironmentFault
from seal.train.replay import WholeGroupReplayBuffer

RECIPE = Path(__file__).resolve().parents[2] / "exp/SEAL.yaml"


@pytest.fixture
def cleared(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    gone: list[str] = []
    monkeypatch.setattr(tq, "kv_clear", lambda keys, partition_id: gone.extend(keys))
    return gone


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


def test_a_group_that_lost_all_its_rollouts_is_counted_although_nothing_is_left_of_it(
    monkeypatch: pytest.MonkeyPatch, cleared: list[str]
) -> None:
    keys = ["a_0_0", "a_1_0", "c_0_0", "c_1_0", "d_0_0", "d_1_0"]
    buffer = buffer_with(monkeypatch, keys, {"b"}, max_failed_share=0.25)
    batch, metrics = buffer.sample(global_steps=3, partition_id="train", batch_size=4)
    assert batch.keys == keys
    assert (metrics["seal/dropped_groups"], cleared) == (1, [])


def test_a_group_is_found_by_its_whole_id(
    monkeypatch: pytest.MonkeyPatch, cleared: list[str]
) -> None:
    """Keys are uid_session_index: b is not b2, and session 1 of a is not group 1."""
    keys = ["a_1_0", "b2_0_0", "b_0_0"]
    buffer = buffer_with(monkeypatch, keys, {"b", "1"}, max_failed_share=1.0)
    batch, _ = buffer.sample(global_steps=3, partition_id="train", batch_size=4)
    assert (batch.keys, cleared) == (["a_1_0", "b2_0_0"], ["b_0_0"])


def test_too_many_failed_groups_end_the_run(
    monkeypatch: pytest.MonkeyPatch, cleared: list[str]
) -> None:
    # Two of four is the share that is allowed; three are too many.
    buffer = buffer_with(monkeypatch, ["a_0_0"], {"b", "c"}, max_failed_share=0.5)
    _, metrics = buffer.sample(global_steps=3, partition_id="train", batch_size=4)
    assert metrics["seal/dropped_groups"] == 2
    buffer = buffer_with(monkeypatch, ["a_0_0"], {"b", "c", "d"}, max_failed_share=0.5)
    with pytest.raises(
        EnvironmentFault,
        match=r"3 of 4 groups of step 3 \(train\) lost rollouts; a share of 0.5 is allowed "
        r"\(trainer.env_failure.max_share\)",
    ):
        buffer.sample(global_steps=3, partition_id="train", batch_size=4)


def test_the_share_that_the_message_names_is_the_recipe_s() -> None:
    recipe = OmegaConf.load(RECIPE)
    recipe.trainer.env_failure.max_share = 0.125
    assert recipe.trainer.v1.sampler.sampler_kwargs == {"max_failed_share": 0.125}


def test_a_validation_that_lost_a_rollout_is_no_validation(
    monkeypatch: pytest.MonkeyPatch, cleared: list[str]
) -> None:
    buffer = buffer_with(monkeypatch, ["a_0_0"], {"b"}, max_failed_share=1.0)
    with pytest.raises(EnvironmentFault, match="1 of 100 groups .*a validation may lose none"):
        buffer.sample(global_steps=0, partition_id="val", batch_size=100)


def test_a_whole_batch_passes_untouched(
    monkeypatch: pytest.MonkeyPatch, cleared: list[str]
) -> None:
    buffer = buffer_with(monkeypatch, ["a_0_0", "a_1_0"], set(), max_failed_share=0.0)
    batch, metrics = buffer.sample(global_steps=1, partition_id="train", batch_size=1)
    assert (batch.keys, metrics["seal/dropped_groups"], cleared) == (["a_0_0", "a_1_0"], 0, [])


def test_progress_is_told_when_more_prompts_have_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    statuses = iter(
        [
            {"running": "ab", "pending": "c"},
            {"running": "b", "pending": "c", "finished": "a"},
            {"running": "b", "pending": "c", "finished": "a"},
            {"running": "c", "finished": "a", "failure": "b"},
        ]
    )
    listed: dict[str, dict[str, dict[str, Any]]] = {}

    def polled() -> dict[str, dict[str, dict[str, Any]]]:
        listed["val"] = {
            prompt: {"is_prompt": True, "global_steps": 0, "status": status}
            for status, prompts in next(statuses).items()
            for prompt in prompts
        }
        return listed

    monkeypatch.setattr(tq, "kv_list", polled)
    monkeypatch.setattr("seal.train.replay.PROGRESS_EVERY_S", 0.0)
    config = OmegaConf.create({})
    buffer = WholeGroupReplayBuffer("sync", config, None, "drop", config)
    told: list[tuple[int, int]] = []
    buffer.on_progress = lambda ended, of: told.append((ended, of))
    for _ in range(4):
        buffer._sync_metadata_from_transfer_queue()
    assert told == [(1, 3), (2, 3)]
