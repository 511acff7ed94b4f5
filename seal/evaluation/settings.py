"""The settings of an evaluation, kept beside its results: other settings must not go on there.

In: the settings of a start. Out: `settings.json`, or an error that names the settings that differ
from those of the folder's first start.
"""

import contextlib
import hashlib
import importlib.metadata
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import filelock
from omegaconf import DictConfig

from seal.evaluation.endpoint import Decoding, Endpoint
from seal.evaluation.faults import EvaluationError
from seal.evaluation.local_model import serving_options, template_kwargs
from seal.launch.recipe import model_length
from seal.records.whole_file import write_whole
from seal.validation.evaluation_file import BENCHMARK, EvaluationTask

SETTINGS = "settings.json"


def decoding_of(recipe: DictConfig, tool_format: str | None) -> Decoding:
    """The decoding of training's validation, in the recipe's tool format or another one."""
    return Decoding(
        tool_format=tool_format or str(recipe.env_service.tool_format),
        temperature=float(recipe.actor_rollout_ref.rollout.val_kwargs.temperature),
        max_tokens_per_step=int(recipe.env_service.max_tokens_per_step),
        max_response_tokens=int(recipe.data.max_response_length),
        max_context_tokens=model_length(recipe),
        chat_template_kwargs=template_kwargs(recipe),
        stop_tokens=tuple(recipe.env_service.stop_tokens or ()),
    )


def endpoint_settings(endpoint: Endpoint) -> dict[str, Any]:
    """What is known about the model at an address, which may serve another one tomorrow."""
    served = {"id": endpoint.model, "root": endpoint.root, "max_model_len": endpoint.max_model_len}
    return {"model": endpoint.base_url, "served": served}


def folder_settings(
    model: Path, recipe: DictConfig, tool_format: str, more: Sequence[str]
) -> dict[str, Any]:
    """What the answers of a model folder behind our own vLLM depend on.

    `tool_format` is that of `serving_options`, `more` are the user's arguments for vLLM.
    """
    options = [*serving_options(recipe, tool_format), *more]
    return {
        "model": str(model.resolve()),
        "model_files": fingerprint(model),
        "tool_format": tool_format,
        "vllm": [importlib.metadata.version("vllm"), *options],
        "chat_template": recipe.actor_rollout_ref.model.get("custom_chat_template"),
    }


def v3_settings(
    parquet: Path, tasks: Sequence[EvaluationTask], decoding: Decoding
) -> dict[str, Any]:
    """What bfcl_v3 depends on, and how many benchmark tasks of each category a full log has."""
    return {
        "parquet": [parquet.name, fingerprint(parquet)],
        "expected": Counter(task.category for task in tasks if task.suite == BENCHMARK),
        "decoding": vars(decoding),
    }


@contextlib.contextmanager
def locked(out: Path, suite: str) -> Iterator[None]:
    """Lets only one evaluation at a time work on a suite's folder.

    Raises:
        EvaluationError: Another one works there.
    """
    try:
        with filelock.FileLock(out / f".{suite}.lock").acquire(timeout=0):
            yield
    except filelock.Timeout:
        raise EvaluationError(
            f"another evaluation works on {out / suite}; wait for its end"
        ) from None


def keep_settings(folder: Path, settings: Mapping[str, Any]) -> None:
    """Write the settings of a new evaluation, or compare them with those of an earlier start.

    Raises:
        EvaluationError: They differ, or the folder holds something else.
    """
    path = folder / SETTINGS
    wanted = json.loads(json.dumps(settings))
    if not path.exists():
        if folder.is_dir() and any(folder.iterdir()):
            raise EvaluationError(f"{folder} holds no evaluation; name another folder with --out")
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps(wanted, indent=1) + "\n")
        return
    try:
        kept = json.loads(path.read_text("utf-8"))
    except ValueError:
        raise EvaluationError(f"{path} is damaged; name another folder with --out") from None
    differing = [
        f"{key}: {kept.get(key)!r} there, {wanted.get(key)!r} now"
        for key in {**kept, **wanted}
        if kept.get(key) != wanted.get(key)
    ]
    if differing:
        raise EvaluationError(
            f"{folder} is the evaluation of something else ({'; '.join(differing)}); name another "
            "folder with --out"
        )


def fingerprint(path: Path) -> str:
    """Hash of a file or of a model's folder; of weights it covers only size and time."""
    digest = hashlib.sha256()
    for file in sorted(path.iterdir()) if path.is_dir() else [path]:
        if file.suffix == ".safetensors":
            status = file.stat()
            digest.update(f"{file.name} {status.st_size} {status.st_mtime_ns}".encode())
        elif file.is_file():
            digest.update(file.name.encode() + file.read_bytes())
    return digest.hexdigest()[:16]
