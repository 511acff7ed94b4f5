"""The figure of a run's validations: pass rates over training, with their intervals.

In: the rows of a summary. Out: a PNG.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from seal.validation.statistics import AVERAGE
from seal.validation.summary import SummaryRow

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#999999", "#000000")
"""Okabe and Ito's palette, which is safe for the colour-blind; more lines differ by their style."""


def write_plot(path: Path, rows: Sequence[SummaryRow]) -> None:
    """Pass rate by step with interval bands: a panel for each suite, a line for each category.

    Raises:
        ModuleNotFoundError: matplotlib is not installed.
        OSError: The file cannot be written.
    """
    # Imported here because it takes a second, and tables do not need it.
    from matplotlib.figure import Figure

    shown = [row for row in rows if row.defective_tasks == "included"]
    suites = list(dict.fromkeys(row.suite for row in shown))
    figure = Figure(figsize=(9, 4.8 * len(suites)), layout="constrained")
    for axes, suite in zip(figure.subplots(len(suites), squeeze=False)[:, 0], suites, strict=True):
        _draw(axes, [row for row in shown if row.suite == suite])
        axes.set_title(f"Validation, suite {suite!r}, with 95 % intervals")
    figure.savefig(path, dpi=150)


def _draw(axes: Any, rows: Sequence[SummaryRow]) -> None:
    steps = sorted({row.step for row in rows})
    names = [name for name in dict.fromkeys(row.category for row in rows) if name != AVERAGE]
    for place, name in enumerate([*names, AVERAGE]):
        line = [row for row in rows if row.category == name]
        average = name == AVERAGE
        rates = [100 * row.pass_rate for row in line]
        low, high = [100 * row.low for row in line], [100 * row.high for row in line]
        style = {
            "color": "black" if average else COLOURS[place % len(COLOURS)],
            "marker": "o" if average else "s^Dv"[place % 4],
            "label": f"{name} (n={max(row.rollouts for row in line)})",
            "zorder": 3 if average else 2,
        }
        if len(steps) > 1:
            at = [row.step for row in line]
            axes.plot(at, rates, linewidth=2.6 if average else 1.4, **style)
            axes.fill_between(at, low, high, color=style["color"], alpha=0.12, linewidth=0)
        else:
            # A band has no width at one step: bars, side by side.
            reach = [[rates[0] - low[0]], [high[0] - rates[0]]]
            axes.errorbar([place], rates, reach, capsize=4, linestyle="", **style)
    top = min(100, 5 + max(100 * row.high for row in rows))
    axes.set_ylim(-top / 50, top)
    axes.set_ylabel("pass rate (%)")
    axes.set_xlabel("training step" if len(steps) > 1 else f"at training step {steps[0]}")
    axes.set_xticks(steps[:: 1 + len(steps) // 20] if len(steps) > 1 else [])
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small", loc="upper left", bbox_to_anchor=(1.01, 1), borderaxespad=0)
