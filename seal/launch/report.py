"""The report at the end of a run, from the files that the run wrote.

In: validation logs and loop log. Out: tables of the changes: pass rates by category and suite,
labels, the learning interface; and the cost.
"""

import difflib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median
from typing import Any

from omegaconf import DictConfig
from rich.console import Console
from rich.table import Table

from seal.launch import folders
from seal.launch.folders import loop_folder
from seal.records.json_lines import LineReader
from seal.records.loop_log import ROUNDS
from seal.validation.log import BadValidationFile, Rollout, log_files, read_log


@dataclass(frozen=True)
class Finished:
    """Time and memory of a finished run."""

    wall_s: float
    """From launch to the end of training."""
    policy_s: float
    """Part of `wall_s` for building the policy; 0.0 if the policy existed."""
    first_step_s: float | None
    """From the start of the training process to the end of the first step; None without a step."""
    service_cpu_s: float | None
    """Processor time of the service; None if the launcher did not start it."""
    peak_bytes: int
    """Largest private memory of all processes of the run together."""


def read_validation(path: Path) -> dict[str, list[Rollout]]:
    """The rollouts of a validation log, by suite.

    Raises:
        BadValidationFile: The log cannot be used.
    """
    suites: dict[str, list[Rollout]] = {}
    for rollout in read_log(path):
        suites.setdefault(rollout.suite, []).append(rollout)
    return suites


def scores(rollouts: Sequence[Rollout], category: str | None = None) -> list[float]:
    """Scores of the rollouts of a category; None: of all categories."""
    return [rollout.score for rollout in rollouts if category in (None, rollout.category)]


def turn_shares(rollouts: Sequence[Rollout]) -> dict[str, float]:
    """Share of all turns that have a label, by label."""
    turns = Counter(label for rollout in rollouts for label in rollout.labels)
    return {label: count / turns.total() for label, count in turns.items()}


def first_and_last(folder: Path) -> tuple[Path, Path] | None:
    """The first and the last validation log of a run, by step; None if there are fewer than two.

    Raises:
        BadValidationFile: A log is not named after a step.
    """
    logs = log_files(folder)
    return (logs[0], logs[-1]) if len(logs) > 1 else None


def print_report(console: Console, recipe: DictConfig, finished: Finished) -> None:
    """Print the report of a finished run."""
    try:
        _validations(console, folders.ROOT / recipe.trainer.validation_data_dir)
    except BadValidationFile as error:
        # The rest of the report does not need the validation logs.
        console.print(f"no pass rates: {error}", style="red", markup=False, highlight=False)
    rounds = list(LineReader(loop_folder(recipe) / ROUNDS).new())
    if rounds:
        _interface(console, rounds)
    _cost(console, finished, rounds)
    console.print("\n[bold]Where everything is[/bold]")
    for what, path in (
        ("metrics, loop log, checkpoints", Path(recipe.seal.loop_dir).parent),
        ("validation logs", Path(recipe.trainer.validation_data_dir)),
        ("configuration and process logs", f"launcher_record/{recipe.trainer.experiment_name}"),
    ):
        console.print(f"  {what}: {path}/", highlight=False)


def _validations(console: Console, folder: Path) -> None:
    logs = first_and_last(folder)
    if logs is None:
        return
    before, after = (read_validation(log) for log in logs)
    suites = [(suite, before[suite], after[suite]) for suite in after if suite in before]
    for suite, old, new in suites:
        _pass_rates(console, suite, old, new, logs)
    _labels(console, suites)


def _pass_rates(
    console: Console,
    suite: str,
    before: Sequence[Rollout],
    after: Sequence[Rollout],
    logs: tuple[Path, Path],
) -> None:
    table = Table("category", title=f"Pass rate, suite {suite!r}", title_justify="left")
    first, last = (log.stem for log in logs)
    for header in ("n", f"before (step {first})", f"after (step {last})", "change"):
        table.add_column(header, justify="right")
    categories = ({rollout.category for rollout in side} for side in (before, after))
    common = sorted(set.intersection(*categories))
    for category in [*common, *([None] if len(common) > 1 else [])]:
        results = scores(after, category)
        old, new = fmean(scores(before, category)), fmean(results)
        change = f"{100 * (new - old):+.1f}"
        table.add_row(category or "all", f"{len(results)}", f"{old:.1%}", f"{new:.1%}", change)
    console.print(table)


def _labels(
    console: Console, suites: Sequence[tuple[str, Sequence[Rollout], Sequence[Rollout]]]
) -> None:
    table = Table("label", title="Turns by label, before and after", title_justify="left")
    for suite, _, _ in suites:
        table.add_column(suite, justify="right")
    shares = [(turn_shares(before), turn_shares(after)) for _, before, after in suites]
    for name in sorted({name for pair in shares for side in pair for name in side}):
        cells = (f"{old.get(name, 0):.1%} -> {new.get(name, 0):.1%}" for old, new in shares)
        table.add_row(name, *cells)
    console.print(table)


def _interface(console: Console, rounds: list[dict[str, Any]]) -> None:
    console.print("\n[bold]Learning interface over the run[/bold]")
    last = ""
    for line in rounds:
        interface = line["interface"]
        if interface["content_hash"] != last:
            active = ", ".join(interface["active"]) or "nothing (the original benchmark)"
            console.print(f"  after step {line['step']}: {active}", highlight=False)
            last = interface["content_hash"]
    first, final = rounds[0]["interface"], rounds[-1]["interface"]
    diff = list(
        difflib.unified_diff(
            first["text"].splitlines(),
            final["text"].splitlines(),
            f"interface v{first['version']}",
            f"interface v{final['version']}",
            lineterm="",
        )
    )
    console.print("\n".join(f"  {text}" for text in diff) or "  no difference", markup=False)


def _cost(console: Console, finished: Finished, rounds: list[dict[str, Any]]) -> None:
    console.print("\n[bold]Cost[/bold]")
    policy = f", of it {finished.policy_s:.0f} s for the policy" if finished.policy_s else ""
    console.print(f"  wall time {finished.wall_s:.0f} s{policy}")
    if finished.first_step_s is not None:
        console.print(f"  first training step done {finished.first_step_s:.0f} s after the service")
    if len(rounds) > 1:
        # The median leaves out validations, and the pause before a run was resumed.
        seconds = median(later["time"] - earlier["time"] for earlier, later in pairwise(rounds))
        console.print(f"  {seconds:.1f} s a training step")
    console.print(f"  peak memory {finished.peak_bytes / 1024**3:.1f} GiB (private, all processes)")
    if finished.service_cpu_s is not None:
        share = finished.service_cpu_s / finished.wall_s
        console.print(
            f"  environment service: {finished.service_cpu_s:.1f} s of processor time, "
            f"{share:.1%} of the wall time"
        )
