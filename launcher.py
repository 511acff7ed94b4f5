"""Run a recipe: python launcher.py --conf exp/SEAL.yaml [--with-bfcl] [-- key=value ...].

In: a recipe of exp/ and overrides. Out: a trained policy, logs, and a table of the changes; the
exit code tells success. This file is the command line; the work is in `seal.launch`.
"""

import argparse
import sys
from pathlib import Path

from dotenv import load_dotenv
from omegaconf import DictConfig, OmegaConf
from rich.console import Console

from seal.client.client import EnvironmentFault
from seal.launch import folders
from seal.launch.check.all_checks import check
from seal.launch.check.finding import Level, print_findings
from seal.launch.folders import RunError
from seal.launch.processes import Family, ignore_interrupts, interrupt_once
from seal.launch.recipe import RecipeError, load_recipe, refuse_contradictions
from seal.launch.record import Options
from seal.launch.resume import how_to_resume, set_resume_mode
from seal.launch.run import Launcher

SUCCESS, FAILED, BAD_COMMAND_LINE, INTERRUPTED = 0, 1, 2, 130


def parse_arguments(argv: list[str]) -> argparse.Namespace:
    """Parse the launcher's command line."""
    parser = argparse.ArgumentParser(
        prog="launcher.py",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Train a policy with a recipe of exp/ and print the results.",
        epilog=(
            "Everything after -- overrides the recipe, in Hydra's syntax, for example:\n"
            "  launcher.py --conf exp/SEAL.yaml --with-bfcl -- "
            "trainer.experiment_name=try2 seed=2\n\n"
            "Outputs go to experiments/NAME/, the record of the launch to launcher_record/NAME/.\n"
            "Ctrl-C ends all processes of the run. Exit code: 0 done, 1 failed, 2 bad command\n"
            "line, 130 interrupted. More in docs/running.md: clusters, several nodes, .env."
        ),
    )
    parser.add_argument("--conf", type=Path, required=True, help="recipe, e.g. exp/SEAL.yaml")
    parser.add_argument(
        "--with-bfcl",
        action="store_true",
        help="start the BFCL environment service for the run and end it with the run "
        "(BFCL_SCRIPT and BFCL_PATH in .env name another service, see example.env)",
    )
    parser.add_argument(
        "--with-logview",
        action="store_true",
        help="start the log viewer (http://127.0.0.1:8090) and end it with the run",
    )
    parser.add_argument(
        "--resume",
        action="store_true",
        help="go on with the interrupted run of this name from its last checkpoint; without this "
        "option a new run starts, and earlier outputs of the name are moved aside",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="print the resolved configuration and exit"
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="start no run: check the machine, the budget and the inputs, print a line for each "
        "check with advice, and exit with 1 if there is an error. Every run makes the fast checks; "
        "this option also counts the prompts of all tasks, asks the hub and tries the GPUs",
    )
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="after --: overrides")
    return parser.parse_args(argv)


def main(argv: list[str]) -> int:
    """Run the command; returns the exit code."""
    args = parse_arguments(argv)
    errors = Console(stderr=True, soft_wrap=True, style="red", highlight=False, markup=False)
    notes = Console(stderr=True, soft_wrap=True, highlight=False, markup=False)
    interrupt_once()
    # Variables that are already set keep their values.
    load_dotenv(folders.ROOT / ".env")
    try:
        recipe = load_recipe(args.conf, args.overrides, say=notes.print)
        set_resume_mode(recipe, args.overrides, args.resume)
        refuse_contradictions(recipe)
    except (RecipeError, RunError) as error:
        errors.print(f"launcher: {error}")
        return BAD_COMMAND_LINE
    except KeyboardInterrupt:
        return INTERRUPTED
    if args.dry_run:
        print(OmegaConf.to_yaml(recipe), end="")
        return SUCCESS
    options = Options(
        conf=args.conf,
        overrides=args.overrides,
        argv=argv,
        with_bfcl=args.with_bfcl,
        with_logview=args.with_logview,
        resume=args.resume,
    )
    if args.check:
        return _check(recipe, options, errors)
    return _launch(Launcher(Console(), recipe, options, Family()), errors)


def _check(recipe: DictConfig, options: Options, errors: Console) -> int:
    family = Family()
    try:
        with errors.status("checking"):
            findings = check(recipe, options.with_bfcl, options.resume, family)
    except RunError as error:
        errors.print(f"launcher: {error}")
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    finally:
        ignore_interrupts()
        family.end()
    print_findings(Console(), findings)
    return FAILED if any(finding.level is Level.ERROR for finding in findings) else SUCCESS


def _launch(launcher: Launcher, errors: Console) -> int:
    try:
        launcher.run()
        return SUCCESS
    except (RunError, EnvironmentFault) as error:
        errors.print(f"launcher: {error}")
        code = FAILED
    except KeyboardInterrupt:
        errors.print("launcher: interrupted")
        code = INTERRUPTED
    if launcher.left:
        errors.print(f"launcher: these processes could not be ended: {launcher.left}")
    else:
        errors.print("launcher: all processes of the run have ended")
    if launcher.trains:
        errors.print(f"launcher: {how_to_resume(launcher.recipe, launcher.options.argv)}")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
