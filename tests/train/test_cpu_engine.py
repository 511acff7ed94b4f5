"""The CPU engine's log probabilities against verl's own, in values and in gradients."""

from typing import Any

import pytest
import torch
from tensordict import TensorDict
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM
from verl.utils import tensordict_utils
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead

from seal.train.cpu.engine import CpuFSDPEngine, policy_positions

VOCABULARY = 50
SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "attn_implementation": "sdpa",
}
MODELS = {
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**SIZES)),
    "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(**SIZES, head_dim=8)),
}
ROWS = (
    # Prompt tokens, and where the policy wrote among the response tokens.
    (5, [1, 1, 0, 0, 1]),
    (9, [1, 1, 1]),
    (3, [0, 1, 1, 1, 0, 0, 0, 1, 1]),
)


def nested(rows: list[torch.Tensor]) -> torch.Tensor:
    return torch.nested.as_nested_tensor(rows, layout=torch.jagged)


def batch(rows: Any, **flags: Any) -> TensorDict:
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
    flags = {"use_remove_padding": False, "temperature": 1.0, **flags}
    tensordict_utils.assign_non_tensor(made, **flags)
    return made


def engine(kind: type[FSDPEngineWithLMHead]) -> Any:
    made = kind.__new__(kind)
    made.pad_to_length = None
    made.use_ulysses_sp = False
    made.engine_config = type("Config", (), {"entropy_checkpointing": False})()
    return made


def played(kind: type[FSDPEngineWithLMHead], model: Any, data: TensorDict) -> Any:
    made = engine(kind)
    inputs, arguments = made.prepare_model_inputs(data)
    output = model(**inputs, use_cache=False)
    return inputs, made.prepare_model_outputs(output, arguments, data, None)


def of_policy(values: torch.Tensor, data: TensorDict) -> torch.Tensor:
    """What stands before the policy's tokens, in the order of rows."""
    prompts = data["prompts"].offsets().diff().tolist()
    found = [
        row[mask.nonzero()[:, 0] + prompt - 1]
        for row, mask, prompt in zip(
            values.unbind(), data["loss_mask"].unbind(), prompts, strict=True
        )
    ]
    return torch.cat(found)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("rows", [ROWS, ROWS[:1]], ids=["three", "one"])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_the_policys_log_probabilities_and_their_gradients_are_verls(
    name: str, rows: Any, temperature: float
) -> None:
    torch.manual_seed(2)
    model = MODELS[name]()
    data = batch(rows, temperature=temperature, calculate_entropy=True)
    gradients, found = [], []
    for kind in (FSDPEngineWithLMHead, CpuFSDPEngine):
        model.zero_grad()
        _, output = played(kind, model, data)
        taken = {what: of_policy(output[what], data) for what in ("log_probs", "entropy")}
        (taken["log_probs"].sum() + 0.3 * taken["entropy"].sum()).backward()
        gradients.append([one.grad.clone() for one in model.parameters()])
        found.append(taken)
    theirs, ours = found
    for what in ("log_probs", "entropy"):
        assert torch.allclose(ours[what], theirs[what], atol=1e-5), what
    for one, other in zip(*gradients, strict=True):
        assert torch.allclose(one, other, atol=1e-5)
        assert one.abs().max() > 0


def test_elsewhere_there_is_nothing() -> None:
    model = MODELS["llama"]()
    data = batch(ROWS)
    _, output = played(CpuFSDPEngine, model, data)
    values = output["log_probs"]
    assert values.is_nested and torch.equal(values.offsets(), data["input_ids"].offsets())
    assert "entropy" not in output
    # The union of what the rows need, and no more.
    assert policy_positions(data).tolist() == [3, 4, 5, 8, 9, 10]
    (first,) = [row for row in values.unbind() if len(row) == 10]
    assert (first == 0).tolist() == [place not in (3, 4, 5, 8, 9) for place in range(10)]


def test_a_batch_of_padding_is_no_error() -> None:
    model = MODELS["llama"]()
    _, output = played(CpuFSDPEngine, model, batch([(4, [0, 0]), (2, [0])]))
    assert output["log_probs"].values().shape == (9,)


def test_logits_are_made_of_the_policys_tokens_alone() -> None:
    data = batch(ROWS[:1])
    inputs, _ = played(CpuFSDPEngine, MODELS["llama"](), data)
    assert inputs["logits_to_keep"].tolist() == [4, 5, 8]
    assert inputs["attention_mask"] is None


def test_what_only_verl_has_is_left_to_it() -> None:
    data = batch(ROWS, calculate_sum_pi_squared=True)
    inputs, output = played(CpuFSDPEngine, MODELS["llama"](), data)
    assert "logits_to_keep" not in inputs
    assert output.keys() == {"log_probs", "sum_pi_squared"}
