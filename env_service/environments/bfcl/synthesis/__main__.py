"""Make pools of synthetic tasks from one side of a split, and say what is in them.

    .venv-bfcl/bin/python -m env_service.environments.bfcl.synthesis make NAME \
        --split data/bfcl_clean_split.json --tasks 2000 --seed 1
    .venv-bfcl/bin/python -m env_service.environments.bfcl.synthesis make NAME \
        --split data/bfcl_clean_split.json --candidates FILE
    .venv-bfcl/bin/python -m env_service.environments.bfcl.synthesis report NAME

With --candidates a pool is made of what a model has proposed (scripts/explore.py).

The service plays the tasks of a pool: python -m env_service --env bfcl --tasks FILE.
"""

import argparse
import json
import os
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from env_service.environments.bfcl.synthesis import making
from env_service.environments.bfcl.synthesis.candidates import FromFile, read_candidates
from env_service.environments.bfcl.synthesis.pool import (
    ROOT,
    BadPool,
    read_tasks,
    report_file,
    sha256_of,
    table_file,
    task_file,
)
from env_service.environments.bfcl.synthesis.proposals import Knobs, Proposer
from env_service.environments.bfcl.synthesis.report import text_of
from env_service.environments.bfcl.synthesis.sides import SIDES, read_sides
from env_service.environments.bfcl.tasks import CATEGORIES
from env_service.environments.bfcl.tool_classes import TOOL_CLASSES

INTERRUPTED = 130
DRAWN = ("tasks", "seed", "processes", "categories", "classes", "turns", "calls", "indirect")
"""Options of tasks that are drawn."""
_MOST = 20
"""Turns of a task, and calls of a turn, that can be asked for."""


def main(argv: Sequence[str]) -> int:
    """Read the command line and do what it asks for.

    Returns:
        Exit code: 0, 1 if something cannot be used, 130 after Ctrl-C.
    """
    args = _arguments(argv)
    try:
        if args.command == "seeds":
            seeds = Proposer(read_sides(args.split, args.side), Knobs()).seeds
            sys.stdout.write("".join(f"{seed.task_id}\n" for seed in seeds))
            return 0
        if args.command == "make":
            _make(args)
        sys.stdout.write(text_of(_report(args)))
    except BadPool as error:
        sys.stderr.write(f"synthesis: {error}\n")
        return 1
    except KeyboardInterrupt:
        sys.stderr.write("synthesis: interrupted; nothing was written\n")
        return INTERRUPTED
    return 0


def _make(args: argparse.Namespace) -> None:
    started = time.monotonic()
    sides = read_sides(args.split, args.side)
    knobs = Knobs(
        seed=args.seed,
        categories=args.categories,
        classes=args.classes,
        turns=args.turns,
        calls=args.calls,
        indirect_share=args.indirect,
    )
    if args.name in args.apart_from:
        raise BadPool(f"--apart-from {args.name}: a pool cannot be kept apart from itself")
    paths = {name: task_file(name, args.root) for name in args.apart_from}
    tasks = [task for path in paths.values() for task in read_tasks(path)]
    earlier = {name: sha256_of(path) for name, path in paths.items()}
    proposer = Proposer(sides, knobs, earlier, tasks)
    if args.candidates is None:
        draft = making.make(proposer, args.name, args.tasks, args.processes)
    else:
        lines, pools = read_candidates(args.candidates, args.root)
        draft = making.make_from(FromFile(lines, proposer, pools), args.name)
    making.write(draft, args.name, args.root)
    sys.stderr.write(
        f"synthesis: {task_file(args.name, args.root)} in {time.monotonic() - started:.0f} s; "
        f"for the trainer: {table_file(args.name, args.root)}\n"
    )


def _report(args: argparse.Namespace) -> dict[str, object]:
    path = report_file(args.name, args.root)
    contents = {
        "tasks_sha256": task_file(args.name, args.root),
        "table_sha256": table_file(args.name, args.root),
    }
    try:
        report: dict[str, object] = json.loads(path.read_text("utf-8"))
        for key, content in contents.items():
            if report[key] != sha256_of(content):
                raise BadPool(f"{path} is not the report of {content}; make the pool again")
    except FileNotFoundError as error:
        raise BadPool(f"there is no pool {args.name}: {error.filename} is missing") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadPool(f"cannot read {path}: {error}") from None
    return report


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m env_service.environments.bfcl.synthesis",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    make = commands.add_parser("make", help="make a pool and show its report")
    report = commands.add_parser("report", help="show what is in a pool")
    for command in (make, report):
        command.add_argument("name", type=_name, help="name of the pool")
        command.add_argument(
            "--root", type=Path, default=ROOT, help="project folder of the pool (%(default)s)"
        )
    seeds = commands.add_parser("seeds", help="list the tasks that lend their worlds")
    for command in (make, seeds):
        command.add_argument(
            "--split", type=Path, required=True, help="JSON file with the lists train and val"
        )
        command.add_argument(
            "--side",
            choices=SIDES,
            default=SIDES[0],
            help="side of the split that lends the seeds; nothing of the others is in the pool "
            "(%(default)s)",
        )
    add = make.add_argument
    add(
        "--apart-from",
        type=_name,
        nargs="+",
        default=(),
        metavar="NAME",
        help="pools made before, of which this one has no task and no three calls in a row",
    )
    add(
        "--candidates",
        type=Path,
        nargs="+",
        metavar="FILE",
        help="keep those of these files that pass (the options below are for drawn tasks)",
    )
    add("--tasks", type=_count, default=2000, help="tasks to make (%(default)s)")
    add("--seed", type=int, default=1, help="seed (%(default)s)")
    add("--processes", type=_count, default=os.cpu_count() or 1, help="(one a processor)")
    add(
        "--categories",
        type=lambda text: _some(text, CATEGORIES, "multi_turn_"),
        default=CATEGORIES,
        help="base, miss_func, miss_param, long_context, separated by commas (all)",
    )
    add(
        "--classes",
        type=lambda text: _some(text, TOOL_CLASSES),
        default=TOOL_CLASSES,
        help=f"tool classes that a task may have: {', '.join(TOOL_CLASSES)} (all)",
    )
    add(
        "--turns",
        type=_range,
        metavar="LOW-HIGH",
        help="turns that call tools, e.g. 2-3 (as in training tasks)",
    )
    add("--calls", type=_range, metavar="LOW-HIGH", help="calls of a turn (as in training tasks)")
    add(
        "--indirect",
        type=_share,
        default=0.5,
        metavar="SHARE",
        help="probability of 'that booking' where a value need not be said (%(default)s)",
    )
    args = parser.parse_args(argv)
    if args.command == "make" and args.candidates is not None:
        for name in (
            "tasks",
            "seed",
            "processes",
            "categories",
            "classes",
            "turns",
            "calls",
            "indirect",
        ):
            if getattr(args, name) != make.get_default(name):
                make.error(f"--{name} is for drawn tasks, and --candidates draws none")
    return args


def _name(text: str) -> str:
    if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}", text):
        return text
    raise argparse.ArgumentTypeError(
        f"{text!r} is no name of a pool: up to 40 letters, digits, '-' and '_'"
    )


def _count(text: str) -> int:
    if text.isdecimal() and int(text) >= 1:
        return int(text)
    raise argparse.ArgumentTypeError(f"expected a whole number of at least 1, got {text!r}")


def _range(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d+)(?:-(\d+))?", text)
    if match:
        low, high = int(match[1]), int(match[2] or match[1])
        if 1 <= low <= high <= _MOST:
            return low, high
    raise argparse.ArgumentTypeError(f"expected LOW-HIGH within 1-{_MOST}, got {text!r}")


def _share(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if 0 <= value <= 1:
        return value
    raise argparse.ArgumentTypeError(f"expected a number from 0 to 1, got {text!r}")


def _some(text: str, known: Sequence[str], prefix: str = "") -> tuple[str, ...]:
    wanted = {name if name.startswith(prefix) else prefix + name for name in text.split(",")}
    if wanted <= set(known):
        return tuple(name for name in known if name in wanted)
    odd = sorted(wanted.difference(known))[0].removeprefix(prefix)
    names = ", ".join(name.removeprefix(prefix) for name in known)
    raise argparse.ArgumentTypeError(f"unknown {odd!r}; there are {names}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
