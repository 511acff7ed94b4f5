"""The report's plots, as SVG and PNG: scores, metrics of the rounds, shares of the labels.

In: the document that `report` makes, and a folder. Out: files beside the page.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#999999", "#000000")
"""Okabe and Ito's palette, which is safe for the colour-blind; more lines differ by their style."""
STYLES = ("-", "--", ":", "-.")
_PANEL = (5.2, 3.2)
_COLUMNS = 3


def draw(document: Mapping[str, Any], folder: Path) -> list[Path]:
    """Draw all plots; returns the files."""
    files: list[Path] = []
    for name, suite in document["suites"].items():
        panels = {f"suite {name}, mean of the seeds (%)": suite["curves"]}
        files += _figure(panels, folder / name, scale=100)
    training = document["training"]
    metrics = {recipe: one["metrics"] for recipe, one in training.items()}
    names = list(dict.fromkeys(key for one in metrics.values() for key in one))
    for title, chosen in (
        ("training", [name for name in names if not name.startswith("label/")]),
        ("labels", [name for name in names if name.startswith("label/")]),
    ):
        panels = {
            name: {recipe: one[name] for recipe, one in metrics.items() if name in one}
            for name in chosen
        }
        if panels:
            files += _figure(panels, folder / title)
    return files


def _figure(
    panels: Mapping[str, Mapping[str, Any]], path: Path, scale: float = 1.0
) -> Iterator[Path]:
    """A panel for each metric, a line with a band for each recipe; written as SVG and PNG."""
    # Imported here because it takes a second, and --help does not need it.
    from matplotlib.figure import Figure

    columns = min(_COLUMNS, len(panels))
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(_PANEL[0] * columns, _PANEL[1] * rows + 0.5), layout="constrained")
    every = figure.subplots(rows, columns, squeeze=False).flatten()
    for axes in every[len(panels) :]:
        axes.set_visible(False)
    for axes, (title, curves) in zip(every, panels.items(), strict=False):
        _panel(axes, curves, scale)
        axes.set_title(title, fontsize="medium")
    handles, labels = every[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(6, len(labels)))
    for suffix in (".svg", ".png"):
        file = path.with_suffix(suffix)
        figure.savefig(file, dpi=110, metadata={"Date": None} if suffix == ".svg" else None)
        yield file


def _panel(axes: Any, curves: Mapping[str, Mapping[str, Mapping[str, Any]]], scale: float) -> None:
    for place, (recipe, by_step) in enumerate(curves.items()):
        steps = [int(step) for step in by_step]
        colour = COLOURS[place % len(COLOURS)]
        style = STYLES[place // len(COLOURS) % len(STYLES)]
        bands = list(by_step.values())
        means = [scale * band["mean"] for band in bands]
        axes.plot(steps, means, style, color=colour, label=recipe, marker=".")
        if all(band["low"] is not None for band in bands):
            lows, highs = ([scale * band[end] for band in bands] for end in ("low", "high"))
            axes.fill_between(steps, lows, highs, color=colour, alpha=0.1, linewidth=0)
    axes.set_xlabel("training step")
    axes.grid(alpha=0.3)
