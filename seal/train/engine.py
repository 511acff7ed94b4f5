"""verl's FSDP2 engine, with log probabilities only of the tokens that the policy wrote.

Most tokens of a dialogue are prompt and observations, and their log probabilities are not needed.
verl computes logits for all of them. Here the output head gets only the hidden states that are
needed, in packed and in padded batches. `seal.train.log_probs` computes the log probabilities; it
needs no flash-attn.

An update's loss is a mean over the dialogues, or over the tokens, of all ranks and micro-batches.
verl takes the number of dialogues from the recipe, padding included. Here they are counted.

If the loss has only advantages in it, an update leaves out dialogues whose advantages are all 0, as
in a group that all passed or all failed: their gradient is 0.

Every process that reads the model configuration imports the module, through
`actor_rollout_ref.model.external_lib`. verl looks for an engine of the vendor first and for one of
the device next, so this one, for NVIDIA, replaces none. `seal.train.cpu.engine` is for the CPU.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from tensordict import TensorDict
from verl.utils import tensordict_utils
from verl.utils.device import get_device_id
from verl.workers.engine.base import EngineRegistry
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead
from verl.workers.utils.losses import ppo_loss

from seal.train.log_probs import give_head_rows, token_log_probs

_BY_VERL = ("use_fused_kernels", "distillation_use_topk", "calculate_sum_pi_squared")
"""What a batch may ask for that only verl's own code computes."""


@EngineRegistry.register(
    model_type="language_model", backend=["fsdp2"], device="cuda", vendor="nvidia"
)
class PolicyTokensEngine(FSDPEngineWithLMHead):
    """FSDP2; logits, log probabilities and entropy only of the tokens that the policy wrote."""

    head_rows: torch.Tensor | None = None
    """Rows of the flattened hidden states (rows x columns of the model's input, in this order) for
    the output head in the next forward pass; None: all."""

    def forward_backward_batch(
        self, data: TensorDict, loss_function: Callable[..., Any], forward_only: bool = False
    ) -> Any:
        """verl's; an update is without the dialogues that do not change the gradient.

        The loss is still a mean over all dialogues, or over the tokens of all dialogues. A row of
        padding is no dialogue. verl's other figures of an update (actor/ppo_kl, actor/pg_clipfrac)
        are means over the remaining micro-batches.
        """
        if forward_only:
            return super().forward_backward_batch(data, loss_function, forward_only)
        written = torch.stack([row.sum() for row in data["loss_mask"].unbind()])
        add = torch.distributed.ReduceOp.SUM
        tokens = self._over_ranks(written.sum(), add)
        dialogues = max(1, self._over_ranks((written > 0).sum(), add))

        def loss_of_all(model_output: Any, data: TensorDict, dp_group: Any = None) -> Any:
            tensordict_utils.assign_non_tensor(
                data, batch_num_tokens=tokens, global_batch_size=dialogues
            )
            return loss_function(model_output=model_output, data=data, dp_group=dp_group)

        if not _is_of_advantages(loss_function, data):
            return super().forward_backward_batch(data, loss_of_all, forward_only)
        pulls = torch.tensor([bool(row.any()) for row in data["advantages"].unbind()])
        # All ranks must have the same number of micro-batches, and at least one.
        wanted = self._over_ranks(pulls.sum().clamp(min=1), torch.distributed.ReduceOp.MAX)
        if not _flag(data, "use_dynamic_bsz", True):
            size = int(tensordict_utils.get_non_tensor_data(data, "micro_batch_size_per_gpu", 1))
            wanted = -(-wanted // size) * size
        kept = pulls.to(torch.int).argsort(descending=True, stable=True)[:wanted].sort().values
        some = tensordict_utils.index_select_tensor_dict(data, kept)
        return super().forward_backward_batch(some, loss_of_all, forward_only)

    def _over_ranks(self, number: torch.Tensor, how: Any) -> int:
        number = number.to(get_device_id())
        torch.distributed.all_reduce(number, op=how, group=self.get_data_parallel_group())
        return int(number)

    def prepare_model_inputs(
        self, micro_batch: TensorDict
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """verl's, and which hidden states are needed."""
        inputs, arguments = super().prepare_model_inputs(micro_batch)
        self.head_rows = None
        if self.use_ulysses_sp or any(_flag(micro_batch, name, False) for name in _BY_VERL):
            return inputs, arguments
        places = policy_places(micro_batch)
        offsets = micro_batch["input_ids"].offsets()
        row = torch.bucketize(places, offsets[1:], right=True)
        arguments["places"], arguments["temperature_of_places"] = (
            places,
            _temperatures(micro_batch, len(offsets) - 1, places.device)[row],
        )
        if _flag(micro_batch, "use_remove_padding", True):
            self.head_rows = places
            return inputs, arguments
        columns = inputs["input_ids"].shape[1]
        self.head_rows = row * columns + places - offsets[row]
        # A token does not see what follows it, so padding on the right needs no mask, and the
        # positions of every row start at 0. Without both arguments attention is faster.
        inputs["attention_mask"] = inputs["position_ids"] = None
        return inputs, arguments

    def prepare_model_outputs(
        self,
        output: Any,
        output_args: dict[str, Any],
        micro_batch: TensorDict,
        logits_processor_func: Any,
    ) -> dict[str, torch.Tensor]:
        """Log probability (and entropy) of each next token; 0 if the policy did not write it."""
        if "places" not in output_args:
            by_verl: dict[str, torch.Tensor] = super().prepare_model_outputs(
                output, output_args, micro_batch, logits_processor_func
            )
            return by_verl
        places, ids = output_args["places"], micro_batch["input_ids"]
        with_entropy = _flag(micro_batch, "calculate_entropy", False)
        log_probs, entropy = token_log_probs(
            output.logits.squeeze(0),
            ids.values()[places + 1],
            output_args["temperature_of_places"],
            entropy=with_entropy,
        )
        computed = {"log_probs": log_probs, **({"entropy": entropy} if with_entropy else {})}
        return {name: _spread(values, places, ids) for name, values in computed.items()}

    def _build_module(self) -> torch.nn.Module:
        return give_head_rows(super()._build_module(), lambda: self.head_rows)


def _is_of_advantages(loss_function: Callable[..., Any], data: TensorDict) -> bool:
    """Whether a dialogue without advantages adds nothing to the loss, and entropy is not logged."""
    if not isinstance(loss_function, partial) or loss_function.func is not ppo_loss:
        return False
    config = loss_function.keywords["config"]
    return bool(
        not config.use_kl_loss
        and not config.entropy_coeff
        and config.policy_loss.get("loss_mode", "vanilla") == "vanilla"
        and not _flag(data, "calculate_entropy", False)
    )


def policy_places(micro_batch: TensorDict) -> torch.Tensor:
    """Places in `input_ids.values()` before a token of the policy: shape (n,), ascending.

    A batch of padding has no such token. It gets one place, because a model needs an input.

    Args:
        micro_batch: With nested `prompts`, `input_ids`, and `loss_mask` over response tokens.
    """
    mask, ids = micro_batch["loss_mask"], micro_batch["input_ids"]
    lengths = mask.offsets().diff()
    first = ids.offsets()[:-1] + micro_batch["prompts"].offsets().diff() - 1
    within = torch.arange(len(mask.values()), device=first.device)
    within = within - mask.offsets()[:-1].repeat_interleave(lengths)
    places = (first.repeat_interleave(lengths) + within)[mask.values().bool()]
    return places if len(places) else places.new_zeros(1)


def _spread(values: torch.Tensor, places: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """Values (n,) at their places in a tensor nested like `ids`, 0 elsewhere."""
    flat = values.new_zeros(len(ids.values())).index_copy(0, places, values)
    return torch.nested.nested_tensor_from_jagged(flat, ids.offsets())


def _temperatures(micro_batch: TensorDict, rows: int, device: torch.device) -> torch.Tensor:
    given = micro_batch["temperature"]
    if not isinstance(given, torch.Tensor):
        return torch.full((rows,), float(given), device=device)
    return given.to(device, torch.float32)


def _flag(micro_batch: TensorDict, name: str, default: bool) -> bool:
    return bool(tensordict_utils.get_non_tensor_data(micro_batch, name, default))
