"""Write demonstrations of training tasks, one JSON line for each dialogue.

    .venv-bfcl/bin/python -m env_service.environments.bfcl.demonstrations exact --out FILE \
        --task-ids data/bfcl_scenario_split.json

The file names tasks: a JSON list of ids, a split, of which only the training side is read, or the
tasks of a pool of synthetic tasks (NAME.tasks.jsonl).
"""

import argparse
import json
import random
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from env_service.environments.bfcl.demonstrations import exact, tempted
from env_service.environments.bfcl.demonstrations.dialogue import shown
from env_service.environments.bfcl.synthesis.pool import BadPool, read_tasks
from env_service.environments.bfcl.tasks import CATEGORIES, BfclTask, load_tasks
from seal.formats import FORMATS

POOL = ".tasks.jsonl"
"""How the name of a pool's file ends."""


class BadInput(Exception):
    """An argument of the command line cannot be used; the message says why."""


def main(argv: list[str]) -> int:
    """Write the dialogues; returns 1 if an argument of the command line cannot be used, else 0."""
    args = _arguments(argv)
    try:
        tasks = _tasks(args.task_ids)
        if args.style == "exact":
            tasks = _of_categories(tasks, args.categories.split(","))
        if not args.out.parent.is_dir():
            raise BadInput(f"the folder of --out {args.out} is missing; make {args.out.parent}")
    except BadInput as error:
        sys.stderr.write(f"demonstrations: {error}\n")
        return 1
    counts: Counter[str] = Counter()
    with args.out.open("w", encoding="utf-8") as file:
        lines = _exact(tasks, args) if args.style == "exact" else _tempted(tasks, args)
        for line in lines:
            if line is None:
                counts["dropped"] += 1
                continue
            file.write(json.dumps(line) + "\n")
            counts["written"] += 1
            counts["passed"] += int(line["reward"])
    share = counts["passed"] / counts["written"] if counts["written"] else 0.0
    sys.stdout.write(
        f"{counts['written']} demonstrations, {share:.0%} pass, {counts['dropped']} dropped\n"
    )
    return 0


def _tasks(path: Path) -> list[BfclTask]:
    if path.name.endswith(POOL):
        try:
            return read_tasks(path)
        except BadPool as error:
            raise BadInput(str(error)) from None
    try:
        named = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise BadInput(f"cannot read --task-ids {path}: {error}") from None
    ids = named.get("train") if isinstance(named, dict) else named
    if not isinstance(ids, list):
        raise BadInput(f"{path} is neither a JSON list of ids nor a split with a list 'train'")
    known = load_tasks()
    for task_id in ids:
        if not isinstance(task_id, str) or task_id not in known:
            raise BadInput(f"unknown task {task_id!r} in {path}; one is multi_turn_base_0")
    return [known[task_id] for task_id in ids]


def _of_categories(tasks: Sequence[BfclTask], wanted: Sequence[str]) -> list[BfclTask]:
    for name in wanted:
        if name not in CATEGORIES:
            raise BadInput(f"unknown category {name!r}; there are {', '.join(CATEGORIES)}")
    return [task for task in tasks if task.category in wanted]


def _tempted(tasks: Sequence[BfclTask], args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    for task in tasks:
        for number in range(args.dialogues):
            rng = random.Random(f"{args.seed}/{task.task_id}/{number}")
            options = shown("train" if number % 2 else "eval", rng, tempted.TOOL_FORMAT)
            yield tempted.play(task, options, rng)


def _exact(tasks: Sequence[BfclTask], args: argparse.Namespace) -> Iterator[dict[str, Any] | None]:
    shares = exact.Shares(args.interface_share, args.mistake_share)
    for place, task in enumerate(tasks):
        yield from exact.demonstrations(task, args.variants, shares, args.tool_format, args.seed)
        if place % 20 == 19:
            sys.stderr.write(f"demonstrations: {place + 1} of {len(tasks)} tasks\n")


def _arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    styles = parser.add_subparsers(dest="style", required=True)
    for style in (tempted, exact):
        name = style.__name__.rpartition(".")[2]
        add = styles.add_parser(
            name,
            help=(style.__doc__ or "").partition("\n")[0],
            description=style.__doc__,
            formatter_class=argparse.ArgumentDefaultsHelpFormatter,
        ).add_argument
        add("--out", type=Path, required=True, help="JSON lines file to write")
        add("--task-ids", type=Path, required=True, help="JSON list of ids, or a split's file")
        add("--seed", type=int, default=1, help="seed")
        if style is tempted:
            add("--dialogues", type=int, default=48, help="dialogues of each task")
        else:
            add("--tool-format", choices=FORMATS, default="hermes", help="how calls are written")
            add("--categories", default="multi_turn_base", help="categories, separated by commas")
            add("--variants", type=int, default=4, help="variants of each task")
            add(
                "--interface-share",
                type=float,
                default=0.25,
                help="share of variants in mode train",
            )
            add(
                "--mistake-share", type=float, default=0.05, help="share of calls after a wrong one"
            )
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
