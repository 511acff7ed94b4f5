"""A model folder behind a vLLM server that is started for it, for as long as an evaluation takes.

In: a folder in Hugging Face's layout, and the recipe whose rollouts the server has to match. Out:
the base address of a server that answers.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from seal.evaluation.faults import EvaluationError
from seal.launch.listening import wait_until_healthy
from seal.launch.processes import Family
from seal.launch.recipe import model_length
from seal.launch.training import model_environment

START_S = 1800.0
"""Seconds to become healthy: loading a large model from a slow disk, and graph capture."""
CHAT_TEMPLATE = "chat_template.jinja"


def check_model(path: Path) -> None:
    """Refuse a folder that holds no model.

    Raises:
        EvaluationError: It holds none.
    """
    if not (path / "config.json").is_file() or not any(path.glob("*.safetensors")):
        raise EvaluationError(
            f"--model {path} is no folder with config.json and *.safetensors, and no http:// "
            "address; make such a folder with scripts/export_hf.py from a checkpoint, or with "
            ".venv/bin/hf download NAME --local-dir FOLDER from the hub"
        )


def serving_options(recipe: DictConfig, tool_format: str) -> list[str]:
    """Arguments for vLLM that change what a model answers, to match the recipe's rollouts.

    vLLM parses calls in the `tool_format`, one of ours, as the official programs want; with "" it
    returns the text unparsed.
    """
    rollout = recipe.actor_rollout_ref.rollout
    options = ["--dtype", str(rollout.dtype), "--seed", str(rollout.seed or 0)]
    options += ["--tensor-parallel-size", str(rollout.tensor_model_parallel_size)]
    # generation_config.json must not change the sampling; the official programs cannot override it.
    options += ["--generation-config", "vllm"]
    if rollout.enforce_eager:
        options.append("--enforce-eager")
    kwargs = template_kwargs(recipe)
    if kwargs:
        options += ["--default-chat-template-kwargs", json.dumps(kwargs, sort_keys=True)]
    if not tool_format:
        options += ["--max-model-len", str(model_length(recipe))]
    else:
        # No --max-model-len: the official programs score what does not fit, so they get the model's
        # whole context. vLLM's parsers have the names of our formats.
        options += ["--enable-auto-tool-choice", "--tool-call-parser", tool_format]
    return options


def template_kwargs(recipe: DictConfig) -> dict[str, Any]:
    """Arguments of the backbone's chat template, e.g. {"enable_thinking": False}."""
    kwargs = OmegaConf.create(recipe.data.get("apply_chat_template_kwargs") or {})
    return {str(key): value for key, value in (OmegaConf.to_container(kwargs) or {}).items()}  # type: ignore[union-attr]


def serving_command(
    path: Path, port: int, recipe: DictConfig, tool_format: str, out: Path, more: Sequence[str]
) -> list[str]:
    """The command that serves a model on 127.0.0.1 as the recipe's rollouts do.

    `tool_format` is that of `serving_options`. The recipe's own chat template, if it has one, is
    written to the folder `out`. `more` are the user's arguments for vLLM; they come last and so
    take precedence.
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
        RunError: It ended, or is not healthy after START_S.
    """
    log.unlink(missing_ok=True)
    server = family.start(command, log, model_environment(recipe), Path.cwd())
    address = f"http://127.0.0.1:{port}"
    wait_until_healthy("the vLLM server", server, f"{address}/health", log, START_S)
    return f"{address}/v1"
