"""The keys of verl that users set: which values they take.

A key that is not here takes what its class in verl declares, or else the kind of its default in
verl's configuration (`seal.launch.values`). The keys of `seal.settings.sections` are not here
either. Choices and ranges are those of verl 0.9.1; tests/train/test_values_against_verl.py compares
them with verl itself, which cannot be asked here, because its import takes ten seconds.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Field

from seal.settings.sections import (
    LARGEST,
    Count,
    Natural,
    Positive,
    Seed,
    Share,
    Text,
    Texts,
    listed,
)


def _not_zero(number: int) -> int:
    if number == 0:
        raise ValueError("expected -1 for all, or a whole number of at least 1")
    return number


AtLeast0: TypeAlias = Annotated[float, Field(ge=0.0)]
SomeShare: TypeAlias = Annotated[float, Field(gt=0.0, le=1.0)]
BelowOne: TypeAlias = Annotated[float, Field(ge=0.0, lt=1.0)]
CountOrAll: TypeAlias = Annotated[int, Field(ge=-1, le=LARGEST), AfterValidator(_not_zero)]
KlEstimate: TypeAlias = Literal[
    "kl",
    "k1",
    "abs",
    "mse",
    "k2",
    "low_var_kl",
    "k3",
    "kl+",
    "k1+",
    "abs+",
    "mse+",
    "k2+",
    "low_var_kl+",
    "k3+",
]
Logger: TypeAlias = Literal[
    "wandb",
    "mlflow",
    "swanlab",
    "vemlp_wandb",
    "tensorboard",
    "console",
    "clearml",
    "trackio",
    "file",
    "rl_insight",
]
Precision: TypeAlias = Literal["fp32", "float32", "bf16", "bfloat16", "fp16", "float16"]
"""Of the trainer."""
EnginePrecision: TypeAlias = Literal["auto", "half", "float16", "bfloat16", "float", "float32"]
"""Of vLLM."""
LossAggregation: TypeAlias = Literal[
    "token-mean",
    "token-sum",
    "seq-mean-token-sum",
    "seq-mean-token-mean",
    "seq-mean-token-sum-norm",
]
LossMode: TypeAlias = Literal[
    "vanilla",
    "dppo_tv",
    "dppo_kl",
    "gspo",
    "sapo",
    "gpg",
    "clip_cov",
    "kl_cov",
    "geo_mean",
    "dro",
    "cispo",
    "bypass_mode",
]

_POLICY = "actor_rollout_ref"

KINDS: Mapping[str, Any] = {
    "trainer.total_epochs": Count,
    "trainer.total_training_steps": Count | None,
    "trainer.nnodes": Count,
    "trainer.n_gpus_per_node": Count,
    "trainer.project_name": Text,
    "trainer.experiment_name": Text,
    "trainer.device": Literal["cuda", "cpu"],
    "trainer.logger": Annotated[tuple[Logger, ...], BeforeValidator(listed)],
    "trainer.log_val_generations": Natural,
    "trainer.critic_warmup": Natural,
    "trainer.esi_redundant_time": AtLeast0,
    "trainer.rollout_data_dir": Text | None,
    "trainer.validation_data_dir": Text | None,
    "trainer.max_critic_ckpt_to_keep": Count | None,
    "data.seed": Seed | None,
    "data.dataloader_num_workers": Natural,
    "data.train_max_samples": CountOrAll,
    "data.val_max_samples": CountOrAll,
    "data.gen_batch_size": Count | None,
    "data.val_batch_size": Count | None,
    "data.truncation": Literal["left", "right", "middle", "error"],
    # The others need a critic, generate a second time, or take other data than a reward.
    "algorithm.adv_estimator": Literal["grpo"],
    "algorithm.gamma": Share,
    "algorithm.lam": Share,
    "algorithm.kl_penalty": KlEstimate,
    "algorithm.kl_ctrl.type": Literal["fixed", "adaptive"],
    "algorithm.kl_ctrl.kl_coef": AtLeast0,
    "algorithm.kl_ctrl.horizon": Count,
    "algorithm.kl_ctrl.target_kl": Positive,
    "algorithm.rollout_correction.rollout_is": Literal["token", "sequence"] | None,
    "algorithm.rollout_correction.loss_type": Literal["ppo_clip", "reinforce"],
    f"{_POLICY}.nccl_timeout": Count,
    f"{_POLICY}.model.path": Text,
    f"{_POLICY}.model.external_lib": Texts | None,
    f"{_POLICY}.model.override_config.attn_implementation": Text,
    f"{_POLICY}.model.lora_rank": Natural,
    f"{_POLICY}.model.lora_alpha": Count,
    f"{_POLICY}.model.target_modules": Texts | None,
    f"{_POLICY}.actor.strategy": Literal["fsdp", "fsdp2"],
    f"{_POLICY}.actor.fsdp_config.strategy": Literal["fsdp", "fsdp2"],
    f"{_POLICY}.actor.ppo_mini_batch_size": Count,
    f"{_POLICY}.actor.ppo_micro_batch_size": Count | None,
    f"{_POLICY}.actor.ppo_micro_batch_size_per_gpu": Count | None,
    f"{_POLICY}.actor.ppo_max_token_len_per_gpu": Count,
    f"{_POLICY}.actor.ppo_epochs": Count,
    f"{_POLICY}.actor.ulysses_sequence_parallel_size": Count,
    f"{_POLICY}.actor.fsdp_config.ulysses_sequence_parallel_size": Count,
    f"{_POLICY}.actor.fsdp_config.model_dtype": Precision,
    f"{_POLICY}.actor.fsdp_config.dtype": Precision,
    f"{_POLICY}.actor.fsdp_config.mixed_precision.param_dtype": Precision,
    f"{_POLICY}.actor.fsdp_config.mixed_precision.reduce_dtype": Precision,
    f"{_POLICY}.actor.fsdp_config.mixed_precision.buffer_dtype": Precision,
    f"{_POLICY}.actor.fsdp_config.fsdp_size": CountOrAll,
    f"{_POLICY}.actor.fsdp_config.seed": Seed,
    f"{_POLICY}.actor.data_loader_seed": Seed,
    f"{_POLICY}.actor.clip_ratio": AtLeast0,
    f"{_POLICY}.actor.clip_ratio_low": Share | None,
    f"{_POLICY}.actor.clip_ratio_high": AtLeast0 | None,
    f"{_POLICY}.actor.clip_ratio_c": Annotated[float, Field(gt=1.0)],
    f"{_POLICY}.actor.loss_agg_mode": LossAggregation,
    f"{_POLICY}.actor.loss_scale_factor": Count | None,
    f"{_POLICY}.actor.kl_loss_coef": AtLeast0,
    f"{_POLICY}.actor.kl_loss_type": KlEstimate,
    f"{_POLICY}.actor.grad_clip": Positive,
    f"{_POLICY}.actor.optim.lr": AtLeast0,
    f"{_POLICY}.actor.optim.weight_decay": AtLeast0,
    f"{_POLICY}.actor.optim.clip_grad": Positive,
    f"{_POLICY}.actor.optim.betas": tuple[BelowOne, BelowOne],
    f"{_POLICY}.actor.optim.lr_warmup_steps_ratio": Share,
    f"{_POLICY}.actor.optim.min_lr_ratio": Share | None,
    f"{_POLICY}.actor.optim.lr_scheduler_type": Literal["constant", "cosine"],
    f"{_POLICY}.actor.optim.warmup_style": Literal["constant", "cosine"] | None,
    f"{_POLICY}.actor.policy_loss.loss_mode": LossMode,
    f"{_POLICY}.ref.log_prob_micro_batch_size": Count | None,
    f"{_POLICY}.ref.log_prob_micro_batch_size_per_gpu": Count | None,
    f"{_POLICY}.ref.log_prob_max_token_len_per_gpu": Count,
    f"{_POLICY}.ref.fsdp_config.model_dtype": Precision,
    f"{_POLICY}.ref.fsdp_config.dtype": Precision,
    f"{_POLICY}.ref.fsdp_config.mixed_precision.param_dtype": Precision,
    f"{_POLICY}.ref.fsdp_config.mixed_precision.reduce_dtype": Precision,
    f"{_POLICY}.ref.fsdp_config.mixed_precision.buffer_dtype": Precision,
    f"{_POLICY}.ref.fsdp_config.fsdp_size": CountOrAll,
    f"{_POLICY}.rollout.name": Literal["vllm"],
    f"{_POLICY}.rollout.mode": Literal["async"],
    # GRPO compares the rollouts of a task with each other, so one has nothing to be compared with:
    # verl would take its reward itself for the advantage.
    f"{_POLICY}.rollout.n": Annotated[int, Field(ge=2, le=LARGEST)],
    f"{_POLICY}.rollout.temperature": Positive,
    f"{_POLICY}.rollout.top_p": SomeShare,
    f"{_POLICY}.rollout.top_k": CountOrAll,
    f"{_POLICY}.rollout.seed": Seed,
    f"{_POLICY}.rollout.prompt_length": Count,
    f"{_POLICY}.rollout.response_length": Count,
    f"{_POLICY}.rollout.dtype": EnginePrecision,
    f"{_POLICY}.rollout.gpu_memory_utilization": SomeShare,
    f"{_POLICY}.rollout.tensor_model_parallel_size": Count,
    f"{_POLICY}.rollout.data_parallel_size": Count,
    f"{_POLICY}.rollout.expert_parallel_size": Count,
    # verl has no more with vLLM.
    f"{_POLICY}.rollout.pipeline_model_parallel_size": Annotated[int, Field(ge=1, le=1)],
    f"{_POLICY}.rollout.max_model_len": Count | None,
    f"{_POLICY}.rollout.max_num_seqs": Count,
    f"{_POLICY}.rollout.max_num_batched_tokens": Count,
    f"{_POLICY}.rollout.log_prob_micro_batch_size": Count | None,
    f"{_POLICY}.rollout.log_prob_micro_batch_size_per_gpu": Count | None,
    f"{_POLICY}.rollout.log_prob_max_token_len_per_gpu": Count,
    f"{_POLICY}.rollout.agent.num_workers": Count,
    f"{_POLICY}.rollout.trace.max_samples_per_step_per_worker": Natural | None,
    f"{_POLICY}.rollout.val_kwargs.n": Count,
    f"{_POLICY}.rollout.val_kwargs.temperature": AtLeast0,
    f"{_POLICY}.rollout.val_kwargs.top_p": SomeShare,
    f"{_POLICY}.rollout.val_kwargs.top_k": CountOrAll,
    f"{_POLICY}.rollout.checkpoint_engine.update_weights_bucket_megabytes": Count,
    "reward.num_workers": Natural,
    "transfer_queue.backend.SimpleStorage.num_data_storage_units": Count,
    "transfer_queue.backend.SimpleStorage.total_storage_size": Count,
    "ray_kwargs.ray_init.num_cpus": Count | None,
    "ray_kwargs.ray_init.num_gpus": Natural | None,
    # The least that Ray takes.
    "ray_kwargs.ray_init.object_store_memory": Annotated[int, Field(ge=75 * 2**20)] | None,
    "ray_kwargs.ray_init.include_dashboard": bool | None,
}
"""The values that a key takes, as an annotation that pydantic reads."""

ACTS_WITH: Mapping[str, tuple[str, tuple[Any, ...]]] = {
    "seal.reward.cap": ("seal.reward.mode", ("capped",)),
    "seal.reward.abstention_weight": ("seal.reward.mode", ("t3rl", "capped")),
    "seal.weights.dynamic.beta": ("seal.weights.dynamic.enabled", (True,)),
    "seal.weights.dynamic.alpha": ("seal.weights.dynamic.enabled", (True,)),
    "seal.weights.dynamic.n_conf": ("seal.weights.dynamic.enabled", (True,)),
    "algorithm.kl_penalty": ("algorithm.use_kl_in_reward", (True,)),
    "algorithm.kl_ctrl.type": ("algorithm.use_kl_in_reward", (True,)),
    "algorithm.kl_ctrl.kl_coef": ("algorithm.use_kl_in_reward", (True,)),
    "algorithm.rollout_correction.loss_type": ("algorithm.rollout_correction.bypass_mode", (True,)),
    f"{_POLICY}.actor.kl_loss_coef": (f"{_POLICY}.actor.use_kl_loss", (True,)),
    f"{_POLICY}.actor.kl_loss_type": (f"{_POLICY}.actor.use_kl_loss", (True,)),
    # verl takes it only where the bounds of the two sides are null.
    f"{_POLICY}.actor.clip_ratio": (f"{_POLICY}.actor.clip_ratio_low", (None,)),
}
"""Keys that act only while another one has one of these values; else they stay as in SEAL.yaml."""

NEVER_ACTS: Mapping[str, str] = {
    f"{_POLICY}.actor.grad_clip": f"{_POLICY}.actor.optim.clip_grad",
    f"{_POLICY}.rollout.do_sample": f"{_POLICY}.rollout.temperature",
    f"{_POLICY}.rollout.val_kwargs.do_sample": f"{_POLICY}.rollout.val_kwargs.temperature",
}
"""Keys that verl does not read in this project's runs, and those that it reads instead."""
