"""Check that a model's tokenizer and chat template do what training relies on.

Renders BFCL tasks as a rollout does, has the template write tool calls and reads them back, appends
results, and counts the tokens of every prompt. Needs the model's folder or hub name, without its
weights, and a running environment service (or --with-bfcl). Exit code 1: a check fails.
"""

import argparse
import asyncio
import itertools
import json
import logging
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import jinja2
from omegaconf import DictConfig
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress
from rich.table import Table

from seal import ROOT
from seal.backbone import checks
from seal.backbone.loading import Backbone, BackboneError, load_backbone
from seal.backbone.prompt_budget import largest_interface, prompt_limit, remedy
from seal.backbone.prompts import Prompt, count_tokens, fetch_prompts, in_batches, in_training
from seal.client.client import EnvironmentClient, EnvironmentFault
from seal.launch.folders import RunError
from seal.launch.listening import free_port
from seal.launch.processes import Family, interrupt_once
from seal.launch.recipe import EXP, RecipeError, load_recipe, model_length
from seal.launch.service import start_service, token, urls

SPLIT_FILE = ROOT / "data/bfcl_400_split.json"


def parse_arguments(argv: Sequence[str]) -> argparse.Namespace:
    """Command line."""
    parser = argparse.ArgumentParser(
        prog="check_backbone.py",
        usage="%(prog)s PATH [options] [-- key=value ...]",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="Example: check_backbone.py /models/Qwen2.5-3B-Instruct --backbone qwen2.5-3b "
        "--with-bfcl -- data.max_prompt_length=6144",
    )
    parser.add_argument("path", help="folder or hub name of the model")
    parser.add_argument("--conf", type=Path, default=EXP / "SEAL.yaml", help="recipe")
    parser.add_argument("--backbone", help="group of exp/backbone/; default: the recipe's own")
    parser.add_argument("--task", default="multi_turn_base_0", help="task to check calls on")
    parser.add_argument(
        "--tasks", type=int, default=800, help="prompts to count, evenly spread; default: all 800"
    )
    service = parser.add_mutually_exclusive_group()
    service.add_argument("--with-bfcl", action="store_true", help="start a service for the check")
    service.add_argument("--env-url", help="running service; default: the recipe's")
    # Overrides are cut off first: argparse would take the last one for PATH.
    own, overrides = list(argv), list[str]()
    if "--" in own:
        own, overrides = own[: own.index("--")], own[own.index("--") + 1 :]
    args = parser.parse_args(own)
    args.overrides = overrides
    return args


def task_ids(number: int, first: str) -> list[str]:
    """`first` and then tasks spread evenly over all 800."""
    split = json.loads(SPLIT_FILE.read_text("utf-8"))
    known = sorted(itertools.chain(*(ids for ids in split.values() if isinstance(ids, list))))
    spread = known[:: max(1, len(known) // max(1, number))][:number]
    return list(dict.fromkeys([first, *spread]))


def progress_bar(console: Console) -> Progress:
    """A bar that is gone when its `with` block ends, however it ends.

    `rich.progress.track` would leave the bar of an iteration that a fault breaks off to the garbage
    collector, which draws it once more, to a console that may be closed by then.
    """
    return Progress(console=console, transient=True)


def opened(recipe: DictConfig, ids: Sequence[str], console: Console) -> list[Prompt]:
    """How tasks open in evaluation, with a progress bar.

    Raises:
        EnvironmentFault: The service fails, or does not know a task.
        RunError: The recipe's address or token cannot be used.
    """

    async def fetch() -> list[Prompt]:
        settings = recipe.env_service
        client = EnvironmentClient(urls(recipe), settings.env_type, token=token(recipe))
        async with client:
            await client.health()
            with progress_bar(console) as bar:
                batches = bar.track(in_batches(ids), description="reading tasks")
                return await fetch_prompts(client, batches, settings.tool_format)

    return asyncio.run(fetch())


def findings_table(findings: Sequence[checks.TemplateCheck]) -> Table:
    """A row for each check."""
    table = Table("check", "", "detail")
    for finding in findings:
        outcome = "ok" if finding.passed else "[red]FAILS[/red]"
        table.add_row(finding.name, outcome, escape(finding.detail))
    return table


def lengths_table(
    title: str, prompts: Sequence[Prompt], counts: Sequence[int], limit: int
) -> tuple[Table, int]:
    """A row for each category, and the number of prompts that are not below the limit."""
    table = Table(title, "n", "shortest", "median", "longest", f"not below {limit}")
    lengths: dict[str, list[int]] = {}
    for prompt, count in zip(prompts, counts, strict=True):
        lengths.setdefault(prompt.category, []).append(count)
    for category, some in {**lengths, "all": counts}.items():
        ordered = sorted(some)
        overlong = sum(length >= limit for length in some)
        numbers = (len(some), ordered[0], ordered[len(ordered) // 2], ordered[-1], overlong)
        table.add_row(category, *map(str, numbers))
    return table, overlong


def report(
    backbone: Backbone, prompts: Sequence[Prompt], recipe: DictConfig, console: Console
) -> bool:
    """Print all tables; returns whether everything holds."""
    findings = checks.check(backbone, prompts[0])
    console.print(findings_table(findings))
    good = all(finding.passed for finding in findings)
    shown = largest_interface(backbone, recipe)
    kinds = {
        "prompts in evaluation": list(prompts),
        "in training, largest interface": [in_training(prompt, shown) for prompt in prompts],
    }
    limit = prompt_limit(recipe)
    longest = too_long = 0
    try:
        for title, some in kinds.items():
            with progress_bar(console) as bar:
                counts = count_tokens(
                    backbone, some, watch=partial(bar.track, description="counting tokens")
                )
            table, overlong = lengths_table(title, some, counts, limit)
            console.print(table)
            longest, too_long = max(longest, *counts), max(too_long, overlong)
    except checks.TEMPLATE_ERRORS as error:
        console.print(f"[red]prompts cannot be counted:[/red] {escape(str(error))}")
        return False
    room = min(int(recipe.data.max_response_length), model_length(recipe) - longest)
    console.print(f"tokens left for the dialogue behind the longest prompt: {room}")
    if too_long:
        console.print(
            f"[red]{too_long} tasks do not fit:[/red] a run with such a task is refused; "
            f"{remedy(longest)}"
        )
    if room <= 0:
        console.print("[red]no token is left for an answer:[/red] raise rollout.max_model_len")
    return good and not too_long and room > 0


def main(argv: Sequence[str]) -> int:
    """Run the checks; the exit code tells success."""
    args = parse_arguments(argv)
    console = Console()
    complaints = Console(stderr=True, soft_wrap=True, style="red")
    logging.getLogger("verl").setLevel(logging.ERROR)
    chosen = [] if args.backbone is None else [f"backbone={args.backbone}"]
    family = Family()
    try:
        recipe = load_recipe(args.conf, [*chosen, *args.overrides])
        backbone = load_backbone(args.path, recipe)
        if args.env_url:
            recipe.env_service.env_url = args.env_url
        with tempfile.TemporaryDirectory() as folder:
            if args.with_bfcl:
                recipe.env_service.env_url = f"http://127.0.0.1:{free_port()}"
                start_service(recipe, family, Path(folder, "service.log"))
            prompts = opened(recipe, task_ids(args.tasks, args.task), console)
        good = report(backbone, prompts, recipe, console)
    except (BackboneError, EnvironmentFault, RecipeError, RunError, jinja2.TemplateError) as error:
        complaints.print(f"check_backbone: {error}", markup=False)
        return 1
    except KeyboardInterrupt:
        return 130
    finally:
        family.end()
    console.print("everything holds" if good else "[red]something does not hold[/red]")
    return 0 if good else 1


if __name__ == "__main__":
    interrupt_once()
    sys.exit(main(sys.argv[1:]))
