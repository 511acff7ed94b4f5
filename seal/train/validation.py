"""Validations: which suites are played, the metrics of each, and the best score.

In: the recipe, verl's loader of the validation data, and the rollouts of a validation. Out: the
loader for one validation, metrics, and the loop's state with the best score so far.

Suites that `seal.rare_suites` names are played only before the first step and after the last one. A
hundred held-out tasks take longer than many training steps, and between them only the suite that
chooses the best checkpoint is needed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

from omegaconf import DictConfig
from torch.utils.data import DataLoader, Subset

from seal.records.checkpoint_folder import Best
from seal.train.round import exit_shares, mixed_group_share
from seal.train.state import LoopState


class SuiteError(Exception):
    """The recipe's best metric belongs to a rare suite; the message says which."""


class MissingMetricError(Exception):
    """A validation did not give the metric that the best checkpoint is chosen by."""


def check_best_metric(config: DictConfig) -> None:
    """Refuse a recipe that chooses its best checkpoint by a suite that is hardly ever played.

    Raises:
        SuiteError: `seal.best_metric` belongs to a rare suite.
    """
    # A name without a suite is refused by the first validation, which knows all metrics.
    suite = str(config.seal.best_metric).partition("/")[2].partition("/")[0]
    if suite in config.seal.rare_suites:
        raise SuiteError(
            f"seal.best_metric={config.seal.best_metric!r} belongs to a suite in seal.rare_suites, "
            "which is not played between training steps; name another metric or take the suite out"
        )


def without_suites(loader: Any, rare: list[str]) -> Any:
    """A loader of the rows of all other suites, in one batch.

    A rare suite that no row has is ignored.
    """
    if not rare:
        return loader
    infos = loader.dataset.dataframe["extra_info"]
    kept = [index for index, info in enumerate(infos) if info["suite"] not in rare]
    return DataLoader(
        Subset(loader.dataset, kept), batch_size=max(1, len(kept)), collate_fn=loader.collate_fn
    )


def validation_metrics(
    suites: Sequence[str],
    categories: Sequence[str],
    groups: Sequence[str],
    rewards: Sequence[float],
    exit_statuses: Sequence[str],
) -> dict[str, float]:
    """Scalars of a validation for verl's loggers, under `val-seal/<suite>/`.

    Each sequence has an entry for each rollout. A group is a GRPO group: the rollouts of one task.

    `category_average` is the paper's average: the unweighted mean of the categories' pass rates.

    >>> categories = ["base", "base", "miss"]
    >>> ends = ["completed", "step_limit", "completed"]
    >>> found = validation_metrics("bbb", categories, "xyz", [1.0, 0.0, 1.0], ends)
    >>> found["val-seal/b/category_average"], round(found["val-seal/b/pass_rate"], 3)
    (0.75, 0.667)
    """
    by_category: dict[str, dict[str, list[float]]] = {}
    by_group: dict[str, dict[str, list[float]]] = {}
    ends: dict[str, list[str]] = {}
    for suite, category, group, reward, exit_status in zip(
        suites, categories, groups, rewards, exit_statuses, strict=True
    ):
        by_category.setdefault(suite, {}).setdefault(category, []).append(reward)
        by_group.setdefault(suite, {}).setdefault(group, []).append(reward)
        ends.setdefault(suite, []).append(exit_status)
    metrics: dict[str, float] = {}
    for suite, of_category in by_category.items():
        every = [reward for group in by_group[suite].values() for reward in group]
        metrics |= {
            f"val-seal/{suite}/category_average": fmean(map(fmean, of_category.values())),
            f"val-seal/{suite}/pass_rate": fmean(every),
            f"val-seal/{suite}/mixed_group_share": mixed_group_share(by_group[suite]),
            f"val-seal/{suite}/truncated_share": fmean(one != "completed" for one in ends[suite]),
            **exit_shares(f"val-seal/{suite}/exit", ends[suite]),
        }
    return metrics


def scored(state: LoopState, metrics: Mapping[str, float], name: str, step: int) -> LoopState:
    """The state after a validation, with the best score so far.

    Step 0 is the model that training starts from, which is no checkpoint.

    Raises:
        MissingMetricError: The validation has no metric of that name.
    """
    if name not in metrics:
        known = ", ".join(key for key in metrics if key.startswith("val-seal/"))
        raise MissingMetricError(
            f"seal.best_metric={name!r} is no metric of this validation; there are: {known}"
        )
    best, score = state.best, metrics[name]
    if step == 0 or (best is not None and best.metric == name and best.score >= score):
        return state
    return replace(state, best=Best(name, score, step))


def best_metrics(state: LoopState) -> dict[str, float]:
    """The best score so far and its step, for verl's loggers; nothing before the first score."""
    if state.best is None:
        return {}
    return {"val-seal/best/score": state.best.score, "val-seal/best/step": state.best.step}
