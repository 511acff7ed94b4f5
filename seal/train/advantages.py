"""Advantages of a round times their weights (paper section 3.4), and what that does to them.

In: verl's GRPO advantages, one tensor for each rollout, and the weights of
`seal.coevolution.weights.batch_weights`. Out: the weighted advantages and their metrics.
"""

from collections.abc import Sequence
from statistics import fmean

import torch

from seal.coevolution.rollout import Rollout
from seal.coevolution.weights import WeightConfig, applies

PER_DIALOGUE = "seq-mean-token-mean"
"""verl's `loss_agg_mode` in which every dialogue counts the same, however long it is."""


def weighted(
    advantage: torch.Tensor, rollout: Rollout, by_turn: Sequence[float], config: WeightConfig
) -> torch.Tensor:
    """The advantages w_j * A_j of one rollout.

    Args:
        advantage: Shape (response tokens,). GRPO gives every token that the policy wrote the same
            value, and 0 to the others.
        rollout: Says which tokens belong to which turn.
        by_turn: The weight of each turn; all are equal in scope "trajectory".
        config: Scope, and the sign of the advantages that are weighted.
    """
    if not applies(float(advantage.sum()), config):
        return advantage
    if config.scope == "trajectory":
        return advantage * by_turn[0]
    weights = token_weights(rollout.turn_spans, by_turn, len(advantage))
    return advantage * torch.tensor(weights, dtype=advantage.dtype)


def token_weights(
    spans: Sequence[tuple[int, int, int]], by_turn: Sequence[float], length: int
) -> list[float]:
    """One weight for each response token: that of its turn, 1.0 if the policy did not write it.

    >>> token_weights([(0, 0, 2), (1, 3, 4)], [0.5, 2.0], length=5)
    [0.5, 0.5, 1.0, 2.0, 1.0]
    """
    weights = [1.0] * length
    for turn, start, end in spans:
        end = min(end, length)
        weights[start:end] = [by_turn[turn]] * max(0, end - start)
    return weights


def pulls(
    advantages: Sequence[torch.Tensor], masks: Sequence[torch.Tensor], aggregation: str
) -> list[float]:
    """What each rollout's advantages add to the loss, up to a factor of the whole batch.

    verl's seq-mean-token-mean adds the mean over the tokens of each rollout, its other modes add
    the tokens of all rollouts.

    >>> advantages = [torch.tensor([1.0, 1.0, 0.0]), torch.tensor([-1.0])]
    >>> masks = [torch.tensor([1, 1, 0]), torch.tensor([1])]
    >>> pulls(advantages, masks, "token-mean"), pulls(advantages, masks, "seq-mean-token-mean")
    ([2.0, -1.0], [1.0, -1.0])
    """
    sums = [float(advantage.sum()) for advantage in advantages]
    if aggregation != PER_DIALOGUE:
        return sums
    return [total / max(1.0, float(mask.sum())) for total, mask in zip(sums, masks, strict=True)]


def balanced(
    advantages: Sequence[torch.Tensor],
    weights: Sequence[tuple[float, ...]],
    groups: Sequence[str],
    masks: Sequence[torch.Tensor],
    aggregation: str,
) -> tuple[list[torch.Tensor], list[tuple[float, ...]]]:
    """Advantages and weights such that each group's advantages add up to 0 in the loss.

    The negative ones are scaled, so no advantage changes its sign. GRPO's advantages add up to 0
    over a group's rollouts. With weights they do not, if failures weigh more. In a mean over tokens
    they do not, if failures are longer than passes. Then a round pushes down more than it pushes up
    (`seal/advantage/net_after` is negative). This variant is the project's own.

    The factors have no bound: failures that pull much less than the passes get large weights.

    Args:
        advantages: The weighted advantages of each rollout, shape (response tokens,), of one sign.
        weights: The weight of each turn of each rollout.
        groups: The GRPO group of each rollout. A group whose advantages do not have both signs
            stays as it is.
        masks: 1 where the policy wrote, 0 elsewhere; the same shapes.
        aggregation: verl's `loss_agg_mode`.
    """
    by_rollout = pulls(advantages, masks, aggregation)
    positive: dict[str, float] = {}
    negative: dict[str, float] = {}
    for group, pull in zip(groups, by_rollout, strict=True):
        side = positive if pull > 0 else negative
        side[group] = side.get(group, 0.0) + pull
    factors = [
        positive[group] / -negative[group]
        if pull < 0 and positive.get(group) and negative.get(group)
        else 1.0
        for group, pull in zip(groups, by_rollout, strict=True)
    ]
    return (
        [advantage * factor for advantage, factor in zip(advantages, factors, strict=True)],
        [
            tuple(weight * factor for weight in by_turn)
            for by_turn, factor in zip(weights, factors, strict=True)
        ],
    )


def advantage_metrics(
    before: Sequence[torch.Tensor],
    after: Sequence[torch.Tensor],
    masks: Sequence[torch.Tensor],
    log_probs: Sequence[torch.Tensor] | None,
    aggregation: str,
) -> dict[str, float]:
    """Size and sum of a batch's advantages, before and after they are weighted, and the entropy.

    The GRPO advantages of a group add up to 0 over its rollouts, but not over their tokens, and not
    with weights. `net` is what is left in the loss: the mean advantage of a dialogue or of a token,
    as the loss has it. 0: a round pushes up as much as it pushes down. `token_mean` is the mean
    advantage of a token that the policy wrote, for any loss.

    The entropy of the policy per token, in nats, is estimated without bias by the mean of minus the
    sampled log probabilities. verl's own figure takes another pass over the batch.

    Args:
        before: Advantages of each rollout, shape (response tokens,).
        after: The same, weighted.
        masks: 1 where the policy wrote, 0 elsewhere; the same shapes.
        log_probs: By the rollout engine, the same shapes; without them there is no entropy.
        aggregation: verl's `loss_agg_mode`.
    """
    written = max(1.0, sum(float(mask.sum()) for mask in masks))
    metrics = {}
    for name, advantages in (("before", before), ("after", after)):
        sizes = fmean(float(advantage.abs().mean()) for advantage in advantages)
        metrics[f"seal/advantage/mean_abs_{name}"] = sizes
        total = sum(float(advantage.sum()) for advantage in advantages)
        metrics[f"seal/advantage/token_mean_{name}"] = total / written
        among = len(masks) if aggregation.startswith("seq-mean") else written
        metrics[f"seal/advantage/net_{name}"] = sum(pulls(advantages, masks, aggregation)) / among
    if log_probs is not None:
        total = sum(float((log * mask).sum()) for log, mask in zip(log_probs, masks, strict=True))
        metrics["seal/entropy"] = -total / written
    return metrics
