"""All checks of `launcher.py --check`: the fast ones, and three that take up to minutes.

In: the recipe and the options of the command line. Out: findings. The slow checks count the prompts
of all tasks with the model's tokenizer, let the GPUs add a tensor, and ask the hub for a model that
is not on this machine.
"""

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import httpx
from huggingface_hub.constants import ENDPOINT, HF_HUB_OFFLINE
from omegaconf import DictConfig, OmegaConf

from seal.client.client import EnvironmentFault
from seal.launch import folders, pools
from seal.launch.check import before_start, gpus
from seal.launch.check.finding import Finding, Level, error, ok
from seal.launch.check.machine import Machine
from seal.launch.check.model import Model
from seal.launch.check.programs import Program, ask
from seal.launch.folders import RunError
from seal.launch.processes import Family
from seal.launch.service import start_service
from seal.launch.training import model_environment

PROMPTS_S = 900.0
"""Seconds to count the prompts of all tasks; 800 tasks take a minute or two."""
ALL_REDUCE_S = 120.0
"""Seconds for an all-reduce over all GPUs; it hangs if they cannot reach each other."""
HUB_S = 5.0
"""Seconds until the hub has to answer."""


def check(recipe: DictConfig, with_bfcl: bool, resume: bool, family: Family) -> list[Finding]:
    """Make every check; `resume`: the run would go on from a checkpoint.

    With `with_bfcl` the family starts the service to count the prompts, as a run would start it;
    the caller ends it.

    Raises:
        RunError: Ray cannot be imported.
    """
    machine, model = before_start.facts(recipe)
    findings = before_start.judged(recipe, machine, model)
    findings += before_start.outside(recipe, with_bfcl, resume)
    findings += all_reduce(recipe, machine)
    findings += hub(model)
    usable = {finding.subject for finding in findings if finding.level is not Level.ERROR}
    if before_start.POOLS in {finding.subject for finding in findings} - usable:
        return findings
    made_later = model.folder is None or pools.missing(recipe, with_bfcl)
    if not made_later and {"model", "data", "service", "token"} <= usable:
        findings += prompts(recipe, with_bfcl, family)
    return findings


def hub(model: Model) -> Iterator[Finding]:
    """The hub has the model, if it is not on this machine."""
    if model.folder is not None or not model.on_hub or model.made_by:
        return
    fetch = f"fetch it on a machine with a network: .venv/bin/hf download {model.path} --local-dir "
    fetch += "FOLDER, and name the folder: actor_rollout_ref.model.path=FOLDER"
    url = f"{ENDPOINT}/{model.path}/resolve/main/config.json"
    if HF_HUB_OFFLINE:
        yield error("hub", f"HF_HUB_OFFLINE is set, and the cache has no {model.path}; {fetch}")
        return
    try:
        answer = httpx.head(url, timeout=HUB_S, follow_redirects=True)
    except httpx.HTTPError as problem:
        yield error("hub", f"{ENDPOINT} does not answer ({problem}); {fetch}")
        return
    if answer.is_success:
        yield ok("hub", f"{ENDPOINT} has {model.path}")
    else:
        yield error(
            "hub",
            f"{ENDPOINT} answers {answer.status_code} for {model.path}: there is no such model, or "
            "it needs .venv/bin/hf auth login",
        )


def all_reduce(recipe: DictConfig, machine: Machine) -> Iterator[Finding]:
    """The GPUs of this machine can add a tensor together, as every update does with gradients."""
    count = int(recipe.trainer.n_gpus_per_node)
    able = machine.torch_cuda is not None and len(machine.gpus.seen) >= count
    if not able or not gpus.on_gpus(recipe, machine):
        return
    command = [sys.executable, "-m", "seal.launch.check.all_reduce", str(count)]
    answer = ask({"gpus": Program(command, folders.ROOT)}, ALL_REDUCE_S)["gpus"]
    if answer.failure:
        yield error(
            "all-reduce",
            f"{count} GPUs cannot add a tensor together: {answer.failure}; for details: "
            f"NCCL_DEBUG=INFO .venv/bin/python -m seal.launch.check.all_reduce {count}",
        )
    else:
        yield ok("all-reduce", answer.printed.strip())


def prompts(recipe: DictConfig, with_bfcl: bool, family: Family) -> Iterator[Finding]:
    """The prompts of all tasks fit; those of training with the largest learning interface."""
    with tempfile.TemporaryDirectory() as folder:
        config, log = Path(folder, "config.yaml"), Path(folder, "service.log")
        OmegaConf.save(recipe, config)
        if with_bfcl:
            try:
                start_service(recipe, family, log, pools.hashes(recipe))
            except (RunError, EnvironmentFault) as problem:
                yield error("service", str(problem))
                return
        command = [sys.executable, "-W", "ignore", "-m", "seal.backbone.prompt_budget", str(config)]
        program = Program(command, folders.ROOT, model_environment(recipe))
        answer = ask({"prompts": program}, PROMPTS_S)["prompts"]
    if answer.failure:
        yield error("prompts", answer.failure)
    else:
        yield ok("prompts", answer.printed.strip())
