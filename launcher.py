"""Run a recipe: python launcher.py --conf exp/SEAL.yaml [--with-bfcl] [-- key=value ...].

In: a recipe of exp/ and overrides. Out: a trained policy, logs, a table of what changed; the exit
code tells success. The work is in `seal.launch`; this file is the command line.
"""

import argparse
import sys
from pathlib import Path

from dotenv import load_dotenv
from omegaconf import DictConfig, OmegaConf
from rich.console import Console

from seal.environment.client import EnvironmentFault
from seal.launch import folders
from seal.launch.check.finding import Level
from seal.launch.check.table import print_findings
from seal.launch.check.whole import check
from seal.launch.folders import RunError
from seal.launch.interrupts import ignore_interrupts, interrupt_once
from seal.launch.processes import Family
from seal.launch.recipe import RecipeError, load_recipe
from seal.launch.resume import how_to_resume, set_resume_mode
from seal.launch.run import Launcher, Options

SUCCESS, FAILED, BAD_COMMAND_LINE, INTERRUPTED = 0, 1, 2, 130


def parse_arguments(argv: list[str]) -> argparse.Namespace:
    """Command line of the launcher."""
    parser = argparse.ArgumentParser(
        prog="launcher.py",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Train a recipe of exp/ and print what came of it.",
        epilog=(
            "Everything after -- overrides the recipe the Hydra way, for example:\n"
            "  launcher.py --conf exp/SEAL.yaml --with-bfcl -- "
            "trainer.experiment_name=try2 seed=2\n\n"
            "Outputs go to experiments/NAME/, the record of the launch to launcher_record/NAME/.\n"
            "Ctrl-C ends everything that was started. Exit code: 0 done, 1 failed, 2 bad command\n"
            "line, 130 interrupted. docs/running.md has the rest: clusters, several nodes, .env."
        ),
    )
    parser.add_argument("--conf", type=Path, required=True, help="recipe, e.g. exp/SEAL.yaml")
    parser.add_argument(
        "--with-bfcl",
        action="store_true",
        help="start the BFCL environment service for the run and end it with the run "
        "(BFCL_SCRIPT and BFCL_PATH in .env name another one, see example.env)",
    )
    parser.add_argument(
        "--with-logview",
        action="store_true",
        help="start the log viewer (http://127.0.0.1:8090) and end it with the run",
    )
    parser.add_argument(
        "--resume",
        action="store_true",
        help="go on with the interrupted run of this name from its last checkpoint; without "
        "it, outputs of that name are set aside and the run starts anew",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="print the resolved configuration and exit"
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="start no run: check machine, budget and inputs of this one, print a line for each "
        "with what to do, and exit with 1 if one is an error. Every run makes the fast checks by "
        "itself; this also counts the prompts of all tasks, asks the hub and tries the GPUs",
    )
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="after --: overrides")
    return parser.parse_args(argv)


def main(argv: list[str]) -> int:
    """Run the command; the exit code tells success."""
    args = parse_arguments(argv)
    complaints = Console(stderr=True, soft_wrap=True, style="red", highlight=False, markup=False)
    interrupt_once()
    # Variables that are set already stay as they are.
    load_dotenv(folders.ROOT / ".env")
    try:
        recipe = load_recipe(args.conf, args.overrides)
        set_resume_mode(recipe, args.overrides, args.resume)
    except (RecipeError, RunError) as error:
        complaints.print(f"launcher: {error}")
        return BAD_COMMAND_LINE
    except KeyboardInterrupt:
        return INTERRUPTED
    if args.dry_run:
        print(OmegaConf.to_yaml(recipe), end="")
        return SUCCESS
    if args.check:
        return _check(recipe, args, complaints)
    options = Options(
        conf=args.conf,
        overrides=args.overrides,
        argv=argv,
        with_bfcl=args.with_bfcl,
        with_logview=args.with_logview,
        resume=args.resume,
    )
    return _launch(Launcher(Console(), recipe, options, Family()), complaints)


def _check(recipe: DictConfig, args: argparse.Namespace, complaints: Console) -> int:
    family = Family()
    try:
        with complaints.status("checking"):
            found = check(recipe, args.with_bfcl, args.resume, family)
    except RunError as error:
        complaints.print(f"launcher: {error}")
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    finally:
        ignore_interrupts()
        family.end()
    print_findings(Console(), found)
    return FAILED if any(one.level is Level.ERROR for one in found) else SUCCESS


def _launch(launcher: Launcher, complaints: Console) -> int:
    try:
        launcher.run()
        return SUCCESS
    except (RunError, EnvironmentFault) as error:
        complaints.print(f"launcher: {error}")
        code = FAILED
    except KeyboardInterrupt:
        complaints.print("launcher: interrupted")
        code = INTERRUPTED
    if launcher.left:
        complaints.print(f"launcher: these processes cannot be ended: {launcher.left}")
    else:
        complaints.print("launcher: all processes of the run have ended")
    if launcher.trains:
        complaints.print(f"launcher: {how_to_resume(launcher.recipe, launcher.options.argv)}")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
