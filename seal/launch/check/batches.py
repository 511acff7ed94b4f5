"""Checks of batch sizes. verl asserts the same, but in the training process or later in a worker.

The rules are those of verl 0.9.1: `validate_config`, `TrainingWorker.train_mini_batch` and
`prepare_micro_batches`. A test compares them with validate_config.
"""

from collections.abc import Iterator

from omegaconf import DictConfig

from seal.launch.check.finding import Finding, error, ok
from seal.launch.check.host import has_reference
from seal.launch.check.machine import Machine
from seal.launch.check.model import Model

SUBJECT = "batches"


def batches(recipe: DictConfig, _machine: Machine, _model: Model) -> Iterator[Finding]:
    """Every batch divides over the GPUs, and into smaller batches."""
    rules = (_devices, _updates, _micro_sizes, _passes)
    errors = [error(SUBJECT, message) for rule in rules for message in rule(recipe)]
    yield from errors
    if not errors:
        tasks, n = recipe.data.train_batch_size, recipe.actor_rollout_ref.rollout.n
        yield ok(SUBJECT, f"{tasks} tasks x {n} rollouts on {_gpus(recipe)} GPUs")


def _devices(recipe: DictConfig) -> Iterator[str]:
    rollout, gpus = recipe.actor_rollout_ref.rollout, _gpus(recipe)
    engine = int(
        rollout.tensor_model_parallel_size
        * rollout.data_parallel_size
        * rollout.pipeline_model_parallel_size
    )
    if gpus % engine:
        yield (
            f"{gpus} GPUs do not divide into rollout engines of {engine}; set "
            "actor_rollout_ref.rollout.tensor_model_parallel_size to a divisor"
        )
    experts = int(rollout.expert_parallel_size)
    whole = int(rollout.tensor_model_parallel_size * rollout.data_parallel_size)
    if experts not in (1, whole):
        yield (
            f"actor_rollout_ref.rollout.expert_parallel_size={experts} is neither 1 nor {whole}, "
            "tensor_model_parallel_size x data_parallel_size; choose one of the two"
        )
    split = _sequence_parallel(recipe)
    if gpus % split:
        yield (
            f"{gpus} GPUs do not divide by {split} "
            "(actor_rollout_ref.actor.ulysses_sequence_parallel_size); choose a divisor"
        )
    if split > 1 and not recipe.actor_rollout_ref.model.use_remove_padding:
        yield (
            f"actor_rollout_ref.actor.ulysses_sequence_parallel_size={split} needs "
            "actor_rollout_ref.model.use_remove_padding=true"
        )


def _updates(recipe: DictConfig) -> Iterator[str]:
    actor, n, gpus = recipe.actor_rollout_ref.actor, _rollouts(recipe), _gpus(recipe)
    tasks, mini = int(recipe.data.train_batch_size), int(actor.ppo_mini_batch_size)
    ranks = max(1, gpus // _sequence_parallel(recipe))
    if not actor.use_dynamic_bsz and tasks * n % gpus:
        yield (
            f"data.train_batch_size={tasks} x actor_rollout_ref.rollout.n={n} rollouts do not "
            f"divide by {gpus} GPUs; choose a multiple"
        )
    if not actor.use_dynamic_bsz and tasks < mini:
        yield (
            f"data.train_batch_size={tasks} is smaller than actor_rollout_ref.actor."
            f"ppo_mini_batch_size={mini}; raise the former or lower the latter"
        )
    if mini * n % ranks:
        yield (
            f"actor_rollout_ref.actor.ppo_mini_batch_size={mini} x actor_rollout_ref.rollout.n={n} "
            f"rollouts do not divide by {ranks} ranks of the trainer; choose a multiple"
        )


def _micro_sizes(recipe: DictConfig) -> Iterator[str]:
    """Each size has to be set exactly once; verl has an old and a new name for it."""
    policy = recipe.actor_rollout_ref
    if policy.actor.use_dynamic_bsz:
        return
    sections = [("actor", "ppo_micro_batch_size"), ("rollout", "log_prob_micro_batch_size")]
    if has_reference(recipe):
        sections.append(("ref", "log_prob_micro_batch_size"))
    for section, name in sections:
        old, new = policy[section].get(name), policy[section].get(f"{name}_per_gpu")
        key = f"actor_rollout_ref.{section}.{name}"
        if old is None and new is None:
            yield f"{key}_per_gpu is not set; set the number of rollouts that a GPU takes at once"
        elif old is not None and new is not None:
            yield f"{key} and {key}_per_gpu are both set; remove the former"


def _passes(recipe: DictConfig) -> Iterator[str]:
    """The rollouts of a rank divide into its micro-batches."""
    policy = recipe.actor_rollout_ref
    actor, rollout, ref = policy.actor, policy.rollout, policy.ref
    ranks = max(1, _gpus(recipe) // _sequence_parallel(recipe))
    update = int(actor.ppo_mini_batch_size) * _rollouts(recipe) // ranks
    batch = int(recipe.data.train_batch_size) * _rollouts(recipe) // ranks
    sizes = []
    if not actor.use_dynamic_bsz:
        sizes.append(("actor", "ppo_micro_batch_size_per_gpu", update, "a mini batch"))
    if not (rollout.log_prob_use_dynamic_bsz or _is_bypassed(recipe)):
        sizes.append(("rollout", "log_prob_micro_batch_size_per_gpu", batch, "the batch"))
    if not ref.log_prob_use_dynamic_bsz and has_reference(recipe):
        sizes.append(("ref", "log_prob_micro_batch_size_per_gpu", batch, "the batch"))
    for section, name, rollouts, of in sizes:
        size = policy[section].get(name)
        if size is not None and rollouts % int(size):
            yield (
                f"each of {ranks} ranks gets {rollouts} rollouts of {of}, which do not divide by "
                f"actor_rollout_ref.{section}.{name}={size}; choose a divisor"
            )


def _is_bypassed(recipe: DictConfig) -> bool:
    """Whether training uses the rollout engine's log probabilities as the old ones."""
    return bool((recipe.algorithm.get("rollout_correction") or {}).get("bypass_mode", False))


def _rollouts(recipe: DictConfig) -> int:
    return int(recipe.actor_rollout_ref.rollout.n)


def _gpus(recipe: DictConfig) -> int:
    return int(recipe.trainer.n_gpus_per_node) * int(recipe.trainer.nnodes)


def _sequence_parallel(recipe: DictConfig) -> int:
    actor = recipe.actor_rollout_ref.actor
    return max(
        int(actor.ulysses_sequence_parallel_size),
        int(actor.fsdp_config.ulysses_sequence_parallel_size),
    )
