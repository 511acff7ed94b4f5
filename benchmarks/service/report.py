"""What the benchmark has measured: rows, targets, and how they are shown.

In: figures. Out: text for a person, JSON for a program. Knows nothing of how they were measured.
"""

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.output import figure, figures_table, text_of

BASE, LONG_CONTEXT, TRAINING = "base", "long_context", "training step, 32 x 8"
TRAINING_TASKS, ROLLOUTS = 32, 8
MEGABYTE = 1_000_000


@dataclass(frozen=True)
class Latency:
    """Of one kind of request, in milliseconds."""

    p50: float
    p99: float

    @classmethod
    def of(cls, milliseconds: Sequence[float]) -> "Latency":
        """Nearest-rank percentiles; NaN of nothing."""
        return cls(percentile(milliseconds, 0.5), percentile(milliseconds, 0.99))

    def __str__(self) -> str:
        return f"{self.p50:.1f} / {self.p99:.1f}"


@dataclass(frozen=True)
class Row:
    """One measurement."""

    name: str
    """Which episodes."""
    clients: int
    """Concurrent episodes; 0 for the baseline."""
    passes: int
    """How often the list of episodes was played."""
    episodes: int
    steps: int
    wall_s: float
    create: Latency | None = None
    step: Latency | None = None
    evaluate: Latency | None = None
    ratio: float | None = None
    """Episodes a second over those of the baseline."""
    service_cpu_s: float | None = None
    """Processor time of the service's processes; None if the benchmark did not start them."""
    client_cpu_s: float | None = None
    """Processor time of the processes that replay; of the baseline: all of it."""

    @property
    def episodes_per_s(self) -> float:
        """Episodes a second."""
        return self.episodes / self.wall_s

    @property
    def steps_per_s(self) -> float:
        """Steps a second."""
        return self.steps / self.wall_s


@dataclass(frozen=True)
class Target:
    """A figure and what it should be."""

    name: str
    value: float
    limit: float
    at_least: bool = False
    """True: the figure should not be below the limit. False: it should be below the limit."""

    @property
    def met(self) -> bool:
        """Whether the figure is as it should be."""
        return self.value >= self.limit if self.at_least else self.value < self.limit


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of the values does not exceed.

    >>> percentile([4.0, 1.0, 3.0, 2.0], 0.5), percentile([4.0, 1.0, 3.0, 2.0], 0.99)
    (2.0, 4.0)
    """
    if not values:
        return math.nan
    return sorted(values)[max(math.ceil(share * len(values)), 1) - 1]


def targets(rows: Sequence[Row], memory: dict[str, float], ready_s: float | None) -> list[Target]:
    """What the figures should be.

    Args:
        rows: All rows of a run.
        memory: Bytes "before", "with" and "after" idle "episodes"; empty: not measured.
        ready_s: Seconds from the service's start until it answered; None: not measured.
    """
    of = {(row.name, row.clients): row for row in rows}
    base, long_context = of[BASE, 32], of[LONG_CONTEXT, 32]
    assert base.step is not None and base.create is not None
    goals = [
        Target("base, 32 clients: episodes/s", base.episodes_per_s, 60, at_least=True),
        Target("base, 32 clients: steps/s", base.steps_per_s, 400, at_least=True),
        Target("base, 32 clients: step p99, ms", base.step.p99, 50),
        Target("base, 32 clients: create p99, ms", base.create.p99, 100),
        Target("long_context, 32 clients: episodes/s", long_context.episodes_per_s, 30, True),
    ]
    for clients in (32, 256):
        seconds = TRAINING_TASKS * ROLLOUTS / of[TRAINING, clients].episodes_per_s
        goals.append(Target(f"256 episodes at {clients}: seconds", seconds, 6))
    if memory:
        name = f"{memory['episodes']:.0f} idle episodes: MB"
        goals.append(Target(name, memory["with"] / MEGABYTE, 1000))
    if ready_s is not None:
        goals.append(Target("start to ready: seconds", ready_s, 3))
    return goals


def report(rows: Sequence[Row], memory: dict[str, float], goals: Sequence[Target]) -> str:
    """The tables; see `targets` for the arguments."""
    head = ["row", "clients", "episodes/s", "steps/s", "steps/ep.", "create ms", "step ms"]
    head += ["evaluate ms", "of baseline", "service cpu s", "client cpu s", "wall s", "passes"]
    cells = [
        [
            row.name,
            row.clients or "-",
            f"{row.episodes_per_s:.1f}",
            f"{row.steps_per_s:.0f}",
            f"{row.steps / row.episodes:.1f}",
            *(latency or "-" for latency in (row.create, row.step, row.evaluate)),
            figure(row.ratio, ".3f"),
            *(figure(s, ".1f") for s in (row.service_cpu_s, row.client_cpu_s, row.wall_s)),
            row.passes,
        ]
        for row in rows
    ]
    parts = [text_of(figures_table(head, cells)), "Latencies are p50 / p99 as a client sees them."]
    if memory:
        megabytes = [f"{memory[when] / MEGABYTE:.0f} MB" for when in ("before", "with", "after")]
        parts.append(
            f"Memory of the service's processes (PSS): {megabytes[0]} before, {megabytes[1]} with "
            f"{memory['episodes']:.0f} live idle episodes, {megabytes[2]} after their release."
        )
    lines = [
        [
            goal.name,
            f"{goal.value:.1f}",
            f"{'>=' if goal.at_least else '<'} {goal.limit:g}",
            "met" if goal.met else "MISSED",
        ]
        for goal in goals
    ]
    parts.append(text_of(figures_table(["target", "measured", "wanted", ""], lines)))
    return "\n\n".join(parts)


def measured(
    rows: Sequence[Row], memory: dict[str, float], goals: Sequence[Target]
) -> dict[str, Any]:
    """The same figures for a program."""
    rates = ("episodes_per_s", "steps_per_s")
    return {
        "rows": [
            {**dataclasses.asdict(row), **{rate: getattr(row, rate) for rate in rates}}
            for row in rows
        ],
        "memory_bytes": memory,
        "targets": [{**dataclasses.asdict(goal), "met": goal.met} for goal in goals],
    }
