"""The engine's log probabilities against verl's own, in values and gradients, padded and packed."""

from functools import partial
from typing import Any

import pytest
import torch
import torch.distributed
from policy_updates import MODELS, batch, engine, nested
from tensordict import TensorDict
from verl.workers.config import ActorConfig
from verl.workers.engine.base import EngineRegistry
from verl.workers.engine.fsdp import transformer_impl
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead
from verl.workers.utils.losses import ppo_loss

import seal.train.engine
from seal.train.cpu.engine import CpuFSDPEngine
from seal.train.engine import PolicyTokensEngine, policy_places
from seal.train.log_probs import give_head_rows

ROWS = (
    # Prompt tokens, and where the policy wrote among the response tokens.
    (5, [1, 1, 0, 0, 1]),
    (9, [1, 1, 1]),
    (3, [0, 1, 1, 1, 0, 0, 0, 1, 1]),
)


def played(kind: type[FSDPEngineWithLMHead], make: Any, data: TensorDict) -> Any:
    """A model with the same weights each time, the rows that its head was given, the outputs."""
    torch.manual_seed(2)
    model, made, seen = make(), engine(kind), []
    if isinstance(made, PolicyTokensEngine):
        give_head_rows(model, lambda: made.head_rows)
    model.lm_head.register_forward_hook(lambda _, given, __: seen.append(given[0].shape[:2]))
    inputs, arguments = made.prepare_model_inputs(data)
    output = model(**inputs, use_cache=False)
    return model, seen, made.prepare_model_outputs(output, arguments, data, None)


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
@pytest.mark.parametrize("packed", [True, False], ids=["packed", "padded"])
@pytest.mark.parametrize("rows", [ROWS, ROWS[:1]], ids=["three", "one"])
@pytest.mark.parametrize("temperature", [1.0, 0.7, torch.tensor([0.5, 1.0, 2.0])], ids=str)
def test_the_policys_log_probabilities_and_their_gradients_are_verls(
    name: str, packed: bool, rows: Any, temperature: Any
) -> None:
    if isinstance(temperature, torch.Tensor):
        temperature = temperature[: len(rows)]
    gradients, found = [], []
    for kind in (FSDPEngineWithLMHead, PolicyTokensEngine):
        data = batch(rows, packed, temperature, calculate_entropy=True)
        model, _, output = played(kind, MODELS[name], data)
        taken = {what: of_policy(output[what], data) for what in ("log_probs", "entropy")}
        (taken["log_probs"].sum() + 0.3 * taken["entropy"].sum()).backward()
        gradients.append([one.grad for one in model.parameters()])
        found.append(taken)
    theirs, ours = found
    for what in ("log_probs", "entropy"):
        assert torch.allclose(ours[what], theirs[what], atol=1e-5), what
    for one, other in zip(*gradients, strict=True):
        assert torch.allclose(one, other, atol=1e-5)
        assert one.abs().max() > 0


@pytest.mark.parametrize("packed", [True, False], ids=["packed", "padded"])
def test_elsewhere_there_is_nothing(packed: bool) -> None:
    data = batch(ROWS, packed)
    _, seen, output = played(PolicyTokensEngine, MODELS["llama"], data)
    values = output["log_probs"]
    assert values.is_nested and torch.equal(values.offsets(), data["input_ids"].offsets())
    assert "entropy" not in output
    # Three rows of 10, 12 and 12 tokens: prompt + response token - 1.
    places = [4, 5, 8, 10 + 8, 10 + 9, 10 + 10, *(22 + 2 + one for one in (1, 2, 3, 7, 8))]
    assert policy_places(data).tolist() == places
    assert (values.values() != 0).nonzero()[:, 0].tolist() == places
    # The output head saw these tokens and no others.
    assert seen == [(1, len(places))]


@pytest.mark.parametrize("packed", [True, False], ids=["packed", "padded"])
def test_a_batch_of_padding_is_no_error(packed: bool) -> None:
    data = batch([(4, [0, 0]), (2, [0])], packed)
    model, seen, output = played(PolicyTokensEngine, MODELS["llama"], data)
    assert output["log_probs"].values().shape == (9,) and seen == [(1, 1)]
    # Every rank has to have a backward pass.
    (output["log_probs"].values() * 0.0).sum().backward()
    assert all(one.grad is not None for one in model.parameters())


def test_what_only_verl_has_is_left_to_it() -> None:
    data = batch(ROWS, False, calculate_sum_pi_squared=True)
    _, seen, output = played(PolicyTokensEngine, MODELS["llama"], data)
    assert seen == [(3, 12)]
    assert output.keys() == {"log_probs", "sum_pi_squared"}


def test_each_device_gets_its_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    for device, vendor, kind in (
        ("cuda", "nvidia", PolicyTokensEngine),
        ("cuda", "amd", FSDPEngineWithLMHead),
        ("cpu", "generic", CpuFSDPEngine),
    ):
        monkeypatch.setenv("VERL_ENGINE_DEVICE", device)
        monkeypatch.setenv("VERL_ENGINE_VENDOR", vendor)
        assert EngineRegistry.get_engine_cls("language_model", "fsdp2") is kind


# ---- dialogues without an advantage ---------------------------------------------------------


@pytest.fixture
def on_the_processor(one_rank: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """In place of verl's default device."""
    for module in (transformer_impl, seal.train.engine):
        monkeypatch.setattr(module, "get_device_id", lambda: "cpu")
    monkeypatch.setattr(transformer_impl, "get_device_name", lambda: "cpu")


def updated(
    kind: type[FSDPEngineWithLMHead], advantages: Any, packed: bool, size: int, **settings: Any
) -> tuple[list[Any], list[int], dict[str, Any]]:
    """Gradients of an update, the rows of each of its forward passes, its metrics."""
    rows = (*ROWS, ROWS[0])
    data = batch(
        rows,
        packed,
        use_dynamic_bsz=False,
        micro_batch_size_per_gpu=size,
        global_batch_size=len(rows),
        calculate_entropy=settings.pop("calculate_entropy", False),
    )
    masks = data["loss_mask"].unbind()
    draw = torch.Generator().manual_seed(3)
    data["response_mask"] = data["loss_mask"]
    data["advantages"] = nested([one * mask for one, mask in zip(advantages, masks, strict=True)])
    data["old_log_probs"] = nested([-3.0 - torch.rand(len(mask), generator=draw) for mask in masks])
    config = ActorConfig(
        strategy="fsdp2", rollout_n=1, ppo_micro_batch_size_per_gpu=size, **settings
    )
    torch.manual_seed(2)
    made, passes = engine(kind), []
    made.module = MODELS["llama"]()
    made.module.register_forward_hook(
        lambda _, __, given, ___: passes.append(given["input_ids"].shape), with_kwargs=True
    )
    if isinstance(made, PolicyTokensEngine):
        give_head_rows(made.module, lambda: made.head_rows)
    made.ulysses_sequence_parallel_size = 1
    made._autocast_dtype = torch.float32
    made.get_data_parallel_group = lambda: None
    made.get_data_parallel_size = lambda: 1
    found = made.forward_backward_batch(data, partial(ppo_loss, config=config))
    return [one.grad for one in made.module.parameters()], passes, found["metrics"]


@pytest.mark.usefixtures("on_the_processor")
@pytest.mark.parametrize("packed", [True, False], ids=["packed", "padded"])
@pytest.mark.parametrize(
    ("pulling", "size", "passes"),
    [((0, 2), 1, 2), ((3,), 2, 1), ((), 1, 1), ((0, 1, 2), 2, 2), ((0, 1, 2, 3), 1, 4)],
    ids=["two", "one of two", "none", "three of four", "all"],
)
def test_dialogues_without_an_advantage_are_left_out_and_change_nothing(
    packed: bool, pulling: tuple[int, ...], size: int, passes: int
) -> None:
    advantages = [
        torch.randn(len(mask), generator=torch.Generator().manual_seed(number))
        if number in pulling
        else torch.zeros(len(mask))
        for number, (_, mask) in enumerate((*ROWS, ROWS[0]))
    ]
    theirs, of_verl, _ = updated(FSDPEngineWithLMHead, advantages, packed, size)
    ours, played, metrics = updated(PolicyTokensEngine, advantages, packed, size)
    assert len(of_verl) == 4 // size and len(played) == passes
    for one, other in zip(ours, theirs, strict=True):
        assert torch.allclose(one, other, atol=1e-6)
    assert any(one.abs().max() > 1e-3 for one in ours) == bool(pulling)
    assert {"actor/pg_loss", "actor/ppo_kl"} <= metrics.keys()


@pytest.mark.usefixtures("on_the_processor")
@pytest.mark.parametrize(
    "settings",
    [{"entropy_coeff": 0.01, "calculate_entropy": True}, {"calculate_entropy": True}],
    ids=["entropy pulls", "entropy is logged"],
)
def test_where_more_than_advantages_counts_all_dialogues_are_played(settings: Any) -> None:
    nothing = [torch.zeros(len(mask)) for _, mask in (*ROWS, ROWS[0])]
    _, played, _ = updated(PolicyTokensEngine, nothing, True, 1, **settings)
    assert len(played) == 4
