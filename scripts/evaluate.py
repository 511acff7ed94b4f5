"""Evaluate a model: BFCL V3 by our episodes, BFCL V4 and tau2-bench by their official programs.

--model is a folder in Hugging Face's layout, served by a vLLM that is started for it, or the
address of an OpenAI-compatible endpoint, e.g. http://10.0.0.1:8000/v1. --suite is one of

  bfcl_v3         BFCL V3 multi-turn through the environment service, as training validates: the
                  tasks of --parquet, the recipe's decoding, the untouched benchmark
  bfcl_v4_memory  memory_kv, memory_vector, memory_rec_sum by the official bfcl-eval
  bfcl_v4_web     web_search_base, web_search_no_snippet by the same; needs SERPAPI_API_KEY
  tau2            retail, airline, telecom by the official tau2-bench; its users are played by
                  --user-llm, which needs OPENAI_API_KEY (or its provider's key)

Results go to OUT/SUITE/. If the program is interrupted, finished results are kept and the same
command goes on from there; other settings on the same folder are refused. A task at which the
environment or the endpoint fails is tried again, then reported with exit status 1, and never
scored. An endpoint's key is read from OPENAI_API_KEY (for tau2, whose users need that one, from
HOSTED_VLLM_API_KEY).

Arguments after -- are passed to vLLM: -- --tensor-parallel-size 4.

--table prints the paper's Table 1 and Table 2 from finished evaluations instead:

  evaluate.py --table start=experiments/evaluation/base SEAL=experiments/evaluation/seal

Exit status: 0; 1 with one sentence; 2 if the command line is wrong; 130 after Ctrl-C.
"""

import argparse
import sys
from pathlib import Path

from seal import ROOT
from seal.client.client import EnvironmentFault
from seal.evaluation.endpoint import STRUCTURED, is_url
from seal.evaluation.evaluate import SUITES, Request, evaluate
from seal.evaluation.faults import EvaluationError
from seal.evaluation.official_tau2 import USER_MODEL
from seal.evaluation.tables import model_figures, show
from seal.formats import FORMATS
from seal.launch.folders import RunError
from seal.launch.processes import interrupt_once
from seal.launch.recipe import RecipeError
from seal.validation.log import BadValidationFile


def parse_arguments(argv: list[str]) -> argparse.Namespace:
    """The command line; `vllm` holds the arguments after --."""
    cut = argv.index("--") if "--" in argv else len(argv)
    parser = argparse.ArgumentParser(
        prog="evaluate.py",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    option = parser.add_argument
    option("--model", metavar="FOLDER|URL", help="what to evaluate")
    option("--suite", choices=SUITES, help="what to evaluate it on")
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
    option(
        "--tasks",
        type=_positive,
        metavar="N",
        help="number of tasks; of each domain or category (official programs)",
    )
    option(
        "--concurrency", type=_positive, default=32, metavar="N", help="tasks at once (default 32)"
    )
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
        default=USER_MODEL,
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
        parser.error("arguments after -- are for the vLLM of a folder, and --model is an address")
    if args.served_model and not is_url(args.model or ""):
        parser.error("--served-model is for the address of an endpoint")
    if args.tool_format == STRUCTURED and args.model and not is_url(args.model):
        parser.error("--tool-format structured is for an endpoint; we parse a folder's text")
    return args


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}, expected a whole number of at least 1")
    return int(text)


def _named(text: str) -> tuple[str, Path]:
    name, equals, folder = text.partition("=")
    if not (name and equals and folder):
        raise argparse.ArgumentTypeError(f"{text!r}, expected NAME=DIR")
    return name, Path(folder)


def main(argv: list[str]) -> int:
    """Read the command line and evaluate, or print tables; returns the exit code."""
    args = parse_arguments(argv)
    try:
        if args.table:
            show([model_figures(name, folder) for name, folder in args.table], args.json)
            return 0
        options = {key: value for key, value in vars(args).items() if key not in ("json", "table")}
        figures, failed = evaluate(Request(**options))
        show([figures], args.json)
        return int(failed > 0)
    except (
        EvaluationError,
        EnvironmentFault,
        BadValidationFile,
        RunError,
        RecipeError,
        OSError,
    ) as error:
        print(f"evaluate: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("evaluate: interrupted; the same command goes on from here", file=sys.stderr)
        return 130


if __name__ == "__main__":
    interrupt_once()
    sys.exit(main(sys.argv[1:]))
