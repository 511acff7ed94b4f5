"""Make pools of synthetic tasks from the training side of a split, and say what is in them.

    .venv-bfcl/bin/python -m env_service.environments.bfcl.synthesis make NAME \
        --split data/bfcl_clean_split.json --tasks 2000 --seed 1
    .venv-bfcl/bin/python -m env_service.environments.bfcl.synthesis make NAME \
        --split data/bfcl_clean_split.json --candidates FILE
    .venv-bfcl/bin/python -m env_service.environments.bfcl.synthesis report NAME

With --candidates a pool is made of what a model has proposed (scripts/explore.py).

The service plays the tasks of a pool: python -m env_service --env bfcl --tasks FILE.
"""

import argparse
import hashlib
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
    FOLDER,
    BadPool,
    report_file,
    sha256_of,
    task_file,
)
from env_service.environments.bfcl.synthesis.proposals import Knobs, Proposer
from env_service.environments.bfcl.synthesis.report import text_of
from env_service.environments.bfcl.tasks import CATEGORIES, BfclTask, load_tasks
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
    training, others, split_sha256 = _sides(args.split)
    knobs = Knobs(
        seed=args.seed,
        categories=args.categories,
        classes=args.classes,
        turns=args.turns,
        calls=args.calls,
        indirect_share=args.indirect,
    )
    proposer = Proposer(training, others, knobs, split_sha256)
    if args.candidates is None:
        draft = making.make(proposer, args.name, args.tasks, args.processes)
    else:
        lines, pools = read_candidates(args.candidates, args.folder)
        source = FromFile(lines, proposer.seeds, others, pools, split_sha256)
        draft = making.make_from(source.attempts(), args.name)
    making.write(draft, args.folder, args.name)
    sys.stderr.write(
        f"synthesis: {task_file(args.folder, args.name)} in {time.monotonic() - started:.0f} s\n"
    )


def _report(args: argparse.Namespace) -> dict[str, object]:
    path, tasks = report_file(args.folder, args.name), task_file(args.folder, args.name)
    try:
        report: dict[str, object] = json.loads(path.read_text("utf-8"))
        if report["tasks_sha256"] != sha256_of(tasks):
            raise BadPool(f"{path} is not the report of {tasks}; make the pool again")
    except FileNotFoundError as error:
        raise BadPool(f"there is no pool {args.name}: {error.filename} is missing") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadPool(f"cannot read {path}: {error}") from None
    return report


def _sides(path: Path) -> tuple[list[BfclTask], list[BfclTask], str]:
    """Training tasks, evaluation and development tasks, and the hash of the split's file."""
    try:
        content = path.read_bytes()
        split = json.loads(content)
    except (OSError, ValueError) as error:
        raise BadPool(f"cannot read --split {path}: {error}") from None
    if not isinstance(split, dict) or not all(
        isinstance(split.get(side), list) for side in ("train", "val")
    ):
        raise BadPool(f"{path} is no split: it needs the lists 'train' and 'val'")
    known = load_tasks()
    sides = {name: split.get(name, []) for name in ("train", "val", "development")}
    for task_id in (name for ids in sides.values() for name in ids):
        if task_id not in known:
            raise BadPool(f"unknown task {task_id!r} in {path}; one is multi_turn_base_0")
    tasks = {name: [known[task_id] for task_id in ids] for name, ids in sides.items()}
    sha256 = hashlib.sha256(content).hexdigest()
    return tasks["train"], tasks["val"] + tasks["development"], sha256


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
            "--folder", type=Path, default=FOLDER, help="where pools are kept (%(default)s)"
        )
    add = make.add_argument
    add("--split", type=Path, required=True, help="JSON file with the lists train and val")
    add(
        "--candidates",
        type=Path,
        metavar="FILE",
        help="keep those of this file that pass (all of the options below are for drawn tasks)",
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
