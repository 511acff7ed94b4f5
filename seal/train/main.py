"""Entry point of the training process: `python -m seal.train.main CONFIG.yaml`.

The launcher composes the recipe, writes the resolved configuration and starts this module. It does
the same as verl's own entry point, but registers our trainer in the task runner, and uses either a
new Ray or the running cluster that RAY_ADDRESS names.
"""

import argparse
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ray
from omegaconf import DictConfig, OmegaConf
from verl.trainer.main_ppo import TaskRunnerV1, run_ppo
from verl.trainer.ppo.utils import need_critic, need_reference_policy
from verl.utils.config import validate_config

from seal import ROOT
from seal.backbone.prompt_budget import check_prompts
from seal.records.loop_log import LoopLog
from seal.settings.sections import read_settings
from seal.train.cpu.fork_server import worker_command
from seal.train.errors import TrainingError

OF_A_NEW_RAY = (
    "num_cpus",
    "num_gpus",
    "resources",
    "labels",
    "object_store_memory",
    "include_dashboard",
)
"""Settings of ray.init for a new Ray; a running one refuses them."""
FORWARDED = ("HYDRA_FULL_ERROR", "TENSORBOARD_DIR", "VERL_FILE_LOGGER_PATH")
"""Variables that the launcher sets and that workers on every node need. None is a secret, because
verl prints them. Those of the recipe (`launcher.environment`) are passed on, too."""
QUEUE_WAIT_S = 60.0


def ray_settings(config: DictConfig, environment: Mapping[str, str]) -> dict[str, Any]:
    """Arguments of `ray.init`: the address, and what the workers of every node get.

    Args:
        config: Resolved recipe.
        environment: Of the training process. RAY_ADDRESS names a running cluster. Without it, and
            without `ray_kwargs.ray_init.address`, a new Ray is started on this machine, even if
            another one runs there.
    """
    settings: dict[str, Any] = {**config.ray_kwargs.ray_init}
    address = environment.get("RAY_ADDRESS") or settings.get("address") or "local"
    if address != "local":
        settings = {key: value for key, value in settings.items() if key not in OF_A_NEW_RAY}
    names = (*FORWARDED, *config.launcher.environment)
    variables = {name: environment[name] for name in names if name in environment}
    # Workers import this project from the same folder on every node.
    python_path = environment.get("PYTHONPATH")
    variables["PYTHONPATH"] = os.pathsep.join([str(ROOT), *([python_path] if python_path else [])])
    runtime: Mapping[str, Any] = settings.get("runtime_env") or {}
    return {
        **settings,
        "address": address,
        "runtime_env": {
            **runtime,
            "env_vars": {**variables, **(runtime.get("env_vars") or {})},
            "worker_process_setup_hook": "seal.train.node.enter_project_folder",
        },
    }


def wait_for_queue(patience_s: float = QUEUE_WAIT_S) -> None:
    """Wait until no other run has its queue on this Ray cluster; a run takes time to end.

    The controller of TransferQueue has a fixed name, so two runs would share one controller.

    Raises:
        TrainingError: The other queue is still there.
    """
    deadline = time.monotonic() + patience_s
    while True:
        try:
            ray.get_actor("TransferQueueController", namespace="transfer_queue")
        except ValueError:  # Ray's answer if there is none
            return
        if time.monotonic() > deadline:
            raise TrainingError(
                "another run uses this Ray cluster, and a cluster takes one run at a time; wait "
                "until it ends, or use another cluster (RAY_ADDRESS)"
            )
        time.sleep(1.0)


@ray.remote(num_cpus=1)
class SealTaskRunner(TaskRunnerV1.__ray_metadata__.modified_class):
    """verl's task runner; importing the trainer module there registers the trainer."""

    def run(self, config: DictConfig) -> None:
        """Train with the resolved configuration."""
        import seal.train.trainer  # noqa: F401

        wait_for_queue()
        super().run(config)


def main() -> None:
    """Read the configuration and train."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("config", help="resolved configuration, a YAML file")
    parser.add_argument("--fork-server", help="address of a seal.train.cpu.fork_server")
    args = parser.parse_args()
    config = OmegaConf.load(args.config)
    assert isinstance(config, DictConfig)
    settings = ray_settings(config, os.environ)
    runtime = settings["runtime_env"]
    # A recipe's own program comes first.
    if args.fork_server is not None and runtime.get("py_executable") is None:
        runtime["py_executable"] = worker_command(args.fork_server)
    config.ray_kwargs.ray_init = settings
    OmegaConf.set_struct(config, True)
    validate_config(config, need_reference_policy(config), need_critic(config))
    log = LoopLog(Path(read_settings(config).seal.loop_dir))
    log.phase("prompts", 0)
    check_prompts(config)
    log.phase("start", 0)
    try:
        run_ppo(config, SealTaskRunner)
    except ConnectionError as error:
        if ray.is_initialized():
            raise
        raise ConnectionError(
            f"{error}; if the cluster was started with token authentication, set "
            "RAY_AUTH_MODE=token here, too (docs/running.md)"
        ) from error


if __name__ == "__main__":
    main()
