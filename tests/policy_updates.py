"""Small updates for tests of the engine: tiny models, and batches as verl's workers make them."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
import torch.distributed
from small_models import TINY
from tensordict import TensorDict
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM
from verl.utils import tensordict_utils
from verl.utils import torch_functional as verl_functions
from verl.workers.config import ActorConfig
from verl.workers.engine.fsdp import transformer_impl
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead
from verl.workers.utils.losses import ppo_loss

import seal.train.engine
from seal.train.engine import PolicyTokensEngine
from seal.train.log_probs import give_head_rows

VOCABULARY = 50
SIZES = {
    **TINY,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 64,
    "attn_implementation": "sdpa",
}
MODELS = {
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**SIZES)),
    "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(**SIZES)),
}


def nested(rows: list[torch.Tensor]) -> torch.Tensor:
    return torch.nested.as_nested_tensor(rows, layout=torch.jagged)


def batch(rows: Any, packed: bool, temperature: Any = 1.0, **flags: Any) -> TensorDict:
    """A micro-batch as verl's workers make it of rollouts."""
    draw = torch.Generator().manual_seed(1)
    prompts = [torch.randint(1, VOCABULARY, (size,), generator=draw) for size, _ in rows]
    responses = [torch.randint(1, VOCABULARY, (len(mask),), generator=draw) for _, mask in rows]
    ids = [torch.cat(pair) for pair in zip(prompts, responses, strict=True)]
    made = TensorDict(
        {
            "prompts": nested(prompts),
            "responses": nested(responses),
            "loss_mask": nested([torch.tensor(mask) for _, mask in rows]),
            "input_ids": nested(ids),
            "position_ids": nested([torch.arange(len(one)) for one in ids]),
        },
        batch_size=len(rows),
    )
    if isinstance(temperature, torch.Tensor):
        made["temperature"] = temperature
    else:
        flags["temperature"] = temperature
    tensordict_utils.assign_non_tensor(made, use_remove_padding=packed, **flags)
    return made


def engine(kind: type[FSDPEngineWithLMHead]) -> Any:
    made: Any = object.__new__(kind)
    made.pad_to_length = None
    made.use_ulysses_sp = False
    settings = {"entropy_checkpointing": False, "entropy_from_logits_with_chunking": False}
    made.engine_config = type("Config", (), settings)()
    made.compute_entropy_from_logits = verl_functions.entropy_from_logits
    return made


def update(rows: Sequence[Any], advantages: Sequence[float], **flags: Any) -> TensorDict:
    data = batch(rows, packed=False, calculate_entropy=False, **flags)
    masks = data["loss_mask"].unbind()
    data["response_mask"] = data["loss_mask"]
    data["advantages"] = nested(
        [value * mask.float() for value, mask in zip(advantages, masks, strict=True)]
    )
    return data


def gradients(
    data: TensorDict, aggregation: str, ranks: int = 1
) -> tuple[list[torch.Tensor], float, Any]:
    """Of one update by the engine, its loss, and a model with the same weights."""
    torch.manual_seed(2)
    twin = MODELS["llama"]()
    with torch.no_grad():  # The ratio is 1: old log probabilities are those of the policy.
        old = []
        for prompt, response in zip(
            data["prompts"].unbind(), data["responses"].unbind(), strict=True
        ):
            logits = twin(input_ids=torch.cat([prompt, response])[None]).logits
            logits = logits[0, len(prompt) - 1 : -1]
            old.append(logits.log_softmax(-1).gather(1, response[:, None])[:, 0])
        data["old_log_probs"] = nested(old)
    torch.manual_seed(2)
    made = engine(PolicyTokensEngine)
    made.module = give_head_rows(MODELS["llama"](), lambda: made.head_rows)
    made.ulysses_sequence_parallel_size = 1
    made._autocast_dtype = torch.float32
    made.get_data_parallel_group = lambda: None
    made.get_data_parallel_size = lambda: ranks
    config = ActorConfig(
        strategy="fsdp2",
        rollout_n=1,
        ppo_micro_batch_size_per_gpu=1,
        loss_agg_mode=aggregation,
        calculate_entropy=False,
    )
    found = made.forward_backward_batch(data, partial(ppo_loss, config=config))
    loss = sum(float(one) for one in found["metrics"]["actor/pg_loss"].values)
    return [one.grad for one in made.module.parameters()], loss, twin


def use_the_processor(replace: Any) -> None:
    for module in (transformer_impl, seal.train.engine):
        replace(module, "get_device_id", lambda: "cpu")
    replace(transformer_impl, "get_device_name", lambda: "cpu")


def rank_of_two(
    rank: int, folder: str, aggregation: str, rows: Sequence[Any], advantages: Sequence[float]
) -> None:
    """One of two ranks with half of the rows each; writes the mean gradient, as FSDP makes it."""
    use_the_processor(setattr)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2
    )
    flags = {"use_dynamic_bsz": False, "micro_batch_size_per_gpu": 1}
    own = slice(2 * rank, 2 * rank + 2)
    data = update(rows[own], advantages[own], global_batch_size=len(rows), **flags)
    found, _, _ = gradients(data, aggregation, ranks=2)
    for one in found:
        torch.distributed.all_reduce(one)
        one /= 2
    if rank == 0:
        torch.save(found, f"{folder}/gradients.pt")
    torch.distributed.destroy_process_group()
