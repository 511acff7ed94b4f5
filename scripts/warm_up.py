r"""Warm a language model up: teach it, by demonstrations, how to talk to the environment.

If a model never calls a tool, all its rollouts are equal and GRPO learns nothing. Before GRPO, this
trains it on reference programs of training tasks, played through the environment call by call: each
task, and variants of it with other names, words, files and numbers, kept only if the official
checker passes them. A share of the variants shows a random learning interface, so that the model
learns what its cues mean. A share of the calls fails once first: the failure is not learnt, the
repair is.

    .venv/bin/python scripts/get_smollm2.py
    .venv/bin/python scripts/warm_up.py --model models/smollm2-135m --backbone smollm2-135m \
        --out models/smollm2-135m-warm --report

Works for any causal model of transformers whose backbone has a group in exp/backbone/. Ctrl-C keeps
what was learnt, and the same command goes on. OUT holds the model, loss.jsonl, loss.png and
warm_up.json; --report evaluates the model before and after, on --parquet, with the real vLLM.
"""

import argparse
import json
import sys
from dataclasses import fields
from pathlib import Path

from seal import ROOT
from seal.backbone.loading import BackboneError
from seal.launch.processes import Family, interrupt_once
from seal.launch.recipe import EXP, RecipeError
from seal.warm_up.supervised import DemonstrationError
from seal.warm_up.warm_up import FACTS, WarmUp, WarmUpError, warm_up

MIX = "base=0.55,miss_param=0.2,miss_func=0.2,long_context=0.05"


def main(argv: list[str]) -> int:
    """Read the command line, warm the model up and report."""
    args = parse_arguments(argv)
    try:
        if (args.out / FACTS).exists():
            print(f"{args.out}: warmed up already")
        else:
            facts = warm_up(settings_of(args), args.out, args.processes)
            print(json.dumps(facts, indent=1))
        return report(args) if args.report else 0
    except (WarmUpError, DemonstrationError, BackboneError, RecipeError, OSError) as error:
        print(f"warm_up: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("warm_up: interrupted; the same command goes on from here", file=sys.stderr)
        return 130


def parse_arguments(argv: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    option = parser.add_argument
    option("--model", type=Path, required=True, help="folder of the model to start from")
    option("--out", type=Path, required=True, help="folder of the warmed-up model")
    option("--conf", type=Path, default=EXP / "SEAL.yaml", help="recipe (default exp/SEAL.yaml)")
    option("--backbone", metavar="NAME", help="one of exp/backbone/, if not the recipe's")
    option(
        "--split",
        type=Path,
        default=ROOT / "data/bfcl_scenario_split.json",
        help="its training side is demonstrated (default data/bfcl_scenario_split.json)",
    )
    option("--mix", default=MIX, help=f"share of each category (default {MIX})")
    option("--dialogues", type=int, default=900, help="demonstrations to train on (default 900)")
    option("--variants", type=int, default=12, help="made of each task (default 12)")
    option("--interface-share", type=float, default=0.25, help="of the variants (default 0.25)")
    option("--mistake-share", type=float, default=0.1, help="of the calls (default 0.1)")
    option("--max-tokens", type=int, default=1300, help="of a demonstration (default 1300)")
    option("--batch", type=int, default=4, help="dialogues of an optimiser step (default 4)")
    option("--learning-rate", type=float, default=5e-4, help="at its peak (default 5e-4)")
    option("--processes", type=int, default=2, help="of one thread each (default 2)")
    option("--seed", type=int, default=1, help="of demonstrations and their order (default 1)")
    option("--report", action="store_true", help="evaluate both models afterwards")
    option(
        "--parquet",
        type=Path,
        default=ROOT / "data/smollm2_eval.parquet",
        help="what --report evaluates (default data/smollm2_eval.parquet)",
    )
    args = parser.parse_args(argv)
    try:
        args.mix = {
            f"multi_turn_{name}": float(share)
            for name, share in (part.split("=") for part in args.mix.split(","))
        }
    except ValueError:
        parser.error(f"--mix {args.mix!r}, expected e.g. {MIX}")
    return args


def settings_of(args: argparse.Namespace) -> WarmUp:
    """What the command line says of the training itself."""
    return WarmUp(**{field.name: getattr(args, field.name) for field in fields(WarmUp)})


def report(args: argparse.Namespace) -> int:
    """Evaluate both models with scripts/evaluate.py; an interrupted evaluation goes on."""
    family = Family()
    try:
        for model in (args.model, args.out):
            print(f"\nwarm_up: evaluating {model} on {args.parquet}", flush=True)
            command = [
                *(sys.executable, "scripts/evaluate.py", "--suite", "bfcl_v3", "--with-bfcl"),
                *("--model", str(model), "--conf", str(args.conf), "--parquet", str(args.parquet)),
                *(("--backbone", args.backbone) if args.backbone else ()),
            ]
            status = family.start(command, None, {}, ROOT).wait()
            if status != 0:
                return status
        return 0
    finally:
        family.end()  # an evaluation that is interrupted, with its vLLM and its service


if __name__ == "__main__":
    interrupt_once()
    sys.exit(main(sys.argv[1:]))
