from dataclasses import replace
from pathlib import Path

import pytest
from check_material import CLUSTER, MACHINE, QWEN_7B, machine, said
from omegaconf import DictConfig
from project_folder import make_checkpoint

from seal.launch import folders
from seal.launch.check import host
from seal.launch.check.finding import Level

GB = 10**9


@pytest.mark.parametrize(("gpus", "needed"), [(1, 13), (4, 22), (8, 34)])
def test_processors_that_ray_reserves(seal: DictConfig, gpus: int, needed: int) -> None:
    seal.trainer.n_gpus_per_node = gpus
    said(host.processors(seal, machine(cpus=needed), QWEN_7B), Level.OK)
    text = said(host.processors(seal, machine(cpus=needed - 1), QWEN_7B), Level.ERROR)
    assert f"Ray reserves {needed}: 10 for the queue" in text


def test_what_is_named_against_too_few_processors_helps(seal: DictConfig) -> None:
    few = machine(cpus=15)
    text = said(host.processors(seal, few, QWEN_7B), Level.ERROR)
    assert "num_data_storage_units=1" in text and "num_cpus=22" in text
    seal.transfer_queue.backend.SimpleStorage.num_data_storage_units = 1
    said(host.processors(seal, few, QWEN_7B), Level.OK)
    seal.transfer_queue.backend.SimpleStorage.num_data_storage_units = 8
    seal.ray_kwargs.ray_init.num_cpus = 22
    assert "22 by ray_kwargs" in said(host.processors(seal, few, QWEN_7B), Level.OK)
    # What Ray is told counts, also where it is less than there is.
    seal.ray_kwargs.ray_init.num_cpus = 21
    said(host.processors(seal, MACHINE, QWEN_7B), Level.ERROR)


def test_a_cluster_has_its_own_processors_and_memory(seal: DictConfig) -> None:
    login = replace(CLUSTER, cpus=2, memory_bytes=GB, shared_memory_bytes=0)
    for check in (host.processors, host.memory, host.shared_memory):
        assert list(check(seal, login, QWEN_7B)) == []


def test_memory_while_the_weights_are_loaded(seal: DictConfig) -> None:
    # Float32 weights on one rank, beside as many of the reference policy.
    needed = 2 * 4 * 7_615_616_512
    said(host.memory(seal, machine(memory_bytes=needed), QWEN_7B), Level.OK)
    text = said(host.memory(seal, machine(memory_bytes=needed - 1), QWEN_7B), Level.ERROR)
    assert "60.9 GB" in text and "30.5 for the reference" in text
    seal.actor_rollout_ref.ref.fsdp_config.model_dtype = "bf16"
    said(host.memory(seal, machine(memory_bytes=needed * 3 // 4), QWEN_7B), Level.OK)
    seal.actor_rollout_ref.actor.use_kl_loss = False
    said(host.memory(seal, machine(memory_bytes=needed // 2), QWEN_7B), Level.OK)
    # With a tied embedding every rank loads them.
    tied = replace(QWEN_7B, config={"tie_word_embeddings": True})
    said(host.memory(seal, machine(memory_bytes=2 * needed - 1), tied), Level.ERROR)
    # Nothing is said of a model whose size is not known.
    assert list(host.memory(seal, machine(memory_bytes=0), replace(QWEN_7B, parameters=None))) == []


def test_little_shared_memory(seal: DictConfig, quick: DictConfig) -> None:
    docker = machine(shared_memory_bytes=64 * 1024**2)
    text = said(host.shared_memory(seal, docker, QWEN_7B), Level.WARNING)
    assert "0.1 GB free" in text and "takes 10.0" in text and "--shm-size=11g" in text
    said(host.shared_memory(seal, machine(shared_memory_bytes=10 * GB), QWEN_7B), Level.OK)
    # The quickstart's store has 0.3 GB.
    said(host.shared_memory(quick, docker, QWEN_7B), Level.WARNING)
    said(host.shared_memory(quick, machine(shared_memory_bytes=3 * 10**8), QWEN_7B), Level.OK)


def test_few_open_files(seal: DictConfig) -> None:
    said(host.open_files(seal, MACHINE, QWEN_7B), Level.OK)
    assert "4096" in said(host.open_files(seal, machine(open_files=4096), QWEN_7B), Level.WARNING)


def test_a_nearly_full_disk(quick: DictConfig) -> None:
    unknown = replace(QWEN_7B, parameters=None)
    said(host.disk(quick, MACHINE, unknown), Level.OK)
    text = said(
        host.disk(quick, machine(disk_bytes=host.FREE_DISK_BYTES - 1), unknown), Level.ERROR
    )
    assert "at least 2 GiB" in text


@pytest.mark.parametrize(
    ("free", "level"),
    [(366, Level.OK), (365, Level.WARNING), (275, Level.WARNING), (274, Level.ERROR)],
)
def test_disk_for_the_checkpoints_of_a_7b_model(seal: DictConfig, free: int, level: Level) -> None:
    # Best, last and the one that is being saved, of 12 to 16 bytes a parameter.
    text = said(host.disk(seal, machine(checkpoint_disk_bytes=free * GB), QWEN_7B), level)
    assert "3 of 7,616 million parameters take 274.2 to 365.5 GB" in text


def test_checkpoints_at_once(
    seal: DictConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert host.checkpoints_at_once(seal) == 3
    seal.seal.checkpoints.keep_best = False
    assert host.checkpoints_at_once(seal) == 2
    seal.seal.checkpoints.keep_last = None
    # 400 tasks, 32 a step: 12 steps an epoch, 6 epochs, one every 10 and after the last.
    assert host.checkpoints_at_once(seal) == 8
    seal.trainer.total_training_steps = 20
    assert host.checkpoints_at_once(seal) == 2
    seal.trainer.save_freq = -1
    assert host.checkpoints_at_once(seal) == 0
    assert "GB free" in said(host.disk(seal, machine(checkpoint_disk_bytes=0), QWEN_7B), Level.OK)


def test_a_resumed_run_has_checkpoints_already(
    seal: DictConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folders, "ROOT", tmp_path)
    seal.trainer.total_training_steps = 72
    for step in (10, 20):
        make_checkpoint(tmp_path, step, name="SEAL")
    # Set aside where the run starts anew.
    assert host.checkpoints_at_once(seal) == 3
    seal.trainer.resume_mode = "auto"
    assert host.checkpoints_at_once(seal) == 1


def test_adapters_are_saved_with_the_weights_alone(seal: DictConfig) -> None:
    seal.actor_rollout_ref.model.lora_rank = 32
    text = said(host.disk(seal, MACHINE, QWEN_7B), Level.OK)
    assert "take 91.4 to 182.8 GB" in text
