"""The training process joins a Ray that runs already, or starts its own: without training."""

import json
import secrets
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from seal.launch.processes import Family, tail
from seal.launch.recipe import load_recipe

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.e2e

# seal.train.main, with a task runner that looks around instead of training.
LOOKS_AROUND = """
import json, os, sys
import ray
from omegaconf import OmegaConf
from verl.trainer.main_ppo import run_ppo
from seal.train.errors import TrainingError
from seal.train.main import ray_settings, wait_for_queue

@ray.remote
class Other:
    def here(self):
        return True

@ray.remote(num_cpus=1)
class Runner:
    def run(self, config):
        import seal.train.node, seal.wire
        wait_for_queue(0.0)
        other = Other.options(name="TransferQueueController", namespace="transfer_queue").remote()
        ray.get(other.here.remote())
        try:
            wait_for_queue(1.0)
            busy = False
        except TrainingError:
            busy = True
        ray.kill(other)
        wait_for_queue()
        found = {
            "address": ray.get_runtime_context().gcs_address,
            "cwd": os.getcwd(),
            "environment": dict(os.environ),
            "busy": busy,
            "modules": [seal.train.node.__file__, seal.wire.__file__],
        }
        with open(config.out, "w") as file:
            json.dump(found, file)

config = OmegaConf.load(sys.argv[1])
config.ray_kwargs.ray_init = ray_settings(config, os.environ)
config.out = sys.argv[2]
run_ppo(config, Runner)
"""


@pytest.fixture
def elsewhere() -> Iterator[Path]:
    """A folder with a short path: Ray's sockets need one."""
    folder = Path(tempfile.mkdtemp(prefix="ray", dir="/tmp"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def head(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A Ray that somebody started in another folder, with token authentication; its address."""
    (elsewhere / "token").write_text(secrets.token_hex(32))
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(elsewhere / "token"))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ray = str(Path(sys.executable).with_name("ray"))
    command = [ray, "start", "--head", f"--port={port}", "--node-ip-address=127.0.0.1"]
    command += ["--num-cpus=4", "--include-dashboard=false", f"--temp-dir={elsewhere}/ray"]
    family = Family()
    environment = {"PYTHONPATH": "", "RAY_USAGE_STATS_ENABLED": "0"}
    log = elsewhere / "head.log"
    try:
        # Ray gives a node 30 seconds to come up, which a busy machine may not have: then again.
        for _ in range(3):
            if family.start(command, log, environment, elsewhere).wait(timeout=180) == 0:
                break
            assert "timed out during startup" in tail(log), tail(log)
            assert family.end() == []
        else:
            pytest.fail(tail(log))
        before = {process.pid for process in family.members()}
        yield f"127.0.0.1:{port}"
        # Nothing of what was there has been ended.
        assert before <= {process.pid for process in family.members()}
    finally:
        assert family.end() == []


def look_around(folder: Path, environment: dict[str, str]) -> dict[str, Any]:
    """Run the program above as the launcher runs the training process; what it found."""
    recipe = load_recipe(ROOT / "exp/quickstart.yaml", ["ray_kwargs.ray_init.num_cpus=4"])
    OmegaConf.save(recipe, folder / "config.yaml")
    (folder / "look.py").write_text(LOOKS_AROUND)
    given = {key: str(value) for key, value in recipe.launcher.environment.items()}
    given |= {"TENSORBOARD_DIR": "/there", "HYDRA_FULL_ERROR": "1", "PYTHONPATH": str(ROOT)}
    family = Family()
    command = [sys.executable, str(folder / "look.py"), str(folder / "config.yaml")]
    looks = family.start(
        [*command, str(folder / "found.json")], folder / "log", {**given, **environment}, ROOT
    )
    try:
        assert looks.wait(timeout=400) == 0, tail(folder / "log", 40)
    finally:
        assert family.end() == []
        assert family.members() == []
    found: dict[str, Any] = json.loads((folder / "found.json").read_text())
    assert found["cwd"] == str(ROOT)
    assert found["busy"] is True
    assert all(path.startswith(str(ROOT)) for path in found["modules"])
    for name in ("VERL_PLATFORM", "VLLM_CPU_KVCACHE_SPACE", "TENSORBOARD_DIR", "HYDRA_FULL_ERROR"):
        assert found["environment"][name] == given[name]
    return found


def port_of(address: str) -> int:
    return int(address.rsplit(":", 1)[1])


def test_it_joins_a_cluster_and_leaves_it_running(head: str, tmp_path: Path) -> None:
    # A second run finds it as the first one did.
    for _ in range(2):
        found = look_around(tmp_path, {"RAY_ADDRESS": head})
        assert port_of(found["address"]) == port_of(head)


def test_without_an_address_it_starts_its_own_and_ends_it(head: str, tmp_path: Path) -> None:
    # As if the other one had been started by this user on this machine.
    found = look_around(tmp_path, {"RAY_ADDRESS": ""})
    assert port_of(found["address"]) != port_of(head)
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port_of(found["address"]))) != 0
