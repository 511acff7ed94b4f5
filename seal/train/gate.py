"""The start gate: what a policy must show before its first step, or training is refused.

In: the recipe, and the metrics of the validation before training. Out: nothing, or a
`StartGateError`. GRPO learns only from groups with different rewards. A policy that hardly ever
passes, or whose groups all pass or all fail, has no such groups. No torch here.
"""

from collections.abc import Mapping
from pathlib import Path

from seal.settings.rules import check_gate
from seal.settings.sections import Settings, StartGate
from seal.train import checkpoints


class StartGateError(Exception):
    """The policy passes too little, or too uniformly, for training to begin."""


def check_possible(settings: Settings) -> None:
    """Check that the gate has a validation before training, which a resumed run does not need.

    Raises:
        SettingsError: This validation is switched off.
    """
    trainer = settings.trainer
    resumed = trainer.resume_mode == "resume_path" or (
        trainer.resume_mode == "auto"
        and checkpoints.latest(Path(trainer.default_local_dir)) is not None
    )
    check_gate(settings.seal.start_gate, trainer, resumed)


def check(gate: StartGate | None, metrics: Mapping[str, float]) -> None:
    """Compare the validation before training with `seal.start_gate`.

    Raises:
        StartGateError: A figure is too low, or there is no such suite.
    """
    if gate is None:
        return
    for name, least in (
        ("pass_rate", gate.min_pass_rate),
        ("mixed_group_share", gate.min_mixed_group_share),
    ):
        key = f"val-seal/{gate.suite}/{name}"
        if key not in metrics:
            raise StartGateError(
                f"seal.start_gate.suite={gate.suite!r} is no suite of data.val_files"
            )
        measured = metrics[key]
        if measured < least:
            raise StartGateError(
                f"before training, suite {gate.suite!r} has {name} {measured:.2f}, the recipe "
                f"asks for at least {least:.2f} (seal.start_gate): most groups would be all "
                "pass or all fail and GRPO would have nothing to learn from"
            )
