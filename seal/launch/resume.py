"""`--resume`: going on with an interrupted run.

In: the recipe of this launch, the run's recorded configuration and its checkpoints. Out: the step
to go on from, or an error that says why it would not be the same run.
"""

import json
import os
import shlex
from collections.abc import Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from seal.launch import folders, pools
from seal.launch.data_files import total_steps
from seal.launch.folders import RunError, checkpoint_folder, record_folder, run_name
from seal.records.checkpoint_folder import (
    ABANDONED,
    CheckpointError,
    checkpoint,
    is_complete,
    latest_complete,
    read_best,
    step_of,
)

CONFIG = "config.yaml"
"""Name of the resolved configuration in a launch's record."""
RECORD = "record.json"
"""Name of the other facts in it."""
POOLS = "pools"
"""Key of the pools of synthetic tasks there: name -> hash of the tasks."""
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
    # Memory settings: results stay the same up to rounding.
    "env_service.max_dialogues",
    "*.gpu_memory_utilization",
    "*.*micro_batch_size_per_gpu",
    "*.max_num_seqs",
    "*.max_num_batched_tokens",
    "*.attn_implementation",
)
"""Patterns of keys that a resumed run may change: length, addresses, memory."""
_SHOWN = 8
"""Changed keys that an error names."""


def set_resume_mode(recipe: DictConfig, overrides: Sequence[str], resume: bool) -> None:
    """Set verl's resume mode; only `--resume` decides whether verl loads a checkpoint.

    Raises:
        RunError: An override sets the mode too, or names a checkpoint without `--resume`.
    """
    for override in overrides:
        if override.split("=", 1)[0].lstrip("+~") == "trainer.resume_mode":
            raise RunError(
                f"{override}: only --resume decides whether a run goes on (for another checkpoint "
                "than the latest: --resume -- trainer.resume_from_path=FOLDER/global_step_N)"
            )
    named = recipe.trainer.resume_from_path
    if named is not None and not resume:
        raise RunError(f"trainer.resume_from_path={named} needs --resume")
    if named is not None:
        # verl takes all text after global_step_ as the number, including a slash at the end.
        recipe.trainer.resume_from_path = os.path.normpath(str(named))
    recipe.trainer.resume_mode = (
        "disable" if not resume else "auto" if named is None else "resume_path"
    )


def check_resume(recipe: DictConfig) -> int:
    """Check that the run can go on with this recipe; returns the step that it goes on from.

    Raises:
        RunError: There is no whole checkpoint, the run has all its steps and their validations, the
            best checkpoint is of a later step, the configuration of the first launch was not
            recorded, or a key has changed that makes it another run.
    """
    step = checkpoint_step(recipe)
    last = total_steps(recipe)
    if last is not None and step >= last and not (step == last and misses_validation(recipe, step)):
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
            f"{path.relative_to(folders.ROOT)} does not exist: it has the configuration of the "
            "first launch, and without it nobody knows whether this would be the same run"
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
    check_same_pools(recipe)
    return step


def check_same_pools(recipe: DictConfig) -> None:
    """Check that the pools of synthetic tasks are those of the first launch.

    A pool that is not there is left aside: it may still be made.

    Raises:
        RunError: A pool has other tasks.
    """
    path = record_folder(recipe) / RECORD
    try:
        recorded = json.loads(path.read_text("utf-8"))[POOLS]
    except (OSError, ValueError, KeyError, TypeError) as error:
        if pools.needed(recipe):
            raise RunError(
                f"{path.relative_to(folders.ROOT)} does not say which synthetic tasks the run "
                f"has had ({type(error).__name__}: {error}); start another run "
                "(-- trainer.experiment_name=NAME)"
            ) from None
        return
    there = [name for name in pools.needed(recipe) if not pools.missing_files(name, False)]
    for name, sha256 in pools.hashes_of(tuple(there)).items():
        if recorded.get(name) != sha256:
            raise RunError(
                f"the pool {name} is not the one that the run began with (its tasks have the hash "
                f"{sha256:.12}, {path.relative_to(folders.ROOT)} has {recorded.get(name)!s:.12}): "
                "make it again as it was, or start another run (-- trainer.experiment_name=NAME)"
            )


def misses_validation(recipe: DictConfig, step: int) -> bool:
    """Whether a run was interrupted before the validation that was due after a step ended.

    A validation has ended when its log is complete. A run without a folder for these logs counts as
    validated.
    """
    trainer = recipe.trainer
    if trainer.test_freq <= 0 or trainer.validation_data_dir is None:
        return False
    if step % trainer.test_freq != 0 and step != total_steps(recipe):
        return False
    log = folders.ROOT / str(trainer.validation_data_dir) / f"{step}.jsonl"
    try:
        return not log.read_bytes().endswith(b"}\n")
    except OSError:
        return True


def differences(recorded: Any, recipe: DictConfig) -> list[str]:
    """Changed keys that make it another run, as "key is new (recorded: old)", sorted."""
    old, new = (dict(flat(OmegaConf.to_container(config))) for config in (recorded, recipe))
    absent = "not there"
    return [
        f"{key} is {new.get(key, absent)} (recorded: {old.get(key, absent)})"
        for key in sorted(old.keys() | new.keys())
        if old.get(key, absent) != new.get(key, absent)
        and not any(fnmatch(key, pattern) for pattern in MAY_CHANGE)
    ]


def how_to_resume(recipe: DictConfig, argv: Sequence[str]) -> str:
    """Tell the user how to go on after an interruption or a failure of a launch with `argv`."""
    saved, named = latest_complete(checkpoint_folder(recipe)), recipe.trainer.resume_from_path
    if named is not None and (saved is None or saved < step_of(Path(str(named)))):
        # The checkpoint was of another folder, and this run has saved none.
        return f"nothing has been saved since {named}; to go on, give the same command again"
    if saved is None:
        return (
            f"no checkpoint has been saved yet (trainer.save_freq={recipe.trainer.save_freq}), so "
            "the same command starts from the beginning"
        )
    # The command goes on from the latest checkpoint, so resume_from_path is dropped. The checkpoint
    # that it names is the latest or older, because later ones were set aside at the start.
    kept = (w for w in argv if w != "--resume" and not w.startswith("trainer.resume_from_path="))
    words = ["--resume", *kept]
    return (
        f"steps up to {saved} are saved; to go on:\n"
        f"  .venv/bin/python launcher.py {shlex.join(words)}"
    )


def checkpoint_step(recipe: DictConfig) -> int:
    """Step of the checkpoint that a resumed run goes on from: the named one, or the latest.

    Raises:
        RunError: There is no whole checkpoint.
    """
    named = recipe.trainer.resume_from_path
    if named is not None:
        path = folders.ROOT / str(named)
        if step_of(path) < 1 or not is_complete(path):
            raise RunError(
                f"trainer.resume_from_path={named} is not a whole checkpoint; expected a folder "
                "global_step_N with actor/, data.pt and seal_state.json"
            )
        return step_of(path)
    latest = latest_complete(checkpoint_folder(recipe))
    if latest is None:
        raise RunError(
            f"nothing to resume: {recipe.trainer.default_local_dir} has no whole checkpoint; omit "
            "--resume to start the run"
        )
    return latest


def _check_best_stays(recipe: DictConfig, step: int) -> None:
    """Refuse to go on from a step before the best checkpoint, which would then be set aside."""
    folder = checkpoint_folder(recipe)
    try:
        best = read_best(folder)
    except CheckpointError as error:
        raise RunError(str(error)) from None
    if best is None or best.step <= step or not recipe.seal.checkpoints.keep_best:
        return
    if is_complete(checkpoint(folder, best.step)):
        raise RunError(
            f"a run that goes on from step {step} loses the best checkpoint, which is of step "
            f"{best.step}; resume from a later step, choose another trainer.experiment_name, or "
            "set seal.checkpoints.keep_best=false, which keeps it as "
            f"{ABANDONED}global_step_{best.step}"
        )


def flat(node: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted keys of nested dictionaries with their values; an empty dictionary is a value."""
    if isinstance(node, dict) and node:
        for key, value in node.items():
            yield from flat(value, f"{prefix}.{key}" if prefix else str(key))
    else:
        yield prefix, node
