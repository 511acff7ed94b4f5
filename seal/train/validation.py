"""Validations: which suites are played, the start gate, and the best score.

In: the recipe, verl's loader of the validation data, and the metrics of a validation
(`seal.validation.metrics`). Out: the loader for one validation, and the loop's state with
the best score so far.

The start gate is what a policy must show before its first step, or training is refused. GRPO learns
only from groups with different rewards. A policy that hardly ever passes, or whose groups all pass
or all fail, has no such groups.

Suites that `seal.rare_suites` names are played only before the first step and after the last one. A
hundred held-out tasks take longer than many training steps, and between them only the suite that
chooses the best checkpoint is needed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch.utils.data import DataLoader, Subset

from seal.records.checkpoint_folder import Best
from seal.settings.rules import check_gate
from seal.settings.sections import Settings, StartGate
from seal.train.checkpoints import latest
from seal.train.errors import TrainingError
from seal.train.state import LoopState


def check_gate_possible(settings: Settings) -> None:
    """Check that the gate has a validation before training, which a resumed run does not need.

    Raises:
        SettingsError: This validation is switched off.
    """
    trainer = settings.trainer
    resumed = trainer.resume_mode == "resume_path" or (
        trainer.resume_mode == "auto" and latest(Path(trainer.default_local_dir)) is not None
    )
    check_gate(settings.seal.start_gate, trainer, resumed)


def check_start_gate(gate: StartGate | None, metrics: Mapping[str, float]) -> None:
    """Compare the validation before training with `seal.start_gate`.

    Raises:
        TrainingError: A figure is too low, or there is no such suite.
    """
    if gate is None:
        return
    for name, least in (
        ("pass_rate", gate.min_pass_rate),
        ("mixed_group_share", gate.min_mixed_group_share),
    ):
        key = f"val-seal/{gate.suite}/{name}"
        if key not in metrics:
            raise TrainingError(
                f"seal.start_gate.suite={gate.suite!r} is no suite of data.val_files"
            )
        measured = metrics[key]
        if measured < least:
            raise TrainingError(
                f"before training, suite {gate.suite!r} has {name} {measured:.2f}, the recipe "
                f"asks for at least {least:.2f} (seal.start_gate): most groups would be all "
                "pass or all fail and GRPO would have nothing to learn from"
            )


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
        TrainingError: The validation has no metric of that name.
    """
    if name not in metrics:
        known = ", ".join(key for key in metrics if key.startswith("val-seal/"))
        raise TrainingError(
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
