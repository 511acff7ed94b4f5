"""The progress bar of a run: step, reward, labels, time left."""

from collections import Counter
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

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
"""What the trainer's phases are called on the screen."""


def label_shares(labels: dict[str, dict[str, int]], top: int = 4) -> str:
    """The most frequent labels of a round as text.

    >>> label_shares({"multi_turn_base": {"pass": 3, "state_mismatch": 1}})
    'pass 75%, state_mismatch 25%'
    """
    total: Counter[str] = Counter()
    for counts in labels.values():
        total.update(counts)
    turns = max(1, total.total())
    return ", ".join(f"{label} {count / turns:.0%}" for label, count in total.most_common(top))


class RunProgress:
    """Shows a run on a terminal; on anything else it prints one line a round.

    Args:
        console: Where to.
        total_steps: Training steps of the run; None where verl works them out from the epochs.
    """

    def __init__(self, console: Console, total_steps: int | None) -> None:
        self._console = console
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._task = self._progress.add_task(PHASES["start"], total=total_steps)
        self._of = f"/{total_steps}" if total_steps else ""

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._progress.stop()

    def on_phase(self, line: dict[str, Any]) -> None:
        """A phase began."""
        name = PHASES.get(line["phase"], line["phase"])
        self._progress.update(self._task, description=name)
        if not self._console.is_terminal and line["phase"] in ("ready", "validate"):
            self._console.print(f"{name} (step {line['step']})", highlight=False)

    def on_round(self, line: dict[str, Any]) -> None:
        """A training round is done."""
        metrics = line["metrics"]
        self._progress.update(self._task, completed=line["step"])
        self._console.print(
            f"step {line['step']:>3}{self._of}  pass {metrics['seal/pass_rate']:.0%}  "
            f"mixed groups {metrics['seal/mixed_group_share']:.0%}  "
            f"weight {metrics['seal/weight/mean']:.2f}  "
            f"next interface v{line['interface']['version']}  {label_shares(line['labels'])}",
            highlight=False,
        )
