"""Checks of the inputs of a run: model, data, service addresses, access token."""

import os
from collections.abc import Iterator
from urllib.parse import urlsplit

from omegaconf import DictConfig

from seal.client.access_token import TOKEN_VARIABLE, is_loopback
from seal.launch.check.finding import Finding, Level, error, ok, tried, warning
from seal.launch.check.machine import Machine
from seal.launch.check.model import Model
from seal.launch.data_files import data_files, total_steps
from seal.launch.service import token, urls


def model_folder(_recipe: DictConfig, _machine: Machine, model: Model) -> Iterator[Finding]:
    """The model exists with all files that a run needs, or the run makes it."""
    key = f"actor_rollout_ref.model.path={model.path}"
    if model.folder is None and model.made_by:
        yield ok(
            "model", f"{model.path} does not exist; the run makes it: {'; '.join(model.made_by)}"
        )
    elif model.folder is None and model.on_hub:
        yield warning(
            "model",
            f"{model.path} is not on this machine, so its prompts cannot be counted"
            + (", and its memory and disk space are unknown" if model.parameters is None else "")
            + "; the run would fetch it from the hub. To fetch it now: "
            f".venv/bin/hf download {model.path}",
        )
    elif model.folder is None:
        yield error(
            "model",
            f"{key} does not exist; docs/backbones.md says where each backbone's model comes from",
        )
    elif model.lacks:
        remedy = "delete the folder, and the run makes it" if model.made_by else "fetch it again"
        yield error("model", f"{key} is not complete: {'; '.join(model.lacks)} ({remedy})")
    elif model.lacks_generation_config:
        yield warning(
            "model",
            f"{key} has no generation_config.json, so only env_service.stop_tokens and the "
            "tokenizer say which tokens end a message",
        )
    else:
        size = "" if model.parameters is None else f", {model.parameters / 1e6:,.0f} million"
        yield ok("model", f"{model.path}: {model.config.get('model_type')}{size}")


def data(recipe: DictConfig, _machine: Machine, _model: Model) -> Iterator[Finding]:
    """The data files exist and can be read."""
    missing = [
        error(
            "data",
            f"data.{key}: {path} does not exist; make the data files with: "
            ".venv/bin/python scripts/prepare_bfcl.py",
        )
        for key in ("train_files", "val_files")
        for path in data_files(recipe, key)
        if not path.is_file()
    ]
    yield from missing or [tried("data", lambda: total_steps(recipe), "all files exist")]


def addresses(recipe: DictConfig, _machine: Machine, _model: Model) -> Iterator[Finding]:
    """The addresses of the service are well-formed, and every node can reach them."""
    finding = tried("addresses", lambda: urls(recipe), "")
    if finding.level is Level.ERROR:
        yield finding
        return
    loopback = [url for url in urls(recipe) if is_loopback(urlsplit(url).hostname or "")]
    nodes = int(recipe.trainer.nnodes)
    if loopback and nodes > 1:
        yield error(
            "addresses",
            f"env_service.env_url={loopback[0]} is a loopback address, and rollouts run on {nodes} "
            "nodes (trainer.nnodes), so the other nodes would not reach the service; start it with "
            "BFCL_HOST=0.0.0.0 and a token, and name an address that all reach (docs/running.md)",
        )
    else:
        yield ok("addresses", ", ".join(urls(recipe)))


def access_token(recipe: DictConfig, machine: Machine, _model: Model) -> Iterator[Finding]:
    """The access token of the services can be read, and reaches every worker."""
    name = recipe.env_service.token_file
    if machine.cluster is not None and name is None and os.environ.get(TOKEN_VARIABLE):
        yield error(
            "token",
            f"{TOKEN_VARIABLE} does not reach the nodes of the Ray cluster {machine.cluster}; name "
            "a file that all of them can read: env_service.token_file=FILE",
        )
    else:
        given = name is not None or os.environ.get(TOKEN_VARIABLE)
        yield tried("token", lambda: token(recipe), "given" if given else "none is given")


def dialogues(recipe: DictConfig, _machine: Machine, _model: Model) -> Iterator[Finding]:
    """How many dialogues there are at the same time."""
    most = recipe.env_service.max_dialogues
    yield ok("dialogues", "all rollouts of a batch at once" if most is None else f"{most} at once")
