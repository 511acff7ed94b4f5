"""The table at the end of a run, made from the files the run left behind.

In: validation logs and loop log. Out: rich tables of what changed: pass rates by category, the
fixed evaluation, labels, the learning interface.
"""

import difflib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig
from rich.console import Console
from rich.table import Table

from seal.launch import folders
from seal.records.loop_log import ROUNDS, LineReader
from seal.records.validation_log import BadValidationLog, log_files, read_log


@dataclass(frozen=True)
class Finished:
    """What was measured around a finished run."""

    wall_s: float
    """From launch to the end of training."""
    policy_s: float
    """Of that, building the policy; 0.0 where it was there."""
    first_step_s: float | None
    """From the policy being there to the end of the first training step."""
    service_cpu_s: float | None
    """Processor time of the service; None where the launcher did not start it."""
    peak_bytes: int
    """Largest private memory of all processes of the run together."""


@dataclass(frozen=True)
class SuiteResult:
    """One suite of one validation."""

    passes: dict[str, list[float]]
    """Scores by category."""
    labels: Counter[str]
    """Turns by label."""

    def rate(self, category: str | None = None) -> float:
        """Mean score of a category, or of everything."""
        scores = [
            score
            for name, group in self.passes.items()
            if category in (None, name)
            for score in group
        ]
        return sum(scores) / len(scores)

    def count(self, category: str | None = None) -> int:
        """Rollouts in a category, or in everything."""
        return sum(len(g) for name, g in self.passes.items() if category in (None, name))


def read_validation(path: Path) -> dict[str, SuiteResult]:
    """A validation log, split by suite.

    Raises:
        BadValidationLog: It cannot be used.
    """
    suites: dict[str, SuiteResult] = {}
    for rollout in read_log(path):
        suite = suites.setdefault(rollout.suite, SuiteResult({}, Counter()))
        suite.passes.setdefault(rollout.category, []).append(rollout.score)
        suite.labels.update(rollout.labels)
    return suites


def first_and_last(folder: Path) -> tuple[Path, Path] | None:
    """The first and the last validation log of a run, by step; None without two.

    Raises:
        BadValidationLog: A log is not named after a step.
    """
    logs = log_files(folder)
    return (logs[0], logs[-1]) if len(logs) > 1 else None


def print_report(console: Console, recipe: DictConfig, finished: Finished) -> None:
    """Print everything a reader wants to know after a run."""
    try:
        _validations(console, folders.ROOT / recipe.trainer.validation_data_dir)
    except BadValidationLog as error:
        # The run is done, and the rest of what it left behind still tells something.
        console.print(f"no pass rates: {error}", style="red", markup=False, highlight=False)
    rounds = list(LineReader(folders.ROOT / recipe.seal.loop_dir / ROUNDS).new())
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
    common = [suite for suite in after if suite in before]
    for suite in common:
        _pass_rates(console, suite, before[suite], after[suite], logs)
    _labels(console, [(suite, before[suite], after[suite]) for suite in common])


def _pass_rates(
    console: Console,
    suite: str,
    before: SuiteResult,
    after: SuiteResult,
    logs: tuple[Path, Path],
) -> None:
    table = Table(title=f"Pass rate, suite {suite!r}", title_justify="left")
    table.add_column("category")
    table.add_column("n", justify="right")
    table.add_column(f"before (step {logs[0].stem})", justify="right")
    table.add_column(f"after (step {logs[1].stem})", justify="right")
    table.add_column("change", justify="right")
    common = sorted(before.passes.keys() & after.passes.keys())
    categories: list[str | None] = [*common, *([None] * (len(common) > 1))]
    for category in categories:
        old, new = before.rate(category), after.rate(category)
        table.add_row(
            category or "all",
            str(after.count(category)),
            f"{old:.1%}",
            f"{new:.1%}",
            f"{100 * (new - old):+.1f}",
        )
    console.print(table)


def _labels(console: Console, suites: Sequence[tuple[str, SuiteResult, SuiteResult]]) -> None:
    table = Table(title="Turns by label, before and after", title_justify="left")
    table.add_column("label")
    for suite, _, _ in suites:
        table.add_column(suite, justify="right")
    names = sorted({name for _, *pair in suites for result in pair for name in result.labels})
    for name in names:
        cells = []
        for _, before, after in suites:
            old = before.labels[name] / max(1, before.labels.total())
            new = after.labels[name] / max(1, after.labels.total())
            cells.append(f"{old:.1%} -> {new:.1%}")
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
    console.print(
        f"  wall time {finished.wall_s:.0f} s, of it {finished.policy_s:.0f} s for the policy"
    )
    if finished.first_step_s is not None:
        console.print(f"  first training step done {finished.first_step_s:.0f} s after the policy")
    if len(rounds) > 1:
        seconds = (rounds[-1]["time"] - rounds[0]["time"]) / (len(rounds) - 1)
        console.print(f"  {seconds:.1f} s a training step")
    console.print(f"  peak memory {finished.peak_bytes / 1024**3:.1f} GiB (private, all processes)")
    if finished.service_cpu_s is not None:
        share = finished.service_cpu_s / finished.wall_s
        console.print(
            f"  environment service: {finished.service_cpu_s:.1f} s of processor time, "
            f"{share:.1%} of the wall time"
        )
