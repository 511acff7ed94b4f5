"""A model folder behind a vLLM server of our own, for as long as an evaluation takes.

In: a folder in Hugging Face's layout and the recipe whose rollouts the serving should equal. Out:
the base address of a server that answers. Called by scripts/evaluate.py.
"""

import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import httpx
from omegaconf import DictConfig

from seal.evaluation.endpoint import STRUCTURED
from seal.evaluation.faults import EvaluationError
from seal.launch.processes import Family, tail

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
            "address; make such a folder from a checkpoint with scripts/export_hf.py"
        )


def serving_command(
    path: Path, port: int, recipe: DictConfig, tool_format: str, out: Path, more: Sequence[str]
) -> list[str]:
    """The command that serves a model the way the recipe's rollouts do.

    Args:
        path: The model's folder.
        port: Of 127.0.0.1.
        recipe: Resolved recipe.
        tool_format: A format of ours, whose calls vLLM reads out of the text then (the official
            programs want them so), or "" to have the text as it is.
        out: Where a chat template of the recipe's own is written to.
        more: The user's own arguments for vLLM, which come last and so win.
    """
    rollout = recipe.actor_rollout_ref.rollout
    command = [str(Path(sys.executable).with_name("vllm")), "serve", str(path)]
    command += ["--host", "127.0.0.1", "--port", str(port), "--served-model-name", path.name]
    command += ["--dtype", str(rollout.dtype), "--seed", str(rollout.seed or 0)]
    command += ["--max-model-len", str(rollout.max_model_len)]
    command += ["--tensor-parallel-size", str(rollout.tensor_model_parallel_size)]
    if rollout.enforce_eager:
        command.append("--enforce-eager")
    template = recipe.actor_rollout_ref.model.get("custom_chat_template")
    if template:
        (out / CHAT_TEMPLATE).write_text(template, "utf-8")
        command += ["--chat-template", str(out / CHAT_TEMPLATE)]
    if tool_format and tool_format != STRUCTURED:
        # vLLM's parsers of our formats have our formats' names.
        command += ["--enable-auto-tool-choice", "--tool-call-parser", tool_format]
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
