"""Build the tiny policy that replaces an instruct checkpoint if there is none.

A Qwen3-shaped model of two million parameters with its own tokenizer and chat template. It learns
to copy from repeated random tokens. Then it learns how to talk to the environment from
demonstrations: reference programs of real training tasks and of synthetic tasks, with a plausible
mistake here and there, some of which are repaired. It solves some tasks that it has not seen, and
it makes mistakes that reinforcement learning can unlearn. Its scores say nothing about real models.
data/tiny_policy is made with the defaults.
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
        help="JSON list of the real training tasks to demonstrate",
    )
    add = parser.add_argument
    add("--dialogues", type=int, default=96, help="demonstrations of a real task")
    add(
        "--split",
        type=Path,
        default=ROOT / "data/quickstart_split.json",
        help="split whose training side lends the worlds of synthetic tasks",
    )
    add("--synthetic-tasks", type=int, default=12000, help="synthetic tasks to demonstrate")
    add("--synthetic-dialogues", type=int, default=1, help="demonstrations of each of them")
    add("--copy-steps", type=int, default=600, help="batches of random tokens to copy")
    add("--epochs", type=int, default=1, help="passes over the demonstrations")
    add("--learning-rate", type=float, default=2e-3, help="peak learning rate")
    add("--max-tokens", type=int, default=1280, help="longest demonstration used")
    add("--seed", type=int, default=1, help="seed of demonstrations and weights")
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
