"""The loss of an update against the published formula: verl's loss in this project's engine.

The published actor takes the token mean of each micro-batch, which is one dialogue, and averages
these means. With advantages A, ratio 1 and policy tokens T_j of dialogue j of N, the policy
gradient is that of

    L = -1/N sum_j 1/|T_j| sum_{t in T_j} A_jt log pi(a_jt)

whatever the micro-batches, their order, the ranks and the padding.
"""

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed
import torch.multiprocessing
from policy_updates import MODELS, gradients, rank_of_two, update, use_the_processor
from tensordict import TensorDict

from seal.launch.recipe import EXP, load_recipe

ROWS = (
    # Prompt tokens, and where the policy wrote among the response tokens.
    (5, [1, 1, 0, 0, 1]),
    (9, [1, 1, 1]),
    (3, [0, 1, 1, 1, 0, 0, 0, 1, 1]),
    (4, [1]),
)
PADDING = (6, [0, 0, 0])
"""verl fills up a batch with rows in which the policy wrote nothing."""
ADVANTAGES = (1.0, -0.5, -1.25, 0.75)


def published(model: Any, data: TensorDict, aggregation: str) -> torch.Tensor:
    """The formula, one dialogue at a time, with plain torch."""
    means, sums, count = [], [], 0
    for prompt, response, mask, advantages in zip(
        data["prompts"].unbind(),
        data["responses"].unbind(),
        data["loss_mask"].unbind(),
        data["advantages"].unbind(),
        strict=True,
    ):
        if not mask.any():
            continue
        ids = torch.cat([prompt, response])[None]
        logits = model(input_ids=ids).logits[0, len(prompt) - 1 : -1]
        taken = logits.log_softmax(-1).gather(1, response[:, None])[:, 0]
        sums.append((taken * advantages * mask).sum())
        means.append(sums[-1] / mask.sum())
        count += int(mask.sum())
    if aggregation == "token-mean":
        return -torch.stack(sums).sum() / count
    return -torch.stack(means).mean()


@pytest.fixture
def on_the_processor(one_rank: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """In place of verl's default device."""
    use_the_processor(monkeypatch.setattr)


@pytest.mark.usefixtures("on_the_processor")
@pytest.mark.parametrize("aggregation", ["seq-mean-token-mean", "token-mean"])
@pytest.mark.parametrize(
    "flags",
    [
        {"use_dynamic_bsz": False, "micro_batch_size_per_gpu": 1},
        {"use_dynamic_bsz": False, "micro_batch_size_per_gpu": 2},
        {"use_dynamic_bsz": False, "micro_batch_size_per_gpu": 4},
        # 10, 12, 12 and 5 tokens: three micro-batches of other sizes.
        {"use_dynamic_bsz": True, "max_token_len_per_gpu": 18},
    ],
    ids=["by one", "by two", "all at once", "dynamic"],
)
@pytest.mark.parametrize("advantages", [ADVANTAGES, (1.0, 0.0, -0.5, 0.0)], ids=["all", "two"])
def test_the_gradient_is_the_published_formulas(
    aggregation: str, flags: Any, advantages: Any
) -> None:
    # verl is told the size of a whole mini-batch, as by its trainer.
    data = update(ROWS, advantages, global_batch_size=len(ROWS), **flags)
    found, _, twin = gradients(data, aggregation)
    published(twin, data, aggregation).backward()
    for ours, plain in zip(found, twin.parameters(), strict=True):
        assert torch.allclose(ours, plain.grad, atol=1e-6)
    assert any(one.abs().max() > 1e-3 for one in found)


@pytest.mark.usefixtures("on_the_processor")
@pytest.mark.parametrize("aggregation", ["seq-mean-token-mean", "token-mean"])
def test_padding_and_a_mini_batch_that_is_not_full_change_nothing(aggregation: str) -> None:
    rows, advantages = (*ROWS[:2], PADDING, ROWS[2], PADDING), (*ADVANTAGES[:2], 0, -1.25, 0)
    flags: dict[str, Any] = {"use_dynamic_bsz": False, "micro_batch_size_per_gpu": 2}
    data = update(rows, advantages, global_batch_size=8, **flags)
    found, _, twin = gradients(data, aggregation)
    published(twin, data, aggregation).backward()
    for ours, plain in zip(found, twin.parameters(), strict=True):
        assert torch.allclose(ours, plain.grad, atol=1e-6)


@pytest.mark.usefixtures("on_the_processor")
def test_a_long_dialogue_counts_as_much_as_a_short_one() -> None:
    """What the published recipe has, and verl's token-mean has not."""
    flags: dict[str, Any] = {"use_dynamic_bsz": False, "micro_batch_size_per_gpu": 2}
    rows, advantages = (ROWS[2], ROWS[3]), (-1.0, 1.0)  # five tokens down, one token up
    losses = {
        aggregation: gradients(update(rows, advantages, global_batch_size=2, **flags), aggregation)[
            1
        ]
        for aggregation in ("seq-mean-token-mean", "token-mean")
    }
    # At a ratio of 1 the loss is minus the mean advantage.
    assert losses["seq-mean-token-mean"] == pytest.approx(0.0, abs=1e-6)
    assert losses["token-mean"] == pytest.approx((5 - 1) / 6)


@pytest.mark.usefixtures("on_the_processor")
@pytest.mark.parametrize("aggregation", ["seq-mean-token-mean", "token-mean"])
def test_two_ranks_make_the_gradient_of_one(tmp_path: Path, aggregation: str) -> None:
    arguments = (str(tmp_path), aggregation, ROWS, ADVANTAGES)
    torch.multiprocessing.spawn(rank_of_two, arguments, nprocs=2)
    found = torch.load(tmp_path / "gradients.pt")
    flags: Any = {"use_dynamic_bsz": False, "micro_batch_size_per_gpu": 1}
    rows = [  # The ranks draw tokens for themselves.
        update(list(ROWS)[half], list(ADVANTAGES)[half], global_batch_size=4, **flags)
        for half in (slice(0, 2), slice(2, 4))
    ]
    torch.manual_seed(2)
    twin = MODELS["llama"]()
    if aggregation == "token-mean":
        tokens = [int(one["loss_mask"].values().sum()) for one in rows]
        parts = [
            published(twin, one, aggregation) * count / sum(tokens)
            for one, count in zip(rows, tokens, strict=True)
        ]
    else:
        parts = [published(twin, one, aggregation) / 2 for one in rows]
    torch.stack(parts).sum().backward()
    for ours, plain in zip(found, twin.parameters(), strict=True):
        assert torch.allclose(ours, plain.grad, atol=1e-6)


@pytest.mark.parametrize("recipe", sorted(path.stem for path in EXP.glob("*.yaml")))
def test_every_recipe_has_the_published_loss(recipe: str) -> None:
    actor = load_recipe(EXP / f"{recipe}.yaml", []).actor_rollout_ref.actor
    assert actor.loss_agg_mode == "seq-mean-token-mean"
