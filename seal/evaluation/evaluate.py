"""One evaluation: a model on a suite.

In: a `Request`, the command line of scripts/evaluate.py. Out: the results in the suite's folder,
and the model's figures. An environment service or a vLLM that it starts ends with it.
"""

import asyncio
import contextlib
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from seal import ROOT
from seal.client.client import EnvironmentClient
from seal.evaluation import benchmark, local_model, official_bfcl, official_tau2
from seal.evaluation.endpoint import STRUCTURED, Endpoint, check_calls_tools, find_endpoint, is_url
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
from seal.launch import pools
from seal.launch.listening import free_port
from seal.launch.processes import Family
from seal.launch.recipe import load_recipe
from seal.launch.service import check_service, start_service, token, urls
from seal.validation.evaluation_file import EVALUATION_FILE, EvaluationTask
from seal.validation.files import read_summary
from seal.validation.tables import show

BFCL_V3, TAU2 = "bfcl_v3", "tau2"
SUITES = (BFCL_V3, *official_bfcl.CATEGORIES, TAU2)
OUT = ROOT / "experiments/evaluation"
"""Folder of the evaluations, by model."""


@dataclass(frozen=True)
class Request:
    """What is to be evaluated: the options of scripts/evaluate.py, whose --help explains each."""

    model: str
    """A folder in Hugging Face's layout, or the address of an endpoint."""
    suite: str
    """One of SUITES."""
    out: Path | None
    served_model: str | None
    conf: Path
    backbone: str | None
    override: Sequence[str]
    tool_format: str | None
    tasks: int | None
    concurrency: int
    parquet: Path | None
    env_url: str | None
    with_bfcl: bool
    categories: str | None
    user_llm: str
    trials: int
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
        BadValidationFile: The log of bfcl_v3 is damaged.
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
    family = Family()
    evaluation = _Evaluation(request, recipe, endpoint, tasks, out / request.suite, family)
    settings = evaluation.settings()
    with contextlib.ExitStack() as closing:
        out.mkdir(parents=True, exist_ok=True)
        closing.enter_context(locked(out, request.suite))
        keep_settings(evaluation.folder, settings)
        closing.callback(family.end)
        failed = evaluation.bfcl_v3() if request.suite == BFCL_V3 else evaluation.official()
    return model_figures(name, out), failed


@dataclass
class _Evaluation:
    """A request with everything that it names."""

    request: Request
    recipe: DictConfig
    endpoint: Endpoint | None
    """None: a vLLM is started for the model's folder."""
    tasks: Sequence[EvaluationTask]
    """Tasks of bfcl_v3; empty for the other suites."""
    folder: Path
    """The suite's folder."""
    family: Family
    """The processes that are started."""

    def settings(self) -> dict[str, Any]:
        """What the results depend on."""
        request, recipe = self.request, self.recipe
        settings: dict[str, Any] = {"suite": request.suite, "tasks": request.tasks}
        if self.endpoint:
            settings |= endpoint_settings(self.endpoint)
        else:
            tool_format = request.parsed_format(recipe)
            settings |= folder_settings(Path(request.model), recipe, tool_format, request.vllm)
        if request.suite == BFCL_V3:
            decoding = decoding_of(recipe, request.tool_format)
            return settings | v3_settings(request.evaluation_file, self.tasks, decoding)
        if request.suite == TAU2:
            return settings | {"user_llm": request.user_llm, "trials": request.trials}
        return settings | {"categories": list(request.official_categories)}

    def bfcl_v3(self) -> int:
        """Play the missing tasks and print their summary; returns the number of failed tasks."""
        parquet, log = self.request.evaluation_file, self.folder / benchmark.LOG
        if self.request.tasks:
            parquet = benchmark.chosen_rows(parquet, self.tasks, self.folder)
        missing = benchmark.missing_tasks(self.tasks, log)
        failed = 0
        if missing:
            service = self.recipe.env_service
            if self.request.env_url:
                service.env_url = self.request.env_url
            # Synthetic tasks, if the file has some, of the pools that it was made from.
            played = pools.hashes_of(pools.names_of(task.task_id for task in self.tasks))
            if self.request.with_bfcl:
                service.env_url = f"http://127.0.0.1:{free_port()}"
                log_file = self.folder / "service.log"
                start_service(self.recipe, self.family, log_file, played)
            else:
                check_service(self.recipe, pools=played)
            endpoint = self._served(self.folder / "vllm.log")
            failed = asyncio.run(self._play(endpoint, missing, log))
        if log.exists() and log.stat().st_size:
            summary = read_summary(self.folder, parquet)
            show(summary)
            for gap in summary.gaps:
                sys.stderr.write(f"evaluate: {gap}\n")
        return failed

    async def _play(self, endpoint: Endpoint, missing: Sequence[EvaluationTask], log: Path) -> int:
        """Play tasks with a progress bar; returns the number of failed tasks."""
        passed, service, total = 0.0, self.recipe.env_service, len(self.tasks)
        client = EnvironmentClient(urls(self.recipe), service.env_type, token=token(self.recipe))
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
                    decoding_of(self.recipe, self.request.tool_format),
                    log,
                    attempts=int(service.attempts),
                    concurrency=self.request.concurrency,
                    on_score=on_score,
                )
        for task_id, fault in outcome.failed.items():
            sys.stderr.write(f"evaluate: {task_id} was not scored: {fault}\n")
        if outcome.failed:
            left = len(missing) - outcome.finished
            sys.stderr.write(f"evaluate: {left} tasks are left; the same command goes on\n")
        return len(outcome.failed)

    def official(self) -> int:
        """Run bfcl-eval or tau2-bench, which fail as a whole; returns 0."""
        request = self.request
        endpoint = self._served(self.folder.with_name(f"{request.suite}-vllm.log"))
        asyncio.run(check_calls_tools(endpoint))
        options: dict[str, Any] = {"tasks": request.tasks, "concurrency": request.concurrency}
        options["family"] = self.family
        if request.suite == TAU2:
            options |= {"user_model": request.user_llm, "trials": request.trials}
            official_tau2.run(endpoint, self.folder, **options)
        else:
            official_bfcl.run(endpoint, self.folder, request.official_categories, **options)
        return 0

    def _served(self, log: Path) -> Endpoint:
        """The endpoint; this program's vLLM if the model is a folder."""
        if self.endpoint:
            return self.endpoint
        model, port = self.request.model, free_port()
        command = local_model.serving_command(
            Path(model),
            port,
            self.recipe,
            self.request.parsed_format(self.recipe),
            log.parent,
            self.request.vllm,
        )
        console.print(f"starting vLLM for {model} (log: {log})", highlight=False)
        url = local_model.serve(command, self.recipe, port, self.family, log)
        return asyncio.run(find_endpoint(url, None, None))
