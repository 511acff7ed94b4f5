"""One run of the explorer: endpoint, service, seeds, progress bar, what was found.

In: a `Request`, the command line of scripts/explore.py. Out: the file of candidates and the
`Outcome`. A service that it starts ends with it.
"""

import asyncio
import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import openai
from omegaconf import DictConfig

from seal import ROOT
from seal.client.client import EnvironmentClient
from seal.evaluation.endpoint import ChatPolicy, Decoding, Endpoint, client_of, find_endpoint
from seal.evaluation.faults import EvaluationError
from seal.evaluation.programs import progress_bar
from seal.exploration.explore import Limits, Outcome, explore
from seal.exploration.faults import ExplorationError
from seal.exploration.output import Output, opened
from seal.exploration.proposer import Proposer, Seed
from seal.exploration.seeds import pool_seeds, split_seeds
from seal.exploration.settings import Settings
from seal.launch.listening import free_port
from seal.launch.processes import Family
from seal.launch.recipe import load_recipe
from seal.launch.service import check_service, start_service, token, urls

DASHSCOPE_KEY = "DASHSCOPE_API_KEY"
"""The published code's variable: without --model it selects DashScope."""
DASHSCOPE = "https://dashscope.aliyuncs.com/compatible-mode/v1"
"""DashScope's address that speaks OpenAI's language."""
KEY = "OPENAI_API_KEY"
"""The variable that holds the key of an endpoint, unless --key-variable names another."""
RECIPE = ROOT / "exp/SEAL.yaml"
"""Says where the service is, and what it is called."""


@dataclass(frozen=True)
class Request:
    """What is to be explored: the options of scripts/explore.py, whose --help explains each."""

    model: str | None
    key_variable: str | None
    split: Path | None
    side: str
    reword: str | None
    out: Path
    seeds: int | None
    """Only so many of the first seeds."""
    env_url: str | None
    with_bfcl: bool
    timeout: float
    """Seconds for one answer of the endpoint."""
    settings: Settings
    limits: Limits

    def chosen(self) -> list[Seed]:
        """The seeds.

        Raises:
            ExplorationError: There are none.
        """
        if self.reword is not None:
            seeds = pool_seeds(self.reword)
        else:
            assert self.split is not None
            seeds = split_seeds(self.split, self.side)
        return seeds[: self.seeds]


def run(request: Request) -> Outcome:
    """Explore, or go on where an earlier run of the same command stopped.

    Raises:
        ExplorationError: It cannot start.
        EvaluationError: The endpoint cannot be reached, refuses the key or has no such model.
        RunError: The service cannot be started.
        EnvironmentFault: The service is not healthy.
        OSError: The file cannot be written.
    """
    url, key = _address(request)
    seeds = request.chosen()
    with contextlib.ExitStack() as closing:
        output = closing.enter_context(opened(request.out, request.settings))
        left = [seed for seed in seeds if seed.task_id not in output.finished]
        if not left:
            return Outcome()
        endpoint = asyncio.run(_endpoint(url, request, key))
        recipe = None
        if request.reword is None:
            family = Family()
            closing.callback(family.end)
            recipe = _service(request, family)
        return asyncio.run(_explore(request, endpoint, recipe, seeds, output))


def _address(request: Request) -> tuple[str, str | None]:
    """The endpoint's address and its key; a key goes to no other address than its own."""
    if request.model is not None:
        key = os.environ.get(request.key_variable or KEY, "").strip() or None
        if request.key_variable and not key:
            raise ExplorationError(f"--key-variable {request.key_variable}: it is not set")
        return request.model.rstrip("/"), key
    name = request.key_variable or DASHSCOPE_KEY
    key = os.environ.get(name, "").strip()
    if not key:
        raise ExplorationError(
            f"name an endpoint with --model http://HOST/v1, or set {name} for DashScope"
        )
    return DASHSCOPE, key


async def _endpoint(url: str, request: Request, key: str | None) -> Endpoint:
    """What the address serves; one that does not list its models is taken at its word."""
    unlisted = Endpoint(url, request.settings.author, key, is_vllm=False, max_model_len=None)
    if url == DASHSCOPE:
        return unlisted
    try:
        return await find_endpoint(url, request.settings.author, key)
    except EvaluationError as error:
        if isinstance(error.__cause__, openai.NotFoundError):
            return unlisted
        raise


def _service(request: Request, family: Family) -> DictConfig:
    """The recipe, with the address of a service that answers."""
    recipe = load_recipe(RECIPE, [])
    if request.env_url:
        recipe.env_service.env_url = request.env_url
    if request.with_bfcl:
        recipe.env_service.env_url = f"http://127.0.0.1:{free_port()}"
        start_service(recipe, family, request.out.with_name(f"{request.out.name}.service.log"))
    else:
        check_service(recipe)
    return recipe


async def _explore(
    request: Request,
    endpoint: Endpoint,
    recipe: DictConfig | None,
    seeds: Sequence[Seed],
    output: Output,
) -> Outcome:
    settings = request.settings
    decoding = Decoding(
        tool_format=settings.tool_format,
        temperature=settings.temperature,
        max_tokens_per_step=settings.answer_tokens,
        max_response_tokens=settings.context_tokens,
        max_context_tokens=settings.context_tokens,
    )
    async with contextlib.AsyncExitStack() as closing:
        asked = await closing.enter_async_context(client_of(endpoint.base_url, endpoint.api_key))
        asked = asked.with_options(timeout=openai.Timeout(request.timeout, connect=10.0))
        client = None
        if recipe is not None:
            name = str(recipe.env_service.env_type)
            client = EnvironmentClient(urls(recipe), name, token=token(recipe))
            await closing.enter_async_context(client)
        proposer = Proposer(settings, client, lambda: ChatPolicy(asked, endpoint, decoding, []))
        progress = closing.enter_context(progress_bar())
        done = sum(seed.task_id in output.finished for seed in seeds)
        bar = progress.add_task(settings.author, total=len(seeds), completed=done)

        def show(outcome: Outcome) -> None:
            failed = outcome.failed.total()
            progress.update(
                bar,
                completed=done + outcome.finished + failed,
                description=f"{settings.author}: {outcome.candidates} candidates, "
                f"{failed} seeds failed, {proposer.used_tokens} tokens",
            )

        outcome = await explore(seeds, proposer, output, request.limits, show)
        outcome.tokens = proposer.used_tokens
        return outcome


def summary(outcome: Outcome, out: Path) -> str:
    """The outcome as lines to read."""
    rows = [
        ("seeds finished", str(outcome.finished)),
        ("candidates", f"{outcome.candidates}, in {out}"),
        ("calls to explore", str(outcome.calls)),
        ("tokens", str(outcome.tokens)),
        *((f"  no candidate: {reason}", str(n)) for reason, n in outcome.unreadable.most_common()),
        *(
            (f"  seeds failed: {reason}", f"{n}, e.g. {outcome.example[reason]}")
            for reason, n in outcome.failed.most_common()
        ),
    ]
    width = max(len(head) for head, _ in rows)
    return "".join(f"{head:<{width}}  {value}\n" for head, value in rows)
