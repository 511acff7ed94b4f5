"""Evaluate a model: BFCL V3 by our episodes, BFCL V4 and tau2-bench by their official programs.

--model is a folder in Hugging Face's layout, served by a vLLM that is started for it, or the
address of an OpenAI-compatible endpoint, e.g. http://10.0.0.1:8000/v1. --suite is one of

  bfcl_v3         BFCL V3 multi-turn through the environment service, as training validates: the
                  tasks of --parquet, the recipe's decoding, the untouched benchmark
  bfcl_v4_memory  memory_kv, memory_vector, memory_rec_sum by the official bfcl-eval
  bfcl_v4_web     web_search_base, web_search_no_snippet by the same; needs SERPAPI_API_KEY
  tau2            retail, airline, telecom by the official tau2-bench; its users are played by
                  --user-llm, which needs OPENAI_API_KEY (or its provider's key)

Results go to OUT/SUITE/. What is finished stays when the program is interrupted, and the same
command goes on from there; other settings on the same folder are refused. A failure of the
environment or of the endpoint is tried again, then reported with exit status 1, and never scored.
An endpoint's key is read from OPENAI_API_KEY (for tau2, whose users need that one, from
HOSTED_VLLM_API_KEY).

What follows -- goes to vLLM: -- --tensor-parallel-size 4.

--table prints the paper's Table 1 and Table 2 from finished evaluations instead:

  evaluate.py --table start=experiments/evaluation/base SEAL=experiments/evaluation/seal

Exit status: 0; 1 with one sentence; 2 where the command line is wrong; 130 after Ctrl-C.
"""

import argparse
import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from seal.environment.access_token import TokenError, read_token
from seal.environment.client import EnvironmentClient, EnvironmentFault
from seal.evaluation import benchmark, local_model, official_bfcl, official_tau2
from seal.evaluation.endpoint import STRUCTURED, Endpoint, check_calls_tools, find_endpoint
from seal.evaluation.faults import EvaluationError
from seal.evaluation.programs import console, progress_bar
from seal.evaluation.settings import (
    decoding_of,
    endpoint_settings,
    folder_settings,
    keep_settings,
    locked,
    v3_settings,
)
from seal.evaluation.tables import Row, row_of, show
from seal.formats import FORMATS
from seal.launch.folders import RunError
from seal.launch.processes import Family
from seal.launch.recipe import RecipeError, load_recipe
from seal.launch.service import check_service, start_service, urls
from seal.records.validation_log import BadValidationLog

ROOT = Path(__file__).resolve().parents[1]
SUMMARY = ROOT / "scripts/stats_validation_bfcl.py"
BFCL_V3, TAU2 = "bfcl_v3", "tau2"
SUITES = (BFCL_V3, *official_bfcl.CATEGORIES, TAU2)


def main(argv: list[str]) -> int:
    """Read the command line and evaluate, or print tables; the exit code tells success."""
    args = parse_arguments(argv)
    try:
        if args.table:
            rows = [row_of(name, folder) for name, folder in args.table]
            show(rows, args.json)
            return 0
        return run(args)
    except (
        EvaluationError,
        EnvironmentFault,
        BadValidationLog,
        RunError,
        RecipeError,
        TokenError,
        OSError,
    ) as error:
        print(f"evaluate: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("evaluate: interrupted; the same command goes on from here", file=sys.stderr)
        return 130


# ---- command line ------------------------------------------------------------------------------


def parse_arguments(argv: list[str]) -> argparse.Namespace:
    """The command line; `vllm` is what follows --."""
    cut = argv.index("--") if "--" in argv else len(argv)
    parser = argparse.ArgumentParser(
        prog="evaluate.py",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    option = parser.add_argument
    option("--model", metavar="FOLDER|URL", help="what to evaluate")
    option("--suite", choices=SUITES, help="on what")
    option(
        "--out",
        type=Path,
        metavar="DIR",
        help="folder of this model's evaluations (default experiments/evaluation/MODEL)",
    )
    option("--served-model", metavar="NAME", help="model of an endpoint that serves several")
    option(
        "--conf",
        type=Path,
        default=ROOT / "exp/SEAL.yaml",
        metavar="FILE",
        help="recipe that the model was trained with: decoding, limits, how it is served "
        "(default exp/SEAL.yaml)",
    )
    option("--backbone", metavar="NAME", help="its backbone, one of exp/backbone/, if not --conf's")
    option(
        "--override",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="Hydra override of the recipe; may be repeated, e.g. --override +machine=cpu",
    )
    option(
        "--tool-format",
        choices=(*FORMATS, STRUCTURED),
        help="how the model writes calls, if not as --conf says; structured: the endpoint reads "
        "them out of the text itself (bfcl_v3; the official programs always want that)",
    )
    option("--tasks", type=_positive, metavar="N", help="only so many (a domain or category each)")
    option("--concurrency", type=_positive, default=32, metavar="N", help="at once (default 32)")
    option("--json", type=Path, metavar="FILE", help="write the tables' figures, as shares")
    option("--table", nargs="+", type=_named, metavar="NAME=DIR", help="print the paper's tables")
    v3 = parser.add_argument_group("bfcl_v3").add_argument
    v3("--parquet", type=Path, metavar="FILE", help="tasks (default data/bfcl_eval_400.parquet)")
    service = parser.add_argument_group(
        "bfcl_v3: environment service"
    ).add_mutually_exclusive_group()
    service.add_argument("--env-url", metavar="URL", help="where it runs (default: the recipe's)")
    service.add_argument("--with-bfcl", action="store_true", help="start one for this evaluation")
    official = parser.add_argument_group("official programs").add_argument
    official("--categories", metavar="A,B", help="some of a bfcl_v4 suite's")
    official(
        "--user-llm",
        default=official_tau2.USER_MODEL,
        metavar="NAME",
        help="plays tau2's users, as litellm names it (default openai/gpt-4.1)",
    )
    official(
        "--trials", type=_positive, default=1, metavar="N", help="of each tau2 task (default 1)"
    )
    args = parser.parse_args(argv[:cut])
    args.vllm = argv[cut + 1 :]
    if bool(args.table) == bool(args.model) or bool(args.model) != bool(args.suite):
        parser.error("expected --model and --suite, or --table")
    if args.vllm and is_url(args.model or ""):
        parser.error("what follows -- is for the vLLM that serves a folder; --model is an address")
    if args.served_model and not is_url(args.model or ""):
        parser.error("--served-model is for the address of an endpoint")
    if args.tool_format == STRUCTURED and args.model and not is_url(args.model):
        parser.error("--tool-format structured is for an endpoint; a folder's text is ours")
    return args


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number}, expected at least 1")
    return number


def _named(text: str) -> tuple[str, Path]:
    name, equals, folder = text.partition("=")
    if not (name and equals and folder):
        raise argparse.ArgumentTypeError(f"{text!r}, expected NAME=DIR")
    return name, Path(folder)


def is_url(model: str) -> bool:
    """Whether --model is an endpoint."""
    return model.startswith(("http://", "https://"))


# ---- one evaluation ----------------------------------------------------------------------------


def run(args: argparse.Namespace) -> int:
    """Evaluate a model on a suite."""
    overrides = [*([f"backbone={args.backbone}"] if args.backbone else []), *args.override]
    if args.tool_format and args.tool_format != STRUCTURED:
        overrides.append(f"env_service.tool_format={args.tool_format}")
    recipe = load_recipe(args.conf, overrides)
    categories = official_categories(args)
    if args.suite in official_bfcl.CATEGORIES:
        official_bfcl.check_can_run(args.suite, categories)
    elif args.suite == TAU2:
        official_tau2.check_can_run(args.user_llm)
    endpoint = None
    if is_url(args.model):
        endpoint = asyncio.run(
            find_endpoint(args.model.rstrip("/"), args.served_model, key_of(args))
        )
        name = endpoint.model.strip("/")
    else:
        local_model.check_model(Path(args.model))
        name = Path(args.model).resolve().name
    out = args.out or ROOT / "experiments/evaluation" / name.replace("/", "_")
    folder = out / args.suite
    suite: dict[str, Any] = {"categories": list(categories)}
    if args.suite == BFCL_V3:
        suite = v3_settings(parquet_of(args), args.tasks, decoding_of(recipe, args.tool_format))
    elif args.suite == TAU2:
        suite = {"user_llm": args.user_llm, "trials": args.trials}
    settings = {
        "suite": args.suite,
        "tasks": args.tasks,
        **(
            endpoint_settings(endpoint)
            if endpoint
            else folder_settings(Path(args.model), recipe, parsed_format(args, recipe), args.vllm)
        ),
        **suite,
    }
    with contextlib.ExitStack() as closing:
        out.mkdir(parents=True, exist_ok=True)
        closing.enter_context(locked(out, args.suite))
        keep_settings(folder, settings)
        family = Family()
        closing.callback(family.end)
        if args.suite == BFCL_V3:
            status = run_bfcl_v3(args, recipe, endpoint, folder, family)
        else:
            endpoint = endpoint or serve(args, recipe, out / f"{args.suite}-vllm.log", family)
            run_official(args, recipe, categories, endpoint, folder, family)
            status = 0
    row = row_of(name, out)
    show([Row(name, row.figures, row.notes)], args.json)
    return status


def key_of(args: argparse.Namespace) -> str | None:
    """The endpoint's key."""
    name = official_tau2.ENDPOINT_KEY if args.suite == TAU2 else "OPENAI_API_KEY"
    return os.environ.get(name, "").strip() or None


def parsed_format(args: argparse.Namespace, recipe: DictConfig) -> str:
    """The format that a folder's vLLM parses; of our episodes the service does, as in training."""
    return "" if args.suite == BFCL_V3 else str(recipe.env_service.tool_format)


def official_categories(args: argparse.Namespace) -> tuple[str, ...]:
    """Categories of a bfcl_v4 suite that are wanted; none for the others."""
    every = official_bfcl.CATEGORIES.get(args.suite, ())
    return tuple(args.categories.split(",")) if args.categories else tuple(every)


def serve(args: argparse.Namespace, recipe: DictConfig, log: Path, family: Family) -> Endpoint:
    """Start a vLLM for the folder that was named."""
    port = local_model.free_port()
    tool_format = parsed_format(args, recipe)
    command = local_model.serving_command(
        Path(args.model), port, recipe, tool_format, log.parent, args.vllm
    )
    console.print(f"starting vLLM for {args.model} (log: {log})", highlight=False)
    url = local_model.serve(command, recipe, port, family, log)
    return asyncio.run(find_endpoint(url, None, None))


def parquet_of(args: argparse.Namespace) -> Path:
    """The evaluation file."""
    parquet: Path = args.parquet or ROOT / "data" / benchmark.EVALUATION_FILE
    if not parquet.is_file():
        raise EvaluationError(f"--parquet {parquet} is no file; make it: scripts/prepare_bfcl.py")
    return parquet


def run_bfcl_v3(
    args: argparse.Namespace,
    recipe: DictConfig,
    endpoint: Endpoint | None,
    folder: Path,
    family: Family,
) -> int:
    """Our episodes; prints the summary of scripts/stats_validation_bfcl.py."""
    parquet, log = parquet_of(args), folder / benchmark.LOG
    tasks = benchmark.read_tasks(parquet)
    if args.tasks:
        tasks = benchmark.spread(tasks, args.tasks)
        parquet = benchmark.chosen_rows(parquet, tasks, folder)
    missing = benchmark.missing_tasks(tasks, log)
    status = 0
    if missing:
        if args.env_url:
            recipe.env_service.env_url = args.env_url
        if args.with_bfcl:
            recipe.env_service.env_url = f"http://127.0.0.1:{local_model.free_port()}"
            start_service(recipe, family, folder / "service.log")
        else:
            check_service(recipe)
        endpoint = endpoint or serve(args, recipe, folder / "vllm.log", family)
        status = asyncio.run(play(args, recipe, endpoint, missing, len(tasks), log))
    if log.exists() and log.stat().st_size:
        compared = ["--val-dir", str(folder), "--parquet", str(parquet)]
        subprocess.run([sys.executable, str(SUMMARY), *compared], check=False)
    return status


async def play(
    args: argparse.Namespace,
    recipe: DictConfig,
    endpoint: Endpoint,
    missing: Sequence[benchmark.EvaluationTask],
    total: int,
    log: Path,
) -> int:
    """Run the missing tasks with a progress bar; 1 if some failed."""
    token_file = recipe.env_service.token_file
    passed = 0.0
    client = EnvironmentClient(
        urls(recipe),
        recipe.env_service.env_type,
        token=read_token(None if token_file is None else ROOT / str(token_file)),
    )
    async with client:
        with progress_bar() as progress:
            bar = progress.add_task(endpoint.model, total=total, completed=total - len(missing))

            def on_score(score: float) -> None:
                nonlocal passed
                passed += score
                progress.update(
                    bar, advance=1, description=f"{endpoint.model}, {passed:.0f} passed"
                )

            outcome = await benchmark.evaluate(
                missing,
                client,
                endpoint,
                decoding_of(recipe, args.tool_format),
                log,
                attempts=int(recipe.env_service.attempts),
                concurrency=args.concurrency,
                on_score=on_score,
            )
    for task_id, fault in outcome.failed.items():
        print(f"evaluate: {task_id} was not scored: {fault}", file=sys.stderr)
    if outcome.failed:
        left = len(missing) - outcome.finished
        print(f"evaluate: {left} tasks are left; the same command goes on", file=sys.stderr)
    return int(bool(outcome.failed))


def run_official(
    args: argparse.Namespace,
    recipe: DictConfig,
    categories: Sequence[str],
    endpoint: Endpoint,
    folder: Path,
    family: Family,
) -> None:
    """bfcl-eval or tau2-bench against the endpoint."""
    asyncio.run(check_calls_tools(endpoint))
    if args.suite == TAU2:
        official_tau2.run(
            endpoint,
            folder,
            user_model=args.user_llm,
            trials=args.trials,
            tasks=args.tasks,
            concurrency=args.concurrency,
            family=family,
        )
    else:
        official_bfcl.run(
            endpoint,
            folder,
            categories,
            tasks=args.tasks,
            concurrency=args.concurrency,
            family=family,
        )


if __name__ == "__main__":
    # SIGTERM ends what was started, as Ctrl-C does.
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    sys.exit(main(sys.argv[1:]))
