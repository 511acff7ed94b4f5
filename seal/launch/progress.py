"""The progress bar of a run: step, reward, labels, time left."""

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from seal.records.loop_log import turns_by_label

PHASES = {
    "prompts": "counting the tokens of all prompts",
    "start": "starting Ray, verl and vLLM",
    "ready": "ready",
    "weight_transfer": "handing weights to the rollout workers",
    "validate": "evaluating",
    "validate_end": "evaluated",
    "rollout": "rolling out",
    "sleep": "freeing the rollout workers' memory",
    "update": "updating the policy",
    "step_end": "step done",
}
"""Names of the trainer's phases on the screen."""


def label_shares(labels: dict[str, dict[str, int]], top: int = 4) -> str:
    """The most frequent labels of a round as text.

    >>> label_shares({"multi_turn_base": {"pass": 3, "state_mismatch": 1}})
    'pass 75%, state_mismatch 25%'
    """
    total = turns_by_label(labels)
    turns = max(1, total.total())
    return ", ".join(f"{label} {count / turns:.0%}" for label, count in total.most_common(top))


def sources_apart(sources: Mapping[str, Mapping[str, Any]]) -> str:
    """Pass rate and mixed groups of real and synthetic tasks; "" in a round without the latter.

    >>> real = {"groups": 4, "pass_rate": 0.5, "mixed_group_share": 0.25, "labels": {}}
    >>> sources_apart({"real": real, "synthetic": {**real, "groups": 1}})
    'real (4) pass 50% mixed 25%, synthetic (1) pass 50% mixed 25%  '
    """
    parts = [
        f"{name} ({of['groups']}) pass {of['pass_rate']:.0%} mixed {of['mixed_group_share']:.0%}"
        for name, of in sources.items()
    ]
    return f"{', '.join(parts)}  " if parts else ""


class RunProgress:
    """Shows a run on a terminal; on any other output it prints one line for each round.

    Example: `with progress.bar: progress.on_round(line)`.

    Args:
        console: Where to print.
        total_steps: Training steps of the run; None if the recipe has a number of epochs instead.
    """

    def __init__(self, console: Console, total_steps: int | None) -> None:
        self._console = console
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._task = self.bar.add_task(PHASES["start"], total=total_steps)
        self._of = f"/{total_steps}" if total_steps else ""

    def on_phase(self, line: dict[str, Any]) -> None:
        """Show a phase that began, or how far it is; `line` is from phases.jsonl."""
        name = PHASES.get(line["phase"], line["phase"])
        if "ended" in line:
            self.bar.update(
                self._task, description=f"{name}: {line['ended']} of {line['of']} prompts"
            )
            return
        self.bar.update(self._task, description=name)
        if not self._console.is_terminal and line["phase"] in ("ready", "validate"):
            self._console.print(f"{name} (step {line['step']})", highlight=False)

    def on_round(self, line: dict[str, Any]) -> None:
        """Show a finished training round; `line` is from rounds.jsonl."""
        metrics = line["metrics"]
        self.bar.update(self._task, completed=line["step"])
        self._console.print(
            f"step {line['step']:>3}{self._of}  pass {metrics['seal/pass_rate']:.0%}  "
            f"mixed groups {metrics['seal/mixed_group_share']:.0%}  "
            f"weight {metrics['seal/weight/mean']:.2f}  "
            f"next interface v{line['interface']['version']}  "
            f"{sources_apart(line.get('sources', {}))}{label_shares(line['labels'])}",
            highlight=False,
        )
