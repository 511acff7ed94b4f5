"""verl's FSDP engine for the device "cpu".

Imported through `actor_rollout_ref.model.external_lib` in every process that reads the model
configuration; only verl's own workers, which Ray started for a process group, get one.
"""

import os
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from tensordict import TensorDict
from verl.utils import tensordict_utils
from verl.workers.engine.base import EngineRegistry
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead

# verl would ask torch for the backend "cpu:gloo,cpu:gloo", which torch rejects; it leaves a
# group alone that is there already. WG_BACKEND is set by verl in its worker processes only.
if os.environ.get("WG_BACKEND") == "ray" and not dist.is_initialized():
    dist.init_process_group(
        "gloo", rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"])
    )

_BY_VERL = ("use_fused_kernels", "distillation_use_topk", "calculate_sum_pi_squared")
"""What a batch may ask for and only verl's own way has."""


@EngineRegistry.register(model_type="language_model", backend=["fsdp2"], device="cpu")
class CpuFSDPEngine(FSDPEngineWithLMHead):
    """FSDP2 on the processor; verl has merely not registered it for this device.

    Log probabilities are taken of the policy's own tokens alone, all at once. Without flash-attn
    verl takes those of all tokens, prompt and observations included, one after the other.
    """

    def prepare_model_inputs(
        self, micro_batch: TensorDict
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """verl's, padded on the right, with the positions whose logits are needed."""
        inputs, arguments = super().prepare_model_inputs(micro_batch)
        if _said(micro_batch, "use_remove_padding", True) or any(
            _said(micro_batch, name, False) for name in _BY_VERL
        ):
            return inputs, arguments
        arguments["positions"] = policy_positions(micro_batch)
        inputs["logits_to_keep"] = arguments["positions"]
        # What stands behind a token is not seen by it: padding on the right needs no mask, and
        # every row counts from 0. Without both, attention takes its fast path.
        inputs["attention_mask"] = inputs["position_ids"] = None
        return inputs, arguments

    def prepare_model_outputs(
        self,
        output: Any,
        output_args: dict[str, Any],
        micro_batch: TensorDict,
        logits_processor_func: Any,
    ) -> dict[str, torch.Tensor]:
        """Log probability of each next token (and entropy), 0 where the policy wrote nothing."""
        if "positions" not in output_args:
            made: dict[str, torch.Tensor] = super().prepare_model_outputs(
                output, output_args, micro_batch, logits_processor_func
            )
            return made
        positions, ids = output_args["positions"], micro_batch["input_ids"]
        lengths = ids.offsets().diff().tolist()
        padded = torch.nested.to_padded_tensor(ids, 0, (len(lengths), max(lengths)))
        logits = output.logits.float() / output_args["temperature"][:, None, None]
        log_probs = F.log_softmax(logits, dim=-1)
        labels = padded[:, positions + 1]
        found = {"log_probs": log_probs.gather(-1, labels[..., None]).squeeze(-1)}
        if _said(micro_batch, "calculate_entropy", False):
            found["entropy"] = -(log_probs.exp() * log_probs).sum(dim=-1)
        return {name: _spread(values, positions, ids) for name, values in found.items()}

    def _build_fsdp_module(self, module: torch.nn.Module) -> torch.nn.Module:
        # For a forward-only engine (the reference policy) verl asks for offloading into pinned
        # memory, which needs an accelerator to pin for. Here the parameters are at home already.
        forward_only = self.engine_config.forward_only
        self.engine_config.forward_only = False
        try:
            return super()._build_fsdp_module(module)
        finally:
            self.engine_config.forward_only = forward_only


def policy_positions(micro_batch: TensorDict) -> torch.Tensor:
    """Positions (k,), ascending, behind which a row of the batch has a token of the policy.

    Args:
        micro_batch: With nested `prompts`, and `loss_mask` over response tokens.
    """
    prompts = micro_batch["prompts"].offsets().diff().tolist()
    masks = micro_batch["loss_mask"].unbind()
    found = [mask.nonzero()[:, 0] + prompt - 1 for mask, prompt in zip(masks, prompts, strict=True)]
    positions = torch.cat(found).unique()
    # A batch of padding has none, and a model has to be given one.
    return positions if len(positions) else torch.zeros(1, dtype=torch.int64)


def _spread(values: torch.Tensor, positions: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """Values (rows, k) at their positions in the nested form of `ids`, 0 elsewhere."""
    offsets = ids.offsets()
    lengths = offsets.diff().tolist()
    every = values.new_zeros(len(lengths), max(lengths)).index_copy(1, positions, values)
    flat = torch.cat([row[:length] for row, length in zip(every, lengths, strict=True)])
    return torch.nested.nested_tensor_from_jagged(flat, offsets)


def _said(micro_batch: TensorDict, name: str, default: bool) -> bool:
    return bool(tensordict_utils.get_non_tensor_data(micro_batch, name, default))
