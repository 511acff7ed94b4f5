import pytest
from check_material import MACHINE, QWEN_7B
from omegaconf import DictConfig, OmegaConf

from seal.launch.check.batches import batches
from seal.launch.check.finding import Level, sentences

POLICY = "actor_rollout_ref"


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({}, ""),
        ({"trainer.n_gpus_per_node": 3}, "x actor_rollout_ref.rollout.n=8 rollouts do not divide"),
        ({"trainer.nnodes": 3}, "do not divide by 12 GPUs"),
        (
            {f"{POLICY}.actor.ppo_mini_batch_size": 64},
            "is smaller than actor_rollout_ref.actor.ppo",
        ),
        (
            {"trainer.n_gpus_per_node": 16, f"{POLICY}.rollout.n": 1},
            "ppo_mini_batch_size=8 x actor_rollout_ref.rollout.n=1 rollouts do not divide by 16",
        ),
        (
            {f"{POLICY}.actor.ppo_micro_batch_size_per_gpu": 3},
            "gets 16 rollouts of a mini batch, which do not divide by actor_rollout_ref.actor.ppo_",
        ),
        (
            {f"{POLICY}.rollout.log_prob_micro_batch_size_per_gpu": 5},
            "gets 64 rollouts of the batch, which do not divide by actor_rollout_ref.rollout.log_",
        ),
        (
            {f"{POLICY}.ref.log_prob_micro_batch_size_per_gpu": 5},
            "gets 64 rollouts of the batch, which do not divide by actor_rollout_ref.ref.log_prob",
        ),
        (
            {f"{POLICY}.ref.log_prob_micro_batch_size_per_gpu": None},
            "ref.log_prob_micro_batch_size_per_gpu is not set",
        ),
        (
            {f"{POLICY}.actor.ppo_micro_batch_size": 4},
            "actor.ppo_micro_batch_size and actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu",
        ),
        ({f"{POLICY}.rollout.tensor_model_parallel_size": 3}, "rollout engines of 3"),
        ({f"{POLICY}.actor.ulysses_sequence_parallel_size": 3}, "do not divide by 3"),
        (
            {
                f"{POLICY}.actor.ulysses_sequence_parallel_size": 2,
                f"{POLICY}.model.use_remove_padding": False,
            },
            "use_remove_padding=true",
        ),
    ],
)
def test_each_batch_divides(seal: DictConfig, changed: dict[str, object], complaint: str) -> None:
    for key, value in changed.items():
        OmegaConf.update(seal, key, value)
    found = list(batches(seal, MACHINE, QWEN_7B))
    errors = sentences(found, Level.ERROR)
    if complaint:
        assert any(complaint in one for one in errors), errors
    else:
        assert [one.message for one in found] == ["32 tasks x 8 rollouts on 4 GPUs"]


def test_batches_by_tokens_need_not_divide(seal: DictConfig) -> None:
    policy = seal.actor_rollout_ref
    policy.actor.ppo_micro_batch_size_per_gpu = None
    policy.rollout.log_prob_micro_batch_size_per_gpu = 5
    policy.actor.use_dynamic_bsz = policy.rollout.log_prob_use_dynamic_bsz = True
    policy.ref.log_prob_use_dynamic_bsz = True
    assert sentences(list(batches(seal, MACHINE, QWEN_7B)), Level.ERROR) == []


def test_passes_that_are_not_made_need_not_divide(quick: DictConfig) -> None:
    assert sentences(list(batches(quick, MACHINE, QWEN_7B)), Level.ERROR) == []
    quick.actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu = 5
    # The rollout engine's own log probabilities are taken (rollout_correction.bypass_mode).
    assert sentences(list(batches(quick, MACHINE, QWEN_7B)), Level.ERROR) == []
    quick.algorithm.rollout_correction.bypass_mode = False
    assert len(sentences(list(batches(quick, MACHINE, QWEN_7B)), Level.ERROR)) == 1
