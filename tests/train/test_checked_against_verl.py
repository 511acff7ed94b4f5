"""What the launcher checks before a start, held against verl and Ray themselves."""

import copy
import os
import subprocess
import sys
from pathlib import Path

import pytest
from check_material import MACHINE, QWEN_7B
from hydra.errors import InstantiationException
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import DictConfig, OmegaConf
from verl.trainer.ppo.utils import need_reference_policy
from verl.utils.config import validate_config

from seal.launch.check.batches import batches
from seal.launch.check.finding import Level
from seal.launch.check.host import has_reference, processors_needed
from seal.launch.recipe import EXP, load_recipe

SIZES = st.integers(1, 12)
KEYS = {
    "trainer.n_gpus_per_node": st.integers(1, 5),
    "trainer.nnodes": st.integers(1, 2),
    "data.train_batch_size": SIZES,
    "actor_rollout_ref.rollout.n": st.integers(1, 4),
    "actor_rollout_ref.actor.ppo_mini_batch_size": SIZES,
    "actor_rollout_ref.actor.use_dynamic_bsz": st.booleans(),
    "actor_rollout_ref.actor.use_kl_loss": st.booleans(),
    "actor_rollout_ref.actor.ulysses_sequence_parallel_size": st.integers(1, 2),
    "actor_rollout_ref.model.use_remove_padding": st.booleans(),
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu": st.sampled_from([None, 1]),
    "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu": st.sampled_from([None, 1]),
    "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu": st.sampled_from([None, 1]),
    "actor_rollout_ref.ref.log_prob_micro_batch_size": st.sampled_from([None, 1]),
}


@pytest.fixture(scope="module")
def seal() -> DictConfig:
    return load_recipe(EXP / "SEAL.yaml", [])


@settings(max_examples=150, deadline=None)
@given(changed=st.fixed_dictionaries(KEYS))
def test_whatever_verl_refuses_is_refused_before(
    seal: DictConfig, changed: dict[str, object]
) -> None:
    recipe = copy.deepcopy(seal)
    for key, value in changed.items():
        OmegaConf.update(recipe, key, value)
    assert has_reference(recipe) == need_reference_policy(recipe)
    try:
        validate_config(recipe, need_reference_policy(recipe), False)
    except (AssertionError, ValueError, InstantiationException) as refused:
        found = list(batches(recipe, MACHINE, QWEN_7B))
        assert any(one.level is Level.ERROR for one in found), refused


PLACED = """import sys, time
import ray, transfer_queue as tq
from omegaconf import OmegaConf
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as OnNode
from verl.trainer.ppo.utils import Role
from verl.single_controller.ray.base import ResourcePoolManager

cpus, gpus, config = int(sys.argv[1]), int(sys.argv[2]), OmegaConf.load(sys.argv[3])
ray.init(num_cpus=cpus, num_gpus=gpus, include_dashboard=False, address="local",
         object_store_memory=100_000_000, log_to_driver=False)

@ray.remote(num_cpus=1)
class Runner:  # as seal.train.main has it
    def go(self, gpus, config):
        config.enable = True
        tq.init(config)
        pools = ResourcePoolManager({"global_pool": [gpus]}, {Role.ActorRollout: "global_pool"})
        pools.create_resource_pool()
        pools.resource_pool_dict["global_pool"].get_placement_groups()
        here = ray.get_runtime_context().get_node_id()
        loop = Loop.options(scheduling_strategy=OnNode(here, soft=True)).remote()
        return ray.get(loop.go.remote(config))

@ray.remote
class Loop:  # an agent loop: it reserves nothing
    def go(self, config):
        return "placed"

print(ray.get(Runner.remote().go.remote(gpus, config), timeout=float(sys.argv[4])))
"""


@pytest.mark.slow
@pytest.mark.parametrize(("short", "patience_s"), [(0, 120.0), (1, 30.0)])
def test_ray_places_a_run_on_the_processors_that_are_asked_for(
    seal: DictConfig, tmp_path: Path, short: int, patience_s: float
) -> None:
    recipe = copy.deepcopy(seal)
    recipe.trainer.n_gpus_per_node = 2
    recipe.transfer_queue.backend.SimpleStorage.num_data_storage_units = 2
    OmegaConf.save(recipe.transfer_queue, tmp_path / "queue.yaml")
    (tmp_path / "placed.py").write_text(PLACED)
    cpus = processors_needed(recipe) - short
    done = subprocess.run(
        [
            sys.executable,
            "-W",
            "ignore",
            "placed.py",
            f"{cpus}",
            "2",
            "queue.yaml",
            f"{patience_s}",
        ],
        cwd=tmp_path,
        env={**os.environ, "RAY_USAGE_STATS_ENABLED": "0"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    if short:
        assert "GetTimeoutError" in done.stderr, done.stderr
    else:
        assert done.stdout.splitlines()[-1] == "placed", done.stderr
