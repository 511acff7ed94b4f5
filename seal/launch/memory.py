"""GPU memory that a recipe needs, in closed form.

In: the sizes of a model and the settings of a recipe. Out: bytes of one GPU, at the two moments
that need most.

**Update** of the policy while the rollout engine sleeps; verl 0.9.1 with FSDP2 over N GPUs:

    weights 4 P/N, gradients 4 P/N, Adam's moments 8 P/N       float32, P parameters
    + 2 x layers x tokens x hidden                             inputs of the layers, bfloat16, kept
                                                               for the backward pass
    + the largest of three stages:
      head       logits (bfloat16) and their chunks, the head's gathered weight and its gradient
      layer      one recomputed layer with its gradients, gathered weights of two layers
      embedding  gathered, its gradient in bfloat16 and in float32

**Wake-up** of the rollout engine: the gradients are freed. vLLM takes its share of the GPU for
weights and cache; the trainer's remaining memory comes on top
(`ActorRolloutRefWorker.update_weights`). During a transfer of weights the trainer also has the
largest weight in float32 and a bucket; vLLM allocates the cache after that. The reference policy is
in pinned memory of the host (`CPUOffloadPolicy`). It comes to the GPU layer by layer, in a pass
that needs less than an update.

The second source is `scripts/memory_simulation.py`, torch's own tracker on fake tensors. A test
checks that both agree on updates within 10 %. Neither was compared with a GPU. The tracker fails on
Qwen3.5, because the vision part has no forward pass. The formulas count its linear layers like
attention, without the working memory of their kernels.
"""

from dataclasses import dataclass
from typing import Literal

from omegaconf import DictConfig

from seal.launch.shapes import Shape

CHUNK_BYTES = 2**26
"""Size of a chunk of logits in float32, the same as in seal.train.log_probs."""
ASIDE_BYTES = 4_000_000_000
"""Allowance for memory without a formula: contexts of two processes, NCCL's buffers, CUDA graphs,
fragmentation. Assumed, not measured."""
UNEVEN = 1.3
"""Largest size of a dynamic micro-batch, as a multiple of its token budget. verl balances
micro-batches by the work of attention; the largest of 900 drawn batches had 1.30 times its budget.
"""

Offload = Literal["none", "between", "always"]
"""Where the trainer's state is. none: on the GPU. between: on the host while the rollout engine
works. always: on the host, and layer by layer on the GPU (FSDP2's CPUOffloadPolicy, Adam on the
processor)."""


class UnplannedError(Exception):
    """The formulas do not cover the recipe; the message says why."""


@dataclass(frozen=True)
class Settings:
    """Settings of a recipe that memory depends on."""

    gpus: int
    """Number of GPUs of the run."""
    tokens: int
    """Tokens of a micro-batch, at most."""
    own: int
    """Tokens of a micro-batch that the policy wrote, at most."""
    offload: Offload
    utilization: float
    """`gpu_memory_utilization`: vLLM's share of a GPU."""
    tensor_parallel: int
    """GPUs that share a copy of the rollout engine's weights."""
    bucket_bytes: int
    """Size of a bucket in a transfer of weights."""
    dialogue: int
    """Tokens of the longest dialogue."""


@dataclass(frozen=True)
class Plan:
    """Bytes of one GPU."""

    weights: int
    gradients: int
    optimizer: int
    activations: int
    """Memory that the forward and backward pass of an update add, without logits."""
    logits: int
    """Logits and their chunks."""
    resident: int
    """Memory of the trainer while the rollout engine works."""
    transfer: int
    """Memory that the trainer adds while it sends weights."""
    engine_weights: int
    """Weights of the rollout engine in bfloat16."""
    engine_least: int
    """These weights, the cache of one dialogue and a gigabyte of working memory."""
    utilization: float
    """vLLM's share of the GPU in the recipe."""

    @property
    def update(self) -> int:
        """Bytes at the peak of an update."""
        parts = (self.weights, self.gradients, self.optimizer, self.activations, self.logits)
        return sum(parts) + ASIDE_BYTES

    def wake(self, memory: int, utilization: float | None = None) -> int:
        """Bytes at wake-up and during rollouts, on a GPU of `memory` bytes.

        `utilization` is vLLM's share of the GPU; None: the share in the recipe.
        """
        share = self.utilization if utilization is None else utilization
        asleep = self.resident + ASIDE_BYTES
        return asleep + max(round(share * memory), self.engine_weights + self.transfer)

    def largest_utilization(self, memory: int) -> float | None:
        """The largest share for vLLM that fits on a GPU of `memory` bytes; None if none fits.

        It is a multiple of 0.01, at most 0.9.
        """
        left = memory - self.resident - ASIDE_BYTES
        fits = self.update <= memory and left >= self.engine_weights + self.transfer
        share = min(90, 100 * left // memory)
        if not fits or share * memory // 100 < self.engine_least:
            return None
        return share / 100


def settings_of(recipe: DictConfig) -> Settings:
    """The settings of a resolved recipe for GPUs.

    Raises:
        UnplannedError: The recipe trains adapters, or uses no gradient checkpointing or no FSDP2.
    """
    ours = recipe.actor_rollout_ref
    model, actor, rollout = ours.model, ours.actor, ours.rollout
    if model.lora_rank > 0 or not model.enable_gradient_checkpointing or actor.strategy != "fsdp2":
        raise UnplannedError(
            "the formulas cover whole weights (lora_rank 0) with gradient checkpointing and fsdp2 "
            "only"
        )
    dialogue = recipe.data.max_prompt_length + recipe.data.max_response_length
    if actor.use_dynamic_bsz:
        tokens = max(dialogue, round(UNEVEN * actor.ppo_max_token_len_per_gpu))
    else:
        tokens = actor.ppo_micro_batch_size_per_gpu * dialogue
    sharded = actor.fsdp_config
    offload: Offload = "none"
    if sharded.offload_policy:
        offload = "always"
    elif sharded.param_offload and sharded.optimizer_offload:
        offload = "between"
    return Settings(
        gpus=recipe.trainer.nnodes * recipe.trainer.n_gpus_per_node,
        tokens=tokens,
        own=tokens * recipe.data.max_response_length // dialogue,
        offload=offload,
        utilization=rollout.gpu_memory_utilization,
        tensor_parallel=rollout.tensor_model_parallel_size,
        bucket_bytes=rollout.checkpoint_engine.update_weights_bucket_megabytes * 2**20,
        dialogue=dialogue,
    )


def plan(shape: Shape, settings: Settings) -> Plan:
    """Bytes of one GPU."""
    per_rank = shape.parameters // settings.gpus
    always = settings.offload == "always"
    weights, moments = (0, 0) if always else (4 * per_rank, 8 * per_rank)
    table = shape.vocabulary * shape.hidden
    logits, activations = _update(shape, settings.tokens, settings.own)
    engine_weights = 2 * shape.parameters // settings.tensor_parallel
    cache = 2 * shape.cache_values * settings.dialogue // settings.tensor_parallel
    return Plan(
        weights=weights,
        gradients=weights,
        optimizer=moments,
        activations=activations,
        logits=logits,
        resident=weights + moments if settings.offload == "none" else 0,
        # A weight is gathered in float32. It is sent in a bucket, or alone if it is larger.
        transfer=4 * table + settings.bucket_bytes,
        engine_weights=engine_weights,
        engine_least=engine_weights + cache + 10**9,
        utilization=settings.utilization,
    )


def _update(shape: Shape, tokens: int, own: int) -> tuple[int, int]:
    """Bytes of logits and of everything else that an update adds, at its largest stage."""
    stream, table = tokens * shape.hidden, 2 * shape.vocabulary * shape.hidden
    kept = 2 * shape.layers * stream
    layer = 2 * shape.layer_parameters
    # A shared embedding belongs to the root module, which stays gathered in the backward pass.
    shared = table if shape.tied else 0
    exact = 4 * own * shape.vocabulary
    chunk = min(CHUNK_BYTES, exact)
    chunks = 2 * chunk + 2 * min(CHUNK_BYTES, exact - chunk)
    stages = (
        # First the chunks, then the gradient of the head's weight.
        (exact // 2 + chunks, kept + 8 * stream),
        (exact // 2, kept + 8 * stream + 2 * table + 2 * own * shape.hidden),
        # Seven tensors of the MLP's width and seven of the stream's. The last layer is recomputed
        # while the head's gradient is reduced in float32.
        (
            0,
            kept
            + 14 * tokens * shape.intermediate
            + 14 * stream
            + 2 * layer
            + (2 * shared + 2 * layer if shape.tied else 2 * table),
        ),
        (0, 4 * table),
    )
    return max(stages, key=sum)
