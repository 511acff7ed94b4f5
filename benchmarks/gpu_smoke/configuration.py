"""Which model and settings are measured: configurations of the recipe and of verl's own loop.

In: a size and the command line's overrides. Out: a `Case`; the configuration of verl's own loop.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from seal.launch.recipe import EXP, load_recipe

RECIPE = EXP / "SEAL.yaml"
MODELS = Path("experiments/gpu_smoke_models")
REAL = "smollm2"
"""The size whose weights were learned; those of the others are drawn at random."""
SMOLLM2 = Path("models/smollm2-135m")
# SmolLM2's context is 8,192 tokens, and its template writes short prompts.
_REAL = (
    "backbone=smollm2-135m",
    f"actor_rollout_ref.model.path={SMOLLM2}",
    "data.max_prompt_length=4096",
    "actor_rollout_ref.rollout.max_model_len=8192",
)
# A processor has neither memory nor speed for the sizes of exp/machine/smoke.yaml.
_CPU = (
    "env_service.max_tokens_per_step=16",
    "data.train_batch_size=2",
    "data.dataloader_num_workers=0",
    "actor_rollout_ref.actor.ppo_mini_batch_size=2",
    "actor_rollout_ref.rollout.n=2",
    "actor_rollout_ref.rollout.max_num_seqs=8",
    "actor_rollout_ref.rollout.gpu_memory_utilization=0.2",
    # SmolLM2's word embeddings are one tensor of 108 MiB, which has to fit.
    "actor_rollout_ref.rollout.checkpoint_engine.update_weights_bucket_megabytes=256",
)


@dataclass(frozen=True)
class Case:
    """A model, measured with both loops."""

    size: str
    overrides: tuple[str, ...]
    """Of exp/SEAL.yaml, shared by both loops."""
    gpus: tuple[Any, ...]
    """NVML's handles; none: the processor."""
    out: Path
    """Folder of its results."""

    def recipe(self, *more: str) -> DictConfig:
        """The recipe, resolved.

        Raises:
            RecipeError: An override cannot be used.
        """
        return load_recipe(RECIPE, [*self.overrides, *more])


def case(size: str, gpus: Sequence[Any], steps: int, overrides: Sequence[str], out: Path) -> Case:
    """The case of a size: a name of `models.MODELS`, "smollm2" or "tiny".

    `gpus` are NVML's handles of the GPUs to use; none means the processor. The case's files go to
    the folder `size` of `out`.
    """
    groups = ["smoke"] if gpus else ["cpu", "smoke"]
    chosen = list(_REAL)
    if size != REAL:
        groups.append("random_weights")
        chosen = [f"actor_rollout_ref.model.path={MODELS / size}"]
    machine = [f"trainer.n_gpus_per_node={len(gpus)}"] if gpus else _CPU
    length = f"trainer.total_training_steps={steps}"
    shared = (f"+machine=[{','.join(groups)}]", *chosen, length, *machine, *overrides)
    return Case(size, shared, tuple(gpus), out / size)


def baseline_config(measured: Case, folder: Path, response_tokens: int) -> DictConfig:
    """The recipe's configuration as verl's own single-turn loop takes it.

    Model, batch, optimiser and engines are the same. The trainer, agent loop, replay buffer and
    reward workers are verl's own. The folder has `prompts.parquet` and `reward.py`, and gets the
    outputs. Each rollout generates `response_tokens`.
    """
    config = measured.recipe(
        *(
            f"data.train_files={folder}/prompts.parquet",
            "data.shuffle=false",
            f"data.max_response_length={response_tokens}",
            "reward.num_workers=1",
            f"reward.custom_reward_function.path={folder}/reward.py",
            "reward.custom_reward_function.name=compute_score",
            "actor_rollout_ref.rollout.agent.default_agent_loop=single_turn_agent",
            "actor_rollout_ref.rollout.agent.agent_loop_config_path=null",
            "trainer.experiment_name=verl_single_turn",
            "trainer.resume_mode=disable",
            f"trainer.default_local_dir={folder}/checkpoints",
            f"trainer.rollout_data_dir={folder}/rollouts",
            f"trainer.validation_data_dir={folder}/validation_log",
            "trainer.v1.trainer_mode=sync",
        )
    )
    OmegaConf.set_struct(config, False)
    config.trainer.v1.sampler.sync_refill_failed_groups = False  # verl's own value
    for section in ("env_service", "seal", "launcher"):
        del config[section]
    del config.trainer["env_failure"]
    return config
