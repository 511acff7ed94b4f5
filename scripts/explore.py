"""Let a model propose tasks: it explores training worlds, or rewords the tasks of a pool.

    explore.py --model http://HOST/v1 --name MODEL --split data/bfcl_clean_split.json \
        --per-seed 4 --with-bfcl --out FILE
    explore.py --model http://HOST/v1 --name MODEL --reword POOL --out FILE

writes candidates, which nobody has checked. The synthesiser keeps those that pass its checks:

    .venv-bfcl/bin/python -m env_service.environments.bfcl.synthesis make NAME \
        --split data/bfcl_clean_split.json --candidates FILE

--model is the address of any OpenAI-compatible endpoint; its key is read from OPENAI_API_KEY or the
variable that --key-variable names. Without --model the endpoint is DashScope's, and its key is read
from DASHSCOPE_API_KEY.

A finished seed is written at once. The same command goes on where it was interrupted, and tries
failed seeds again. Several models may write to one file, one after the other.

Exit status: 0; 1 with one sentence, also if seeds failed; 2 if the command line is wrong; 130 after
Ctrl-C.
"""

import argparse
import sys
from pathlib import Path

from seal.client.client import EnvironmentFault
from seal.evaluation.endpoint import STRUCTURED, is_url
from seal.evaluation.faults import EvaluationError
from seal.exploration.explore import Limits
from seal.exploration.faults import ExplorationError
from seal.exploration.run import DASHSCOPE_KEY, KEY, Request, run, summary
from seal.exploration.settings import Settings
from seal.formats import FORMATS
from seal.launch.folders import RunError
from seal.launch.processes import interrupt_once

MOST_CALLS = 20


def parse_arguments(argv: list[str]) -> Request:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="explore.py",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    option = parser.add_argument
    option("--model", metavar="URL", help=f"endpoint (DashScope, if {DASHSCOPE_KEY} is set)")
    option("--name", required=True, help="the model's name at the endpoint")
    option(
        "--key-variable",
        metavar="VARIABLE",
        help=f"environment variable that holds the endpoint's key ({KEY})",
    )
    option("--out", type=Path, required=True, metavar="FILE", help="where candidates are added")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--split", type=Path, metavar="FILE", help="explore tasks of this split")
    what.add_argument("--reword", metavar="POOL", help="reword the tasks of this pool")
    option(
        "--side",
        choices=("train", "development", "val"),
        default="train",
        help="side of the split that lends the seeds (%(default)s)",
    )
    option("--per-seed", type=_count, default=4, metavar="N", help="tasks of a seed (%(default)s)")
    option("--seeds", type=_count, metavar="N", help="only the first N seeds")
    option(
        "--calls",
        type=_calls,
        default=MOST_CALLS,
        metavar="N",
        help=f"calls to explore a seed's world, at most {MOST_CALLS} (%(default)s)",
    )
    option(
        "--tool-format",
        choices=(STRUCTURED, *FORMATS),
        default=STRUCTURED,
        help="how the model writes calls; structured: the endpoint reads them (%(default)s)",
    )
    option("--temperature", type=float, default=1.0, help="of the sampling (%(default)s)")
    service = parser.add_argument_group("environment service").add_mutually_exclusive_group()
    service.add_argument("--env-url", metavar="URL", help="where it runs (as exp/SEAL.yaml says)")
    service.add_argument("--with-bfcl", action="store_true", help="start one")
    limit = parser.add_argument_group("limits").add_argument
    limit("--concurrency", type=_count, default=8, metavar="N", help="seeds at once (%(default)s)")
    limit("--answer-tokens", type=_count, default=2048, metavar="N", help="(%(default)s)")
    limit("--context-tokens", type=_count, default=32768, metavar="N", help="(%(default)s)")
    limit("--answer-seconds", type=_seconds, default=180.0, metavar="S", help="(%(default)s)")
    limit("--seed-seconds", type=_seconds, default=900.0, metavar="S", help="(%(default)s)")
    limit("--tokens", type=_count, metavar="N", help="of the run: then no seed is begun (none)")
    limit("--minutes", type=_seconds, metavar="M", help="of the run: then no seed is begun (none)")
    args = parser.parse_args(argv)
    if args.model is not None and not is_url(args.model):
        parser.error(f"--model {args.model}: expected an address like http://127.0.0.1:8000/v1")
    if args.reword and (args.env_url or args.with_bfcl):
        parser.error("--reword needs no environment service")
    return Request(
        model=args.model,
        key_variable=args.key_variable,
        split=args.split,
        side=args.side,
        reword=args.reword,
        out=args.out,
        seeds=args.seeds,
        env_url=args.env_url,
        with_bfcl=args.with_bfcl,
        timeout=args.answer_seconds,
        settings=Settings(
            author=args.name,
            tool_format=args.tool_format,
            per_seed=args.per_seed,
            calls=args.calls,
            temperature=args.temperature,
            answer_tokens=args.answer_tokens,
            context_tokens=args.context_tokens,
            seed_seconds=args.seed_seconds,
        ),
        limits=Limits(
            concurrency=args.concurrency,
            tokens=args.tokens,
            seconds=None if args.minutes is None else 60 * args.minutes,
        ),
    )


def _count(text: str) -> int:
    if text.isdecimal() and int(text) >= 1:
        return int(text)
    raise argparse.ArgumentTypeError(f"expected a whole number of at least 1, got {text!r}")


def _calls(text: str) -> int:
    if text.isdecimal() and 1 <= int(text) <= MOST_CALLS:
        return int(text)
    raise argparse.ArgumentTypeError(
        f"expected a whole number from 1 to {MOST_CALLS}, got {text!r}"
    )


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if 0 < value < float("inf"):
        return value
    raise argparse.ArgumentTypeError(f"expected a number above 0, got {text!r}")


def main(argv: list[str]) -> int:
    """Read the command line and explore; returns the exit code."""
    request = parse_arguments(argv)
    try:
        outcome = run(request)
    except (ExplorationError, EvaluationError, EnvironmentFault, RunError, OSError) as error:
        print(f"explore: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("explore: interrupted; the same command goes on from here", file=sys.stderr)
        return 130
    print(summary(outcome, request.out), end="")
    if outcome.out_of:
        print(f"explore: the limit of {outcome.out_of} is reached", file=sys.stderr)
    if outcome.failed:
        failed = outcome.failed.total()
        print(f"explore: {failed} seeds failed; the same command tries them again", file=sys.stderr)
    return int(outcome.failed.total() > 0)


if __name__ == "__main__":
    interrupt_once()
    sys.exit(main(sys.argv[1:]))
