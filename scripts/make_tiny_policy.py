"""Build the tiny policy that replaces an instruct checkpoint if there is none.

A Qwen3-shaped model of a few million parameters with its own tokenizer and chat template, warmed up
on demonstrations: reference programs of training tasks, played through the environment with a
plausible mistake here and there, some of which are repaired. It learns how to talk to the
environment, and is close to even odds in a few decisions, on which reinforcement learning can work.
It has learned nothing else, and its scores say nothing about real models. data/tiny_policy is made
with the defaults.
"""

import argparse
import json
import sys
from pathlib import Path

from seal import ROOT
from seal.backbone.loading import BackboneError
from seal.launch.recipe import RecipeError
from seal.warm_up.supervised import DemonstrationError
from seal.warm_up.tiny_policy import TinyPolicy, build
from seal.warm_up.whole_folder import BUILT


def parse(argv: list[str]) -> TinyPolicy:
    """The settings of a command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="folder for weights and tokenizer")
    parser.add_argument(
        "--task-ids",
        type=Path,
        default=ROOT / "data/quickstart_tasks.json",
        help="JSON list of the training tasks to demonstrate",
    )
    parser.add_argument("--dialogues", type=int, default=48, help="demonstrations a task")
    parser.add_argument("--epochs", type=int, default=2, help="passes over the demonstrations")
    parser.add_argument("--learning-rate", type=float, default=3e-3, help="peak learning rate")
    parser.add_argument("--max-tokens", type=int, default=1536, help="longest demonstration used")
    parser.add_argument("--seed", type=int, default=1, help="seed of demonstrations and weights")
    return TinyPolicy(**vars(parser.parse_args(argv)))


def main() -> None:
    """Read the command line and build, unless the policy is there already."""
    settings = parse(sys.argv[1:])
    if (settings.out / BUILT).exists():
        print(f"{settings.out}: built already")
        return
    try:
        print(json.dumps(build(settings), indent=2))
    except (DemonstrationError, BackboneError, RecipeError, OSError) as error:
        raise SystemExit(f"make_tiny_policy: {error}") from error


if __name__ == "__main__":
    main()
