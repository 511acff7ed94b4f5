"""Going on with an interrupted run: `--resume`.

In: the recipe as it would run now, and what the run left behind: its recorded configuration and
its checkpoints. Out: the step to go on from, or a sentence on why that would not be the same run.
"""

import os
import shlex
from collections.abc import Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from seal.launch import folders
from seal.launch.data_files import total_steps
from seal.launch.folders import RunError, record_folder, run_name
from seal.records.checkpoint_folder import (
    ABANDONED,
    BEST_FILE,
    best_step,
    checkpoint,
    is_whole,
    latest_whole,
    step_of,
)

CONFIG = "config.yaml"
"""Name of the resolved configuration in a launch's record."""
MAY_CHANGE = (
    "env_service.env_url",
    "env_service.token_file",
    "env_service.attempts",
    "launcher.*",
    "ray_kwargs.*",
    "seal.checkpoints*",
    "seal.run_id",
    "seal.start_gate*",
    "trainer.env_failure.*",
    "trainer.total_epochs",
    "trainer.total_training_steps",
    "trainer.val_before_train",
    "trainer.test_freq",
    "trainer.save_freq",
    "trainer.log_val_generations",
    "trainer.logger*",
    "trainer.max_actor_ckpt_to_keep",
    "trainer.max_critic_ckpt_to_keep",
    "trainer.resume_mode",
    "trainer.resume_from_path",
    # What fits into memory; the results do not depend on it beyond rounding.
    "env_service.max_dialogues",
    "*.gpu_memory_utilization",
    "*.*micro_batch_size_per_gpu",
    "*.max_num_seqs",
    "*.max_num_batched_tokens",
    "*.attn_implementation",
)
"""Keys, as patterns, that a resumed run may set to other values: length, addresses, memory."""
_SHOWN = 8


def set_resume_mode(recipe: DictConfig, overrides: Sequence[str], resume: bool) -> None:
    """Let `--resume` alone decide whether verl loads a checkpoint.

    Raises:
        RunError: An override decides it, too.
    """
    for override in overrides:
        if override.split("=", 1)[0].lstrip("+~") == "trainer.resume_mode":
            raise RunError(
                f"{override}: whether a run goes on is said by --resume alone (a checkpoint other "
                "than the latest: --resume -- trainer.resume_from_path=FOLDER/global_step_N)"
            )
    named = recipe.trainer.resume_from_path
    if named is not None and not resume:
        raise RunError(f"trainer.resume_from_path={named} is for --resume, which is not given")
    if named is not None:
        # verl takes what follows global_step_ for the number, a slash included.
        recipe.trainer.resume_from_path = os.path.normpath(str(named))
    recipe.trainer.resume_mode = (
        "disable" if not resume else "auto" if named is None else "resume_path"
    )


def check_resume(recipe: DictConfig) -> int:
    """Check that the run can go on with this recipe.

    Returns:
        The step of the checkpoint it goes on from.

    Raises:
        RunError: There is no whole checkpoint, the run has all its steps and their validations, the
            best checkpoint comes later, it is not known with what configuration it was started, or
            keys have changed that make it another run.
    """
    step = _checkpoint_step(recipe)
    last = total_steps(recipe)
    if last is not None and step >= last and not misses_last_validation(recipe, step):
        by_epochs = recipe.trainer.total_training_steps is None
        key = "total_epochs" if by_epochs else "total_training_steps"
        raise RunError(
            f"the run {run_name(recipe)!r} has all of its {last} steps; to make it longer: "
            f"-- trainer.{key}=N"
        )
    _check_best_stays(recipe, step)
    path = record_folder(recipe) / CONFIG
    if not path.is_file():
        raise RunError(
            f"{path.relative_to(folders.ROOT)} is not there: without the configuration that the "
            "run was started with, nothing tells whether this would be the same run"
        )
    changed = differences(OmegaConf.load(path), recipe)
    if changed:
        shown = "; ".join(changed[:_SHOWN])
        more = f"; and {len(changed) - _SHOWN} more" if len(changed) > _SHOWN else ""
        raise RunError(
            f"this is not the run that {path.relative_to(folders.ROOT)} records: {shown}{more}. "
            "Give --resume the recipe and overrides of the first launch, or start another run "
            "(-- trainer.experiment_name=NAME). Addresses, length, saving, validation frequency "
            "and memory settings may change"
        )
    return step


def misses_last_validation(recipe: DictConfig, step: int) -> bool:
    """Whether a run has all its steps and was interrupted before its last validation had ended."""
    trainer = recipe.trainer
    logged = trainer.test_freq > 0 and trainer.validation_data_dir is not None
    return logged and step == total_steps(recipe) and not is_validated(recipe, step)


def is_validated(recipe: DictConfig, step: int) -> bool:
    """Whether the validation after a step has been logged to its end."""
    folder = recipe.trainer.validation_data_dir
    if folder is None:
        return False
    try:
        return (folders.ROOT / str(folder) / f"{step}.jsonl").read_bytes().endswith(b"}\n")
    except OSError:
        return False


def differences(recorded: Any, recipe: DictConfig) -> list[str]:
    """Keys that change the run and differ, as "key is new (recorded: old)", sorted."""
    old, new = (dict(flat(OmegaConf.to_container(config))) for config in (recorded, recipe))
    nothing = "not there"
    return [
        f"{key} is {new.get(key, nothing)} (recorded: {old.get(key, nothing)})"
        for key in sorted(old.keys() | new.keys())
        if old.get(key, nothing) != new.get(key, nothing)
        and not any(fnmatch(key, pattern) for pattern in MAY_CHANGE)
    ]


def latest_checkpoint(recipe: DictConfig) -> Path | None:
    """The newest whole checkpoint of the run; one that was being written is passed over."""
    folder = _checkpoints(recipe)
    step = latest_whole(folder)
    return None if step is None else checkpoint(folder, step)


def how_to_resume(recipe: DictConfig, argv: Sequence[str]) -> str:
    """What to type after an interruption or failure.

    Args:
        recipe: Resolved recipe.
        argv: The launcher's arguments, without the program.
    """
    found, named = latest_checkpoint(recipe), recipe.trainer.resume_from_path
    if named is not None and (found is None or step_of(found) < step_of(Path(str(named)))):
        # A checkpoint of another folder was named, and none has been saved since.
        return f"nothing has been saved since {named}; to go on, give the same command again"
    if found is None:
        return (
            f"no checkpoint has been saved yet (trainer.save_freq={recipe.trainer.save_freq}), so "
            "the same command starts anew"
        )
    # A checkpoint that was named is behind the latest one by now, or is it: what came after it has
    # been put aside.
    kept = (w for w in argv if w != "--resume" and not w.startswith("trainer.resume_from_path="))
    words = ["--resume", *kept]
    return (
        f"steps up to {step_of(found)} are saved; to go on:\n"
        f"  .venv/bin/python launcher.py {shlex.join(words)}"
    )


def _checkpoint_step(recipe: DictConfig) -> int:
    named = recipe.trainer.resume_from_path
    if named is not None:
        path = folders.ROOT / str(named)
        if step_of(path) < 1 or not is_whole(path):
            raise RunError(
                f"trainer.resume_from_path={named} is no whole checkpoint: a folder global_step_N "
                "with actor/, data.pt and seal_state.json"
            )
        return step_of(path)
    found = latest_checkpoint(recipe)
    if found is None:
        raise RunError(
            f"nothing to resume: {recipe.trainer.default_local_dir} holds no whole checkpoint; "
            "leave --resume out to start the run"
        )
    return step_of(found)


def _check_best_stays(recipe: DictConfig, step: int) -> None:
    """Refuse to go back behind the best checkpoint, which would then no longer be the run's."""
    folder = _checkpoints(recipe)
    try:
        best = best_step(folder)
    except (ValueError, KeyError, TypeError):
        raise RunError(
            f"{folder / BEST_FILE} cannot be read; expected metric, score and step of the best "
            "checkpoint"
        ) from None
    if best is None or best <= step or not recipe.seal.checkpoints.keep_best:
        return
    if is_whole(checkpoint(folder, best)):
        raise RunError(
            f"a run that goes on from step {step} leaves the best checkpoint, of step {best}, "
            "behind; resume from a later one, choose another trainer.experiment_name, or set "
            f"seal.checkpoints.keep_best=false, which keeps it as {ABANDONED}global_step_{best}"
        )


def _checkpoints(recipe: DictConfig) -> Path:
    return folders.ROOT / str(recipe.trainer.default_local_dir)


def flat(node: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Keys with dots and their values; an empty section is a value."""
    if isinstance(node, dict) and node:
        for key, value in node.items():
            yield from flat(value, f"{prefix}.{key}" if prefix else str(key))
    else:
        yield prefix, node
