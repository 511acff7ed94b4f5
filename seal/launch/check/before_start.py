"""The checks before every run. All of them run, so the user sees every problem at once.

In: the recipe and the options of the command line. Out: findings, or one `RunError` with all of
the errors.
"""

import dataclasses
from collections.abc import Callable, Iterator, Sequence

from omegaconf import DictConfig

from seal.launch import pools
from seal.launch.check import batches, gpus, host, inputs, kernels, software
from seal.launch.check.finding import Finding, Level, error, ok, sentences, tried
from seal.launch.check.machine import Machine
from seal.launch.check.model import Model
from seal.launch.folders import RunError, check_outputs_free
from seal.launch.resume import check_resume
from seal.launch.service import check_can_start, check_service
from seal.settings.sections import read_settings

Check = Callable[[DictConfig, Machine, Model], Iterator[Finding]]

POOLS = "synthetic tasks"
"""Subject of the finding on them."""
CHECKS: Sequence[Check] = (
    gpus.number,
    gpus.driver,
    gpus.capability,
    gpus.free_memory,
    gpus.planned_memory,
    software.flash_attention,
    software.linear_attention,
    software.compiler,
    host.processors,
    host.memory,
    host.shared_memory,
    host.open_files,
    host.disk,
    batches.batches,
    kernels.fused_kernels,
    kernels.dynamic_batches,
    inputs.model_folder,
    inputs.data,
    inputs.addresses,
    inputs.access_token,
    inputs.dialogues,
)
"""In the order of the table."""


def facts(recipe: DictConfig) -> tuple[Machine, Model]:
    """Read the facts; this takes seconds, because it tries to import modules.

    Raises:
        RunError: Ray cannot be imported.
    """
    model = Model.read(recipe)
    return Machine.read(recipe, software.needed_modules(recipe, model)), model


def judged(recipe: DictConfig, machine: Machine, model: Model) -> list[Finding]:
    """Findings on the recipe with these facts."""
    return [finding for check in CHECKS for finding in check(recipe, machine, model)]


def outside(recipe: DictConfig, with_bfcl: bool, resume: bool) -> Iterator[Finding]:
    """Findings on the run's folders, and on the service, which the run starts if `with_bfcl`."""
    if resume:
        yield tried("resume", lambda: check_resume(recipe), "the run can go on")
    else:
        yield tried("outputs", lambda: check_outputs_free(recipe), "the run's folders are free")
    yield from synthetic_tasks(recipe, with_bfcl)
    yield service(recipe, with_bfcl)


def synthetic_tasks(recipe: DictConfig, with_bfcl: bool) -> Iterator[Finding]:
    """The pools of synthetic tasks are there, or the run makes them, and it may use them."""
    commands = read_settings(recipe).launcher.build_tasks
    try:
        lacking = pools.missing(recipe, with_bfcl) if commands else []
        if lacking:
            makes = "; ".join(commands)
            yield ok(POOLS, f"{', '.join(lacking)}: not there; the run makes them: {makes}")
        elif found := pools.check_pools(recipe, with_bfcl):
            yield ok(POOLS, found)
    except RunError as failure:
        yield error(POOLS, str(failure))


def service(recipe: DictConfig, with_bfcl: bool) -> Finding:
    """Finding on the service: whether it can be started, or answers."""
    if with_bfcl:
        return tried("service", lambda: check_can_start(recipe), "can be started")
    finding = tried("service", lambda: _check_service(recipe), "healthy")
    if finding.level is Level.ERROR:
        message = f"{finding.message} (--with-bfcl starts one for the run)"
        return dataclasses.replace(finding, message=message)
    return finding


def _check_service(recipe: DictConfig) -> None:
    # What is missing is a finding of its own, or the run makes it and asks again.
    names = [name for name in pools.needed(recipe) if not pools.missing_files(name, False)]
    check_service(recipe, pools=pools.hashes_of(tuple(names)))


def require(recipe: DictConfig, with_bfcl: bool, resume: bool) -> list[str]:
    """Make all fast checks before a run; returns the warnings, a sentence each.

    Raises:
        RunError: The run cannot start; the error names every reason.
    """
    findings = judged(recipe, *facts(recipe))
    findings += outside(recipe, with_bfcl, resume)
    errors = sentences(findings, Level.ERROR)
    if errors:
        gap = " " if len(errors) == 1 else "\n  "
        raise RunError(gap.join(["this run cannot start:", *errors]))
    return sentences(findings, Level.WARNING)
