"""Entry point of the training process: `python -m seal.train.main CONFIG.yaml`.

The launcher composes the recipe, writes the resolved configuration and starts this module; it
does what verl's own entry point does, with our trainer registered in the task runner.
"""

import argparse

import ray
from omegaconf import DictConfig, OmegaConf
from verl.trainer.main_ppo import TaskRunnerV1, run_ppo
from verl.trainer.ppo.utils import need_critic, need_reference_policy
from verl.utils.config import validate_config


@ray.remote(num_cpus=1)
class SealTaskRunner(TaskRunnerV1.__ray_metadata__.modified_class):
    """verl's task runner; importing the trainer module there registers the trainer."""

    def run(self, config: DictConfig) -> None:
        """Train with the resolved configuration."""
        import seal.train.trainer  # noqa: F401

        super().run(config)


def main() -> None:
    """Read the configuration and train."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("config", help="resolved configuration, a YAML file")
    config = OmegaConf.load(parser.parse_args().config)
    OmegaConf.set_struct(config, True)
    validate_config(config, need_reference_policy(config), need_critic(config))
    run_ppo(config, SealTaskRunner)


if __name__ == "__main__":
    main()
