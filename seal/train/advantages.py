"""Advantages of a round times their weights (paper section 3.4), and what that does to them.

In: verl's GRPO advantages, one tensor a trajectory, and the weights of
`seal.coevolution.weights.batch_weights`. Out: the weighted advantages and their metrics.
"""

from collections.abc import Sequence
from statistics import fmean

import torch

from seal.coevolution.weights import WeightConfig, applies
from seal.train.round import RolloutRecord, token_weights


def weighted(
    advantage: torch.Tensor, record: RolloutRecord, by_turn: Sequence[float], config: WeightConfig
) -> torch.Tensor:
    """The advantages w_j * A_j of one trajectory.

    Args:
        advantage: Shape (response tokens,). GRPO gives every token that the policy wrote the same
            value, and 0 to the others.
        record: Says which tokens belong to which turn.
        by_turn: The weight of each turn; all are equal in scope "trajectory".
        config: Scope, and the sign of the advantages that are weighted.
    """
    if not applies(float(advantage.sum()), config):
        return advantage
    if config.scope == "trajectory":
        return advantage * by_turn[0]
    weights = token_weights(record.turn_spans, by_turn, len(advantage))
    return advantage * torch.tensor(weights, dtype=advantage.dtype)


def balanced(
    advantages: Sequence[torch.Tensor], weights: Sequence[tuple[float, ...]], groups: Sequence[str]
) -> tuple[list[torch.Tensor], list[tuple[float, ...]]]:
    """Advantages and weights such that each group's advantages add up to 0 over its tokens.

    The negative ones are scaled, so no advantage changes its sign. GRPO's advantages add up to 0
    over a group's rollouts. They do not over its tokens, if failures are longer than passes, and
    not with weights, if failures weigh more. Then a round pushes down more than it pushes up
    (`seal/advantage/token_mean_after` is negative). This variant is the project's own.

    The factors have no bound: failures that are much shorter than the passes get large weights.

    Args:
        advantages: The weighted advantages of each rollout, shape (response tokens,), of one sign.
        weights: The weight of each turn of each rollout.
        groups: The GRPO group of each rollout. A group whose advantages do not have both signs
            stays as it is.
    """
    sums = [float(one.sum()) for one in advantages]
    positive: dict[str, float] = {}
    negative: dict[str, float] = {}
    for group, total in zip(groups, sums, strict=True):
        side = positive if total > 0 else negative
        side[group] = side.get(group, 0.0) + total
    factors = [
        positive[group] / -negative[group]
        if total < 0 and positive.get(group) and negative.get(group)
        else 1.0
        for group, total in zip(groups, sums, strict=True)
    ]
    return (
        [one * factor for one, factor in zip(advantages, factors, strict=True)],
        [
            tuple(weight * factor for weight in one)
            for one, factor in zip(weights, factors, strict=True)
        ],
    )


def advantage_metrics(
    before: Sequence[torch.Tensor],
    after: Sequence[torch.Tensor],
    masks: Sequence[torch.Tensor],
    log_probs: Sequence[torch.Tensor] | None,
) -> dict[str, float]:
    """Size and sum of a batch's advantages, before and after they are weighted, and the entropy.

    The GRPO advantages of a group add up to 0 over its rollouts, but not over their tokens, and not
    with weights. `token_mean` is the mean advantage of a token that the policy wrote.

    The entropy of the policy per token, in nats, is estimated without bias by the mean of minus the
    sampled log probabilities. verl's own figure takes another pass over the batch.

    Args:
        before: Advantages of each trajectory, shape (response tokens,).
        after: The same, weighted.
        masks: 1 where the policy wrote, 0 elsewhere; the same shapes.
        log_probs: By the rollout engine, the same shapes; without them there is no entropy.
    """
    written = max(1.0, sum(float(mask.sum()) for mask in masks))
    metrics = {}
    for name, advantages in (("before", before), ("after", after)):
        sizes = fmean(float(one.abs().mean()) for one in advantages)
        metrics[f"seal/advantage/mean_abs_{name}"] = sizes
        total = sum(float(one.sum()) for one in advantages)
        metrics[f"seal/advantage/token_mean_{name}"] = total / written
    if log_probs is not None:
        total = sum(float((one * mask).sum()) for one, mask in zip(log_probs, masks, strict=True))
        metrics["seal/entropy"] = -total / written
    return metrics
