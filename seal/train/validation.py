"""Validations: which suites are played, and the best score.

In: the recipe, verl's loader of the validation data, and the metrics of a validation
(`seal.validation.metrics`). Out: the loader for one validation, and the loop's state with
the best score so far.

Suites that `seal.rare_suites` names are played only before the first step and after the last one. A
hundred held-out tasks take longer than many training steps, and between them only the suite that
chooses the best checkpoint is needed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch.utils.data import DataLoader, Subset

from seal.records.checkpoint_folder import Best
from seal.train.state import LoopState


class MissingMetricError(Exception):
    """A validation did not give the metric that the best checkpoint is chosen by."""


def without_suites(loader: Any, rare: Sequence[str]) -> Any:
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
