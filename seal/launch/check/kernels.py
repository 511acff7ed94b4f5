"""Checks of how log probabilities are computed: settings of verl that fail or are slow."""

from collections.abc import Iterator

from omegaconf import DictConfig

from seal.launch.check.finding import Finding, error, ok, warning
from seal.launch.check.machine import Machine
from seal.launch.check.model import Model
from seal.launch.check.software import FLASH, attention, on_cuda


def fused_kernels(recipe: DictConfig, _machine: Machine, model: Model) -> Iterator[Finding]:
    """Verl's fused log probabilities need an output head that shares the embedding's weight.

    With fsdp2 they multiply the head's weight, a sharded tensor, before FSDP2 has gathered it. A
    shared weight belongs to the root module, which is gathered by then (verl 0.9.1; a test covers
    both cases).
    """
    settings = recipe.actor_rollout_ref
    if not settings.model.use_fused_kernels:
        return
    tied = bool(model.language_config.get("tie_word_embeddings", True))
    if settings.actor.strategy == "fsdp2" and not tied:
        yield error(
            "fused kernels",
            f"with fsdp2 verl's fused kernels fail on {model.path}, because its output head does "
            "not share the embedding's weight; set actor_rollout_ref.model.use_fused_kernels=false "
            "(without them, too, only the policy's own tokens get logits)",
        )
    else:
        yield ok("fused kernels", "work with this model")


def dynamic_batches(recipe: DictConfig, _machine: Machine, _model: Model) -> Iterator[Finding]:
    """Several dialogues in one packed row need flash-attn to be fast."""
    settings = recipe.actor_rollout_ref
    packed = settings.model.use_remove_padding and settings.actor.use_dynamic_bsz
    if packed and on_cuda(recipe) and attention(recipe) != FLASH:
        yield warning(
            "dynamic batches",
            f"without flash-attn ({attention(recipe)}) a row of several dialogues gets a mask of "
            "tokens x tokens, and attention between different dialogues is computed and thrown "
            "away; one dialogue in a micro-batch is faster: "
            "actor_rollout_ref.actor.use_dynamic_bsz=false",
        )
