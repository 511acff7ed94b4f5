"""What a recipe takes of a GPU's memory, in closed form: for `launcher.py --check` and for plans.

In: a model's sizes and a recipe's settings. Out: bytes of one GPU, in the two moments that decide.

**Update** of the policy, the rollout engine asleep; verl 0.9.1 with FSDP2 over N GPUs:

    weights 4 P/N, gradients 4 P/N, Adam's moments 8 P/N       float32, P parameters
    + 2 x layers x tokens x hidden                             inputs of the layers, bfloat16, kept
                                                               for the backward pass
    + the largest of three stages:
      head       logits (bfloat16) and their chunks, the head's gathered weight and its gradient
      layer      one layer computed again with its gradients, gathered weights of two layers
      embedding  gathered, its gradient in bfloat16 and in float32

**Wake-up**: gradients are gone; vLLM takes its share of the GPU for weights and cache, beside what
the trainer leaves there (`ActorRolloutRefWorker.update_weights`). While weights are sent, the
trainer also has the largest of them in float32 and a bucket; the cache comes after that. The
reference policy lies in pinned memory of the host (`CPUOffloadPolicy`) and comes layer by layer, in
a pass that is smaller than an update.

The second source is `seal/train/memory_simulation.py`, torch's own tracker on fake tensors: a test
holds the updates of both together within 10 %. Neither has seen a GPU. On Qwen3.5 the
tracker fails, as the vision part has no forward pass: its linear layers are counted like attention,
without what their kernels work in.
"""

from dataclasses import dataclass
from typing import Literal

from omegaconf import DictConfig

from seal.launch.shapes import Shape

CHUNK_BYTES = 2**26
"""Of a chunk of logits in float32; seal.train.log_probs has the same."""
ASIDE_BYTES = 4_000_000_000
"""For what no formula here has: contexts of two processes, NCCL's buffers, CUDA graphs, holes
between tensors. Assumed, not measured."""
UNEVEN = 1.3
"""How far micro-batches of a dynamic size go beyond their budget of tokens: verl balances them by
attention's work. The largest of 900 drawn batches had 1.30 times the budget."""

Offload = Literal["none", "between", "always"]
"""Where the trainer's state is: on the GPU; on the host while the rollout engine works; always on
the host, and layer by layer on the GPU (FSDP2's CPUOffloadPolicy, Adam on the processor)."""


class UnplannedError(Exception):
    """The formulas do not hold for the recipe; the message says why."""


@dataclass(frozen=True)
class Settings:
    """What a recipe says about memory."""

    gpus: int
    """All GPUs of the run."""
    tokens: int
    """Of a micro-batch, at most."""
    own: int
    """Those of them that the policy wrote, at most."""
    offload: Offload
    utilization: float
    """`gpu_memory_utilization`: vLLM's share of a GPU."""
    tensor_parallel: int
    """GPUs that share a copy of the rollout engine's weights."""
    bucket_bytes: int
    """Of a transfer of weights."""
    dialogue: int
    """Tokens of the longest dialogue."""


@dataclass(frozen=True)
class Plan:
    """Bytes of one GPU."""

    weights: int
    gradients: int
    optimizer: int
    activations: int
    """Everything that an update's forward and backward pass add, without logits."""
    logits: int
    """With their chunks."""
    resident: int
    """What the trainer keeps on the GPU while the rollout engine works."""
    transfer: int
    """What the trainer adds while it sends weights."""
    engine_weights: int
    """The rollout engine's, bfloat16."""
    engine_least: int
    """With the cache of one dialogue and a gigabyte to work in."""
    utilization: float
    """Of the recipe."""

    @property
    def update(self) -> int:
        """At the peak of an update."""
        parts = (self.weights, self.gradients, self.optimizer, self.activations, self.logits)
        return sum(parts) + ASIDE_BYTES

    def wake(self, memory: int, utilization: float | None = None) -> int:
        """At wake-up and while rollouts are made, on a GPU with `memory` bytes.

        Args:
            memory: Bytes of the GPU.
            utilization: vLLM's share; None: the recipe's.
        """
        share = self.utilization if utilization is None else utilization
        asleep = self.resident + ASIDE_BYTES
        return asleep + max(round(share * memory), self.engine_weights + self.transfer)

    def largest_utilization(self, memory: int) -> float | None:
        """The largest share for vLLM that fits, in hundredths, at most 0.9; None: none does.

        Args:
            memory: Bytes of the GPU.
        """
        left = memory - self.resident - ASIDE_BYTES
        fits = self.update <= memory and left >= self.engine_weights + self.transfer
        share = min(90, 100 * left // memory)
        if not fits or share * memory // 100 < self.engine_least:
            return None
        return share / 100


def settings_of(recipe: DictConfig) -> Settings:
    """What a resolved recipe for GPUs says about memory.

    Raises:
        UnplannedError: It trains adapters, does without checkpointing or has no FSDP2.
    """
    ours = recipe.actor_rollout_ref
    model, actor, rollout = ours.model, ours.actor, ours.rollout
    if model.lora_rank > 0 or not model.enable_gradient_checkpointing or actor.strategy != "fsdp2":
        raise UnplannedError(
            "memory is planned for whole weights (lora_rank 0) with gradient checkpointing and "
            "fsdp2 alone"
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
    """Bytes of one GPU.

    Args:
        shape: The model's sizes.
        settings: The recipe's.
    """
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
        # A weight is gathered in float32 from a shard and goes through a bucket, or alone.
        transfer=4 * table + settings.bucket_bytes,
        engine_weights=engine_weights,
        engine_least=engine_weights + cache + 10**9,
        utilization=settings.utilization,
    )


def _update(shape: Shape, tokens: int, own: int) -> tuple[int, int]:
    """Logits, and what else an update adds, at the largest of its stages."""
    stream, table = tokens * shape.hidden, 2 * shape.vocabulary * shape.hidden
    kept = 2 * shape.layers * stream
    layer = 2 * shape.layer_parameters
    # A shared embedding belongs to the root, so it is gathered in all of the backward pass.
    shared = table if shape.tied else 0
    exact = 4 * own * shape.vocabulary
    chunk = min(CHUNK_BYTES, exact)
    chunks = 2 * chunk + 2 * min(CHUNK_BYTES, exact - chunk)
    stages = (
        # Chunks; or, when these are done, the gradient of the head's weight.
        (exact // 2 + chunks, kept + 8 * stream),
        (exact // 2, kept + 8 * stream + 2 * table + 2 * own * shape.hidden),
        # Seven tensors of the MLP's width and as many of the stream's; the last layer is computed
        # again while the head's gradient is reduced in float32.
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
