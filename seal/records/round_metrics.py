"""Figures of one training round, for verl's loggers and the loop log.

In: the round's rollouts and their weights. Out: scalars under `seal/`, and turns by label. With
synthetic tasks, some of them for real and synthetic ones apart.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from seal.coevolution.rollout import Rollout
from seal.coevolution.weights import WeightConfig, mean_utility, weighed_turns
from seal.labels import FAILURES, Label
from seal.records.loop_log import exit_shares, mixed_group_share, turns_by_label


def round_metrics(
    rollouts: Sequence[Rollout],
    weights: Sequence[Sequence[float]],
    utilities: Mapping[Label, float],
    config: WeightConfig,
) -> dict[str, float]:
    """Scalars of a round: `weights` has those of each rollout's turns, `utilities` is rho(z)."""
    means = [fmean(by_turn) for by_turn in weights]
    failed = [turn for rollout in rollouts for turn in rollout.turns if turn.label in FAILURES]
    labels = Counter(label for rollout in rollouts for label in rollout.labels)
    turns = max(1, labels.total())
    share = config.cascade_share
    return {
        **{f"seal/label/{label.value}": labels[label] / turns for label in Label},
        "seal/pass_rate": fmean(rollout.reward for rollout in rollouts),
        "seal/training_reward": fmean(rollout.training_reward for rollout in rollouts),
        "seal/cascade_share": sum(turn.cascade for turn in failed) / max(1, len(failed)),
        "seal/weight/mean": fmean(means),
        "seal/weight/min": min(min(by_turn) for by_turn in weights),
        "seal/weight/max": max(max(by_turn) for by_turn in weights),
        "seal/weight/clipped_share": fmean(
            not config.w_min
            <= mean_utility(weighed_turns(rollout, config), utilities, share)
            <= config.w_max
            for rollout in rollouts
        ),
        # With failures_in_passes "as_failure", these faults raise a positive advantage.
        "seal/passed_with_failure_share": fmean(
            rollout.reward == 1.0 and any(label in FAILURES for label in rollout.labels)
            for rollout in rollouts
        ),
        "seal/truncated_share": fmean(rollout.truncated for rollout in rollouts),
        **exit_shares("seal/exit", [rollout.exit_status for rollout in rollouts]),
        "seal/environment_s_per_rollout": fmean(rollout.environment_s for rollout in rollouts),
    }


def label_counts(rollouts: Sequence[Rollout]) -> dict[str, dict[str, int]]:
    """Turns by category and label."""
    counts: dict[str, Counter[str]] = {}
    for rollout in rollouts:
        labels = (label.value for label in rollout.labels)
        counts.setdefault(rollout.category, Counter()).update(labels)
    return {category: dict(counter) for category, counter in sorted(counts.items())}


def by_source(rollouts: Sequence[Rollout], groups: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Figures of the real and of the synthetic tasks, each where there are any.

    `groups` is the GRPO group of each rollout. Without synthetic tasks there is nothing to tell
    apart, and no figure.
    """
    if not any(rollout.synthetic for rollout in rollouts):
        return {}
    parts: dict[str, list[tuple[str, Rollout]]] = {}
    for group, rollout in zip(groups, rollouts, strict=True):
        source = "synthetic" if rollout.synthetic else "real"
        parts.setdefault(source, []).append((group, rollout))
    return {source: _figures(part) for source, part in sorted(parts.items())}


def _figures(played: Sequence[tuple[str, Rollout]]) -> dict[str, Any]:
    rewards: dict[str, list[float]] = {}
    for group, rollout in played:
        rewards.setdefault(group, []).append(rollout.training_reward)
    rollouts = [rollout for _, rollout in played]
    return {
        "groups": len(rewards),
        "pass_rate": fmean(rollout.reward for rollout in rollouts),
        "mixed_group_share": mixed_group_share(rewards),
        "labels": dict(turns_by_label(label_counts(rollouts))),
    }
