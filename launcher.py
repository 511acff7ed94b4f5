"""Run a recipe: python launcher.py --conf exp/SEAL.yaml [--with-bfcl] [-- key=value ...].

In: a recipe of exp/ and overrides. Out: a trained policy, logs, a table of what changed; the exit
code tells success. The work is in `seal.launch`; this file is the command line.
"""

import argparse
import signal
import sys
import time
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from rich.console import Console

from seal.client import EnvironmentFault
from seal.launch import run
from seal.launch.processes import Family
from seal.launch.progress import RunProgress
from seal.launch.recipe import RecipeError, load_recipe
from seal.launch.report import print_report


def parse_arguments(argv: list[str]) -> argparse.Namespace:
    """Command line of the launcher."""
    parser = argparse.ArgumentParser(
        prog="launcher.py",
        description="Train a recipe of exp/ and print what came of it.",
        epilog=(
            "Everything after -- overrides the recipe the Hydra way, for example: "
            "-- trainer.experiment_name=try2 seed=2 actor_rollout_ref.actor.optim.lr=2e-4"
        ),
    )
    parser.add_argument("--conf", type=Path, required=True, help="recipe, e.g. exp/SEAL.yaml")
    parser.add_argument(
        "--with-bfcl",
        action="store_true",
        help="start the BFCL environment service for the run and stop it at the end",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="print the resolved configuration and exit"
    )
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="after --: overrides")
    return parser.parse_args(argv)


def main(argv: list[str]) -> int:
    """Run the command; the exit code tells success."""
    args = parse_arguments(argv)
    console = Console()
    complaints = Console(stderr=True, soft_wrap=True, style="red")
    # Being terminated ends the run the way Ctrl-C does.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        recipe = load_recipe(args.conf, args.overrides)
        if args.dry_run:
            print(OmegaConf.to_yaml(recipe), end="")
            return 0
        _run(console, recipe, args)
    except (RecipeError, run.RunError, EnvironmentFault) as error:
        complaints.print(f"launcher: {error}", markup=False, highlight=False)
        return 1
    except KeyboardInterrupt:
        complaints.print("\nlauncher: interrupted; all processes of the run have ended")
        return 130
    return 0


def _run(console: Console, recipe: Any, args: argparse.Namespace) -> None:
    started = time.monotonic()
    family = Family()
    try:
        run.check_inputs(recipe)
        service = None
        if args.with_bfcl:
            console.print(f"starting the environment service at {recipe.env_service.env_url}")
            service = run.start_service(recipe, family)
        else:
            run.check_service(recipe)
        policy_s = run.prepare_policy(recipe)
        # Only now that the run can start: another one may be using the folders.
        run.set_earlier_outputs_aside(recipe)
        config = run.record_run(recipe, args.overrides, family.launch_id)
        policy_there = time.monotonic()
        step_ends: list[float] = []
        steps = recipe.trainer.total_training_steps
        with RunProgress(console, steps) as progress:

            def on_round(line: dict[str, Any]) -> None:
                step_ends.append(time.monotonic())
                progress.on_round(line)

            watch = run.Watch(progress.on_phase, on_round)
            run.train(recipe, config, family, service, watch)
        finished = run.Finished(
            wall_s=time.monotonic() - started,
            policy_s=policy_s,
            first_step_s=step_ends[0] - policy_there if step_ends else None,
            service_cpu_s=run.service_cpu_s(service),
            peak_bytes=family.peak_bytes,
        )
        print_report(console, recipe, finished)
    finally:
        # A second Ctrl-C must not leave processes behind.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        family.end()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
