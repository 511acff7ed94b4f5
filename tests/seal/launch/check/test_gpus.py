from dataclasses import replace

import pytest
from check_material import CLUSTER, GIB, H100, MACHINE, QWEN_7B, machine, said
from omegaconf import DictConfig
from project_folder import ROOT

from seal.launch.check import gpus
from seal.launch.check.finding import Level
from seal.launch.gpus import Gpus
from seal.launch.recipe import load_recipe

CHECKS = (gpus.number, gpus.driver, gpus.capability, gpus.free_memory, gpus.planned_memory)


def test_a_machine_that_has_all_is_fine(seal: DictConfig) -> None:
    for check in CHECKS:
        said(check(seal, MACHINE, QWEN_7B), Level.OK)


def test_a_recipe_for_the_processor_asks_nothing_of_gpus(quick: DictConfig) -> None:
    bare = machine(gpus=Gpus(unknown="no driver"), gpu_files=0, torch_cuda=None)
    assert [one for check in CHECKS for one in check(quick, bare, QWEN_7B)] == []


def test_a_cluster_has_its_gpus_elsewhere(seal: DictConfig) -> None:
    login = replace(CLUSTER, gpus=Gpus(unknown="no driver"), gpu_files=0)
    seal.trainer.nnodes = 2
    found = [one for check in CHECKS for one in check(seal, login, QWEN_7B)]
    assert [one.subject for one in found] == ["torch"]


def test_no_gpu(seal: DictConfig) -> None:
    found = gpus.number(seal, machine(gpus=Gpus(unknown="no driver"), gpu_files=0), QWEN_7B)
    text = said(found, Level.ERROR)
    assert "asks for 4" in text and "(no driver)" in text and "exp/quickstart.yaml" in text


def test_fewer_gpus_than_the_recipe_asks_for(seal: DictConfig) -> None:
    text = said(gpus.number(seal, machine(gpus=Gpus((H100,) * 2)), QWEN_7B), Level.ERROR)
    assert "CUDA sees 2" in text and "trainer.n_gpus_per_node=2" in text


def test_gpus_that_nvml_cannot_be_asked_about_may_work(seal: DictConfig) -> None:
    hidden = Gpus(unknown="NVML says: Shared Library Not Found")
    text = said(gpus.number(seal, machine(gpus=hidden), QWEN_7B), Level.WARNING)
    assert "/dev has 4" in text and "Shared Library Not Found" in text
    said(gpus.number(seal, machine(gpus=hidden, gpu_files=2), QWEN_7B), Level.ERROR)
    # Nothing more is said of what is not known.
    assert list(gpus.capability(seal, machine(gpus=hidden), QWEN_7B)) == []
    assert list(gpus.free_memory(seal, machine(gpus=hidden), QWEN_7B)) == []


def test_several_nodes_without_a_cluster(seal: DictConfig) -> None:
    seal.trainer.nnodes = 2
    nodes, number = gpus.number(seal, MACHINE, QWEN_7B)
    assert "trainer.nnodes=2" in said([nodes], Level.ERROR) and "RAY_ADDRESS" in nodes.message
    said([number], Level.OK)


def test_a_torch_without_cuda(seal: DictConfig) -> None:
    bare = machine(torch="2.13.0+cpu", torch_cuda=None)
    text = said(gpus.driver(seal, bare, QWEN_7B), Level.ERROR)
    assert "2.13.0+cpu" in text and "install.sh --cuda" in text


@pytest.mark.parametrize(
    ("built", "runs", "level"),
    [
        ("13.0", (12, 8), Level.ERROR),
        ("13.0", (13, 0), Level.OK),
        # Within a major version newer CUDA runs on older drivers.
        ("12.9", (12, 4), Level.OK),
        ("12.9", (13, 1), Level.OK),
    ],
)
def test_the_driver_runs_the_cuda_of_torch(
    seal: DictConfig, built: str, runs: tuple[int, int], level: Level
) -> None:
    here = machine(gpus=Gpus((H100,) * 4, "570.86.10", runs), torch_cuda=built)
    text = said(gpus.driver(seal, here, QWEN_7B), level)
    assert "570.86.10" in text and f"CUDA {built}" in text
    assert ("580.65 or newer" in text) is (level is Level.ERROR)


def test_gpus_without_bfloat16(seal: DictConfig) -> None:
    v100 = replace(H100, name="Tesla V100", capability=(7, 0))
    text = said(gpus.capability(seal, machine(gpus=Gpus((H100, v100))), QWEN_7B), Level.ERROR)
    assert "Tesla V100 has compute capability 7.0" in text


@pytest.mark.parametrize(
    ("free", "level"), [(79, Level.OK), (70, Level.WARNING), (40, Level.ERROR)]
)
def test_gpus_that_others_use(seal: DictConfig, free: int, level: Level) -> None:
    used = replace(H100, free_bytes=free * GIB)
    text = said(gpus.free_memory(seal, machine(gpus=Gpus((H100, used))), QWEN_7B), level)
    assert f"{free} of 80 GiB free" in text
    assert ("takes 60% of each" in text) is (level is Level.ERROR)


def test_memory_that_the_rollout_engine_takes_too_much_of(seal: DictConfig) -> None:
    key = "actor_rollout_ref.rollout.gpu_memory_utilization"
    seal.actor_rollout_ref.rollout.gpu_memory_utilization = 0.85
    text = said(gpus.planned_memory(seal, MACHINE, QWEN_7B), Level.ERROR)
    largest = float(text.split(f"set {key}=")[1].split(",")[0])
    seal.actor_rollout_ref.rollout.gpu_memory_utilization = largest
    said(gpus.planned_memory(seal, MACHINE, QWEN_7B), Level.OK)


def test_a_model_that_no_share_fits_with(seal: DictConfig) -> None:
    seal.trainer.n_gpus_per_node = 1
    text = said(gpus.planned_memory(seal, MACHINE, QWEN_7B), Level.ERROR)
    assert "no actor_rollout_ref.rollout.gpu_memory_utilization fits" in text
    group = text.split("+machine=")[1].split()[0]
    fits = load_recipe(ROOT / "exp/SEAL.yaml", [f"+machine={group}"])
    said(gpus.planned_memory(fits, MACHINE, QWEN_7B), Level.OK)


def test_memory_that_cannot_be_planned(seal: DictConfig) -> None:
    unknown = replace(QWEN_7B, path="some/model", config={})
    text = said(gpus.planned_memory(seal, MACHINE, unknown), Level.WARNING)
    assert "sizes of some/model are not known" in text
    other = replace(QWEN_7B, config={**QWEN_7B.config, "model_type": "gpt2"})
    assert "'gpt2'" in said(gpus.planned_memory(seal, MACHINE, other), Level.WARNING)
    known = replace(QWEN_7B, path="Qwen/Qwen2.5-7B-Instruct", folder=None, config={})
    said(gpus.planned_memory(seal, MACHINE, known), Level.OK)
    seal.actor_rollout_ref.model.lora_rank = 32
    assert "lora_rank" in said(gpus.planned_memory(seal, MACHINE, QWEN_7B), Level.WARNING)
