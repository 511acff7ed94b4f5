"""A model folder behind a vLLM server of our own, for as long as an evaluation takes.

In: a folder in Hugging Face's layout and the recipe whose rollouts the serving should equal. Out:
the base address of a server that answers. Called by scripts/evaluate.py.
"""

import json
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
from omegaconf import DictConfig, OmegaConf

from seal.evaluation.faults import EvaluationError
from seal.launch.processes import Family, tail
from seal.launch.recipe import model_length

START_S = 1800.0
"""Seconds to become healthy: weights of a large model from a slow disk, and graph capture."""
CHAT_TEMPLATE = "chat_template.jinja"


def free_port() -> int:
    """A port of 127.0.0.1 that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def check_model(path: Path) -> None:
    """Refuse a folder that is no model.

    Raises:
        EvaluationError: It is none.
    """
    if not (path / "config.json").is_file() or not any(path.glob("*.safetensors")):
        raise EvaluationError(
            f"--model {path} is no folder with config.json and *.safetensors, and no http:// "
            "address; make such a folder with scripts/export_hf.py from a checkpoint, or with "
            ".venv/bin/hf download NAME --local-dir FOLDER from the hub"
        )


def serving_options(recipe: DictConfig, tool_format: str) -> list[str]:
    """Arguments for vLLM that change what a model answers, the same at every start.

    Args:
        recipe: Resolved recipe, whose rollouts the serving should equal.
        tool_format: A format of ours, whose calls vLLM reads out of the text then (the official
            programs want them so), or "" to have the text as it is.
    """
    rollout = recipe.actor_rollout_ref.rollout
    options = ["--dtype", str(rollout.dtype), "--seed", str(rollout.seed or 0)]
    options += ["--tensor-parallel-size", str(rollout.tensor_model_parallel_size)]
    # generation_config.json must not change what is sampled with; the official programs cannot say.
    options += ["--generation-config", "vllm"]
    if rollout.enforce_eager:
        options.append("--enforce-eager")
    kwargs = template_kwargs(recipe)
    if kwargs:
        options += ["--default-chat-template-kwargs", json.dumps(kwargs, sort_keys=True)]
    if not tool_format:
        # The official programs get all of the model's context: they score what does not fit.
        options += ["--max-model-len", str(model_length(recipe))]
    else:
        # vLLM's parsers of our formats have our formats' names.
        options += ["--enable-auto-tool-choice", "--tool-call-parser", tool_format]
    return options


def template_kwargs(recipe: DictConfig) -> dict[str, Any]:
    """What the backbone's chat template is told, e.g. {"enable_thinking": False}."""
    kwargs = OmegaConf.create(recipe.data.get("apply_chat_template_kwargs") or {})
    return {str(key): value for key, value in (OmegaConf.to_container(kwargs) or {}).items()}  # type: ignore[union-attr]


def serving_command(
    path: Path, port: int, recipe: DictConfig, tool_format: str, out: Path, more: Sequence[str]
) -> list[str]:
    """The command that serves a model the way the recipe's rollouts do.

    Args:
        path: The model's folder.
        port: Of 127.0.0.1.
        recipe: Resolved recipe.
        tool_format: As for `serving_options`.
        out: Where a chat template of the recipe's own is written to.
        more: The user's own arguments for vLLM, which come last and so win.
    """
    command = [str(Path(sys.executable).with_name("vllm")), "serve", str(path)]
    command += ["--host", "127.0.0.1", "--port", str(port), "--served-model-name", path.name]
    command += serving_options(recipe, tool_format)
    template = recipe.actor_rollout_ref.model.get("custom_chat_template")
    if template:
        (out / CHAT_TEMPLATE).write_text(template, "utf-8")
        command += ["--chat-template", str(out / CHAT_TEMPLATE)]
    return [*command, *more]


def serve(command: Sequence[str], recipe: DictConfig, port: int, family: Family, log: Path) -> str:
    """Start the server and wait until it is healthy; returns its base address.

    Raises:
        EvaluationError: It ended, or is not healthy after START_S.
    """
    log.unlink(missing_ok=True)
    environment = {key: str(value) for key, value in recipe.launcher.environment.items()}
    server = family.start(command, log, environment, Path.cwd())
    deadline = time.monotonic() + START_S
    while not _healthy(f"http://127.0.0.1:{port}/health"):
        if server.poll() is not None or time.monotonic() > deadline:
            what = "ended" if server.poll() is not None else f"is not healthy after {START_S:.0f} s"
            raise EvaluationError(f"the vLLM server {what}:\n{tail(log)}\n(log: {log})")
        time.sleep(0.5)
    return f"http://127.0.0.1:{port}/v1"


def _healthy(url: str) -> bool:
    try:
        return httpx.get(url, timeout=5.0, trust_env=False).status_code == httpx.codes.OK
    except httpx.HTTPError:
        return False
