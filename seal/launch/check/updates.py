"""Checks of how log probabilities are computed: what verl offers, and fails or is slow with."""

from collections.abc import Iterator

from omegaconf import DictConfig

from seal.launch.check.finding import Finding, error, ok, warning
from seal.launch.check.machine import Machine
from seal.launch.check.model import Model
from seal.launch.check.software import FLASH, attention, on_cuda


def fused_kernels(recipe: DictConfig, _machine: Machine, model: Model) -> Iterator[Finding]:
    """Verl's fused log probabilities need an output head that is the embedding.

    With fsdp2 they multiply the head's weight, a sharded tensor, before FSDP2 has gathered it. A
    head that is the embedding belongs to the root module, which is gathered by then (verl 0.9.1; a
    test sees both).
    """
    settings = recipe.actor_rollout_ref
    if not settings.model.use_fused_kernels:
        return
    tied = bool(model.language_config.get("tie_word_embeddings", True))
    if settings.actor.strategy == "fsdp2" and not tied:
        yield error(
            "fused kernels",
            f"with fsdp2 verl's fused kernels fail on {model.path}, whose output head is a weight "
            "of its own; set actor_rollout_ref.model.use_fused_kernels=false: without them logits "
            "are made for the policy's own tokens alone, too",
        )
    else:
        yield ok("fused kernels", "work with this model")


def dynamic_batches(recipe: DictConfig, _machine: Machine, _model: Model) -> Iterator[Finding]:
    """Several dialogues in one packed row want flash-attn."""
    settings = recipe.actor_rollout_ref
    packed = settings.model.use_remove_padding and settings.actor.use_dynamic_bsz
    if packed and on_cuda(recipe) and attention(recipe) != FLASH:
        yield warning(
            "dynamic batches",
            f"without flash-attn ({attention(recipe)}) a row of several dialogues gets a mask of "
            "tokens x tokens, and attention is computed between dialogues, too, and thrown away: "
            "slower than one dialogue a micro-batch, "
            "actor_rollout_ref.actor.use_dynamic_bsz=false",
        )
