"""Settings that do not go together, although each of them is allowed.

In: typed settings. Out: nothing, or a `SettingsError`. The launcher asks before it starts anything,
and the trainer before it starts a worker.
"""

from collections.abc import Callable

from seal.settings.reading import SettingsError
from seal.settings.sections import Seal, Settings, StartGate, Trainer


def contradictions(settings: Settings) -> list[str]:
    """A sentence for each contradiction; a run that goes on has a checkpoint to go on from."""
    seal, trainer = settings.seal, settings.trainer
    resumed = trainer.resume_mode != "disable"
    rules: tuple[Callable[[], object], ...] = (
        lambda: keeps_best(settings),
        lambda: check_gate(seal.start_gate, trainer, resumed),
        lambda: check_best_metric(seal),
    )
    problems: list[str] = []
    for rule in rules:
        try:
            rule()
        except SettingsError as error:
            problems += error.problems
    return problems


def keeps_best(settings: Settings) -> bool:
    """Whether a run keeps the checkpoint with the highest `seal.best_metric`.

    If it saves none (`trainer.save_freq` below 1), there is no best one.

    Raises:
        SettingsError: Nothing would be kept, no validation would find the best checkpoint, or verl
            would delete it.
    """
    trainer, wanted = settings.trainer, settings.seal.checkpoints
    for key, value in (
        ("max_actor_ckpt_to_keep", trainer.max_actor_ckpt_to_keep),
        ("remove_previous_ckpt_in_save", trainer.remove_previous_ckpt_in_save),
    ):
        if value:
            raise SettingsError(
                f"trainer.{key}={value} would let verl delete the best checkpoint; set "
                "seal.checkpoints.keep_last instead"
            )
    if trainer.save_freq < 1:
        return False
    if not wanted.keep_best and wanted.keep_last == 0:
        raise SettingsError(
            "seal.checkpoints keeps neither the best checkpoint nor the last one; to save "
            "none, set trainer.save_freq=-1"
        )
    if wanted.keep_best and trainer.test_freq < 1:
        raise SettingsError(
            "seal.checkpoints.keep_best needs validations to find the best checkpoint, and "
            f"trainer.test_freq={trainer.test_freq} makes none; set it, or "
            "seal.checkpoints.keep_best=false"
        )
    return wanted.keep_best


def check_gate(gate: StartGate | None, trainer: Trainer, resumed: bool) -> None:
    """Check that the start gate has a validation, which a resumed run does not need.

    Raises:
        SettingsError: The validation before training is switched off.
    """
    if gate is not None and not trainer.val_before_train and not resumed:
        raise SettingsError(
            "seal.start_gate is checked on the validation before training, which "
            "trainer.val_before_train=false switches off; switch it on, or set "
            "seal.start_gate=null"
        )


def check_best_metric(seal: Seal) -> None:
    """Refuse a recipe that chooses its best checkpoint by a suite that is hardly ever played.

    Raises:
        SettingsError: `seal.best_metric` belongs to a rare suite.
    """
    # A name without a suite is refused by the first validation, which knows all metrics.
    suite = seal.best_metric.partition("/")[2].partition("/")[0]
    if suite in seal.rare_suites:
        raise SettingsError(
            f"seal.best_metric={seal.best_metric!r} belongs to a suite in seal.rare_suites, "
            "which is not played between training steps; name another metric or take the "
            "suite out"
        )
