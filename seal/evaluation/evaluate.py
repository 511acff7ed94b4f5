"""One evaluation: a model on a suite.

In: a `Request`, the command line of scripts/evaluate.py. Out: the results in the suite's folder,
and the model's figures. An environment service or a vLLM that it starts ends with it.
"""

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from seal.environment.client import EnvironmentClient
from seal.evaluation import benchmark, local_model, official_bfcl, official_tau2
from seal.evaluation.endpoint import (
    STRUCTURED,
    Endpoint,
    check_calls_tools,
    find_endpoint,
    is_url,
)
from seal.evaluation.evaluation_file import EVALUATION_FILE, EvaluationTask
from seal.evaluation.programs import console, progress_bar
from seal.evaluation.settings import (
    decoding_of,
    endpoint_settings,
    folder_settings,
    keep_settings,
    locked,
    v3_settings,
)
from seal.evaluation.tables import ModelFigures, model_figures
from seal.launch.folders import ROOT
from seal.launch.processes import Family
from seal.launch.recipe import load_recipe
from seal.launch.service import check_service, start_service, token, urls

BFCL_V3, TAU2 = "bfcl_v3", "tau2"
SUITES = (BFCL_V3, *official_bfcl.CATEGORIES, TAU2)
OUT = ROOT / "experiments/evaluation"
"""Folder of the evaluations, by model."""
_SUMMARY = ROOT / "scripts/stats_validation_bfcl.py"


@dataclass(frozen=True)
class Request:
    """What is to be evaluated, with the names of the command line's options."""

    model: str
    """A folder in Hugging Face's layout, or the address of an endpoint."""
    suite: str
    """One of SUITES."""
    out: Path | None
    """Folder of this model's evaluations; None: named after the model, in OUT."""
    served_model: str | None
    """The model of an endpoint that serves several."""
    conf: Path
    """The recipe that the model was trained with."""
    backbone: str | None
    """Its backbone; None: the recipe's."""
    override: Sequence[str]
    """Hydra overrides of the recipe."""
    tool_format: str | None
    """How the model writes calls; None: as the recipe says."""
    tasks: int | None
    """Number of tasks, in the official suites of each category or domain; None: all."""
    concurrency: int
    """Tasks at once."""
    parquet: Path | None
    """Evaluation file of bfcl_v3; None: EVALUATION_FILE."""
    env_url: str | None
    """Address of the environment service; None: the recipe's."""
    with_bfcl: bool
    """Whether to start an environment service."""
    categories: str | None
    """Categories of a bfcl_v4 suite, separated by commas; None: all."""
    user_llm: str
    """The model that plays tau2's users, as litellm names it."""
    trials: int
    """Simulations of each tau2 task."""
    vllm: Sequence[str]
    """Further arguments for the vLLM that serves a folder."""

    @property
    def official_categories(self) -> tuple[str, ...]:
        """The categories of a bfcl_v4 suite; empty for the other suites."""
        if self.categories:
            return tuple(self.categories.split(","))
        return tuple(official_bfcl.CATEGORIES.get(self.suite, ()))

    @property
    def evaluation_file(self) -> Path:
        """The evaluation file of bfcl_v3."""
        return self.parquet or ROOT / "data" / EVALUATION_FILE

    def recipe(self) -> DictConfig:
        """The resolved recipe.

        Raises:
            RecipeError: It cannot be resolved.
        """
        overrides = [*([f"backbone={self.backbone}"] if self.backbone else []), *self.override]
        if self.tool_format and self.tool_format != STRUCTURED:
            overrides.append(f"env_service.tool_format={self.tool_format}")
        return load_recipe(self.conf, overrides)

    def parsed_format(self, recipe: DictConfig) -> str:
        """The format that a folder's vLLM parses; in bfcl_v3 the service does, as in training."""
        return "" if self.suite == BFCL_V3 else str(recipe.env_service.tool_format)


def evaluate(request: Request) -> tuple[ModelFigures, int]:
    """Evaluate a model on a suite, or go on with an evaluation that was interrupted.

    Returns:
        The figures of all the model's evaluations so far, and the number of failed tasks.

    Raises:
        EvaluationError: The evaluation cannot start or go on.
        RecipeError: The recipe cannot be resolved.
        RunError: A server cannot be started.
        EnvironmentFault: The environment service does not answer.
        BadValidationLog: The log of bfcl_v3 is damaged.
    """
    recipe = request.recipe()
    if request.suite in official_bfcl.CATEGORIES:
        official_bfcl.check_can_run(request.suite, request.official_categories)
    elif request.suite == TAU2:
        official_tau2.check_can_run(request.user_llm)
    endpoint = None
    if is_url(request.model):
        key_name = official_tau2.ENDPOINT_KEY if request.suite == TAU2 else "OPENAI_API_KEY"
        key = os.environ.get(key_name, "").strip() or None
        url = request.model.rstrip("/")
        endpoint = asyncio.run(find_endpoint(url, request.served_model, key))
        name = endpoint.model.strip("/")
    else:
        local_model.check_model(Path(request.model))
        name = Path(request.model).resolve().name
    out = request.out or OUT / name.replace("/", "_")
    tasks: list[EvaluationTask] = []
    if request.suite == BFCL_V3:
        tasks = benchmark.read_tasks(request.evaluation_file, request.tasks)
    settings = _settings(request, recipe, endpoint, tasks)
    failed = 0
    with contextlib.ExitStack() as closing:
        out.mkdir(parents=True, exist_ok=True)
        closing.enter_context(locked(out, request.suite))
        folder = out / request.suite
        keep_settings(folder, settings)
        family = Family()
        closing.callback(family.end)
        if request.suite == BFCL_V3:
            failed = _run_bfcl_v3(request, recipe, endpoint, tasks, folder, family)
        else:
            log = out / f"{request.suite}-vllm.log"
            endpoint = endpoint or _serve(request, recipe, log, family)
            _run_official(request, endpoint, folder, family)
    return model_figures(name, out), failed


def _settings(
    request: Request,
    recipe: DictConfig,
    endpoint: Endpoint | None,
    tasks: Sequence[EvaluationTask],
) -> dict[str, Any]:
    """What the results depend on."""
    model = (
        endpoint_settings(endpoint)
        if endpoint
        else folder_settings(
            Path(request.model), recipe, request.parsed_format(recipe), request.vllm
        )
    )
    if request.suite == BFCL_V3:
        decoding = decoding_of(recipe, request.tool_format)
        suite = v3_settings(request.evaluation_file, tasks, decoding)
    elif request.suite == TAU2:
        suite = {"user_llm": request.user_llm, "trials": request.trials}
    else:
        suite = {"categories": list(request.official_categories)}
    return {"suite": request.suite, "tasks": request.tasks, **model, **suite}


def _serve(request: Request, recipe: DictConfig, log: Path, family: Family) -> Endpoint:
    """Start a vLLM for the folder that was named."""
    port = local_model.free_port()
    tool_format = request.parsed_format(recipe)
    command = local_model.serving_command(
        Path(request.model), port, recipe, tool_format, log.parent, request.vllm
    )
    console.print(f"starting vLLM for {request.model} (log: {log})", highlight=False)
    url = local_model.serve(command, recipe, port, family, log)
    return asyncio.run(find_endpoint(url, None, None))


def _run_bfcl_v3(
    request: Request,
    recipe: DictConfig,
    endpoint: Endpoint | None,
    tasks: Sequence[EvaluationTask],
    folder: Path,
    family: Family,
) -> int:
    """Play the missing tasks and print their summary; returns the number of failed tasks."""
    parquet, log = request.evaluation_file, folder / benchmark.LOG
    if request.tasks:
        parquet = benchmark.chosen_rows(parquet, tasks, folder)
    missing = benchmark.missing_tasks(tasks, log)
    failed = 0
    if missing:
        if request.env_url:
            recipe.env_service.env_url = request.env_url
        if request.with_bfcl:
            recipe.env_service.env_url = f"http://127.0.0.1:{local_model.free_port()}"
            start_service(recipe, family, folder / "service.log")
        else:
            check_service(recipe)
        endpoint = endpoint or _serve(request, recipe, folder / "vllm.log", family)
        failed = asyncio.run(_play(request, recipe, endpoint, missing, len(tasks), log))
    if log.exists() and log.stat().st_size:
        compared = ["--val-dir", str(folder), "--parquet", str(parquet)]
        subprocess.run([sys.executable, str(_SUMMARY), *compared], check=False)
    return failed


async def _play(
    request: Request,
    recipe: DictConfig,
    endpoint: Endpoint,
    missing: Sequence[EvaluationTask],
    total: int,
    log: Path,
) -> int:
    """Play the missing tasks with a progress bar; returns the number of failed tasks."""
    passed = 0.0
    client = EnvironmentClient(urls(recipe), recipe.env_service.env_type, token=token(recipe))
    async with client:
        with progress_bar() as progress:
            bar = progress.add_task(endpoint.model, total=total, completed=total - len(missing))

            def on_score(score: float) -> None:
                nonlocal passed
                passed += score
                description = f"{endpoint.model}, {passed:.0f} passed"
                progress.update(bar, advance=1, description=description)

            outcome = await benchmark.evaluate(
                missing,
                client,
                endpoint,
                decoding_of(recipe, request.tool_format),
                log,
                attempts=int(recipe.env_service.attempts),
                concurrency=request.concurrency,
                on_score=on_score,
            )
    for task_id, fault in outcome.failed.items():
        sys.stderr.write(f"evaluate: {task_id} was not scored: {fault}\n")
    if outcome.failed:
        left = len(missing) - outcome.finished
        sys.stderr.write(f"evaluate: {left} tasks are left; the same command goes on\n")
    return len(outcome.failed)


def _run_official(request: Request, endpoint: Endpoint, folder: Path, family: Family) -> None:
    """Run bfcl-eval or tau2-bench against the endpoint."""
    asyncio.run(check_calls_tools(endpoint))
    if request.suite == TAU2:
        official_tau2.run(
            endpoint,
            folder,
            user_model=request.user_llm,
            trials=request.trials,
            tasks=request.tasks,
            concurrency=request.concurrency,
            family=family,
        )
    else:
        official_bfcl.run(
            endpoint,
            folder,
            request.official_categories,
            tasks=request.tasks,
            concurrency=request.concurrency,
            family=family,
        )
