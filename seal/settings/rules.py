"""Settings that do not go together, although each of them is allowed.

In: typed settings. Out: nothing, or a `SettingsError`. The launcher asks before it starts anything,
and the trainer before it starts a worker.
"""

from collections.abc import Callable

from seal.settings.reading import SettingsError
from seal.settings.sections import Data, Seal, Settings, StartGate, Trainer


def contradictions(settings: Settings) -> list[str]:
    """A sentence for each contradiction; a run that goes on has a checkpoint to go on from."""
    seal, trainer = settings.seal, settings.trainer
    resumed = trainer.resume_mode != "disable"
    rules: tuple[Callable[[], object], ...] = (
        lambda: keeps_best(settings),
        lambda: check_gate(seal.start_gate, trainer, resumed),
        lambda: check_best_metric(seal),
        lambda: check_synthetic(settings.data),
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


def check_synthetic(data: Data) -> None:
    """Refuse settings of synthetic tasks that would do nothing.

    Raises:
        SettingsError: A share has no pool, a pool no share, or weights nothing to act on.
    """
    pool, share, refresh = data.synthetic_tasks, data.synthetic_share, data.synthetic_refresh
    problems: list[str] = []
    if share > 0 and pool is None:
        problems.append(
            f"data.synthetic_share={share} needs a pool of tasks; name one in "
            "data.synthetic_tasks, or set data.synthetic_share=0"
        )
    if pool is not None and share == 0:
        problems.append(
            f"data.synthetic_tasks={pool} does not act with data.synthetic_share=0; set the share "
            "of each batch, e.g. 0.5, or data.synthetic_tasks=null"
        )
    if refresh is not None and pool is None:
        problems.append(
            f"data.synthetic_refresh={refresh} does not act without a pool; name one in "
            "data.synthetic_tasks, or set data.synthetic_refresh=null"
        )
    if data.synthetic_choice == "shuffled" and refresh is None:
        problems.append(
            "data.synthetic_choice=shuffled does not act with data.synthetic_refresh=null, which "
            "draws all tasks alike; set data.synthetic_refresh, e.g. to 1"
        )
    if problems:
        raise SettingsError(*problems)
