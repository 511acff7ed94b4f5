"""The report's plots, as SVG and PNG: scores, metrics of the rounds, labels, the interface.

In: the document that `report` makes, and a folder. Out: files beside the page.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from seal.validation.plot import COLOURS

STYLES = ("-", "--", ":", "-.")
_PANEL = (5.2, 3.2)
_COLUMNS = 3
_BAND_SEEDS = 3
"""Bands of two seeds (one degree of freedom) would hide every line."""


def draw(document: Mapping[str, Any], folder: Path) -> list[Path]:
    """Draw all plots; returns the files."""
    files: list[Path] = []
    for name, suite in document["suites"].items():
        steps = {step for by_step in suite["curves"].values() for step in by_step}
        if len(steps) == 1:
            files += _forest(name, suite["figures"], document["study"]["baseline"], folder / name)
        else:
            panels = {f"suite {name}, mean of the seeds (%)": suite["curves"]}
            files += _figure(panels, folder / name, scale=100)
    training = document["training"]
    metrics = {recipe: curves["metrics"] for recipe, curves in training.items()}
    names = list(dict.fromkeys(key for curves in metrics.values() for key in curves))
    for title, chosen in (
        ("training", [name for name in names if not name.startswith("label/")]),
        ("labels", [name for name in names if name.startswith("label/")]),
    ):
        panels = {
            name: {recipe: curves[name] for recipe, curves in metrics.items() if name in curves}
            for name in chosen
        }
        if panels:
            files += _figure(panels, folder / title)
    files += _timeline(training, folder / "interface")
    return files


def _figure(
    panels: Mapping[str, Mapping[str, Any]], path: Path, scale: float = 1.0
) -> Iterator[Path]:
    """A panel for each metric, a line with a band for each recipe."""
    figure, every = _panels(panels)
    for axes, curves in zip(every, panels.values(), strict=True):
        _curves(axes, curves, scale)
    handles, labels = every[0].get_legend_handles_labels()
    ncols = min(2 * min(_COLUMNS, len(panels)), len(labels))
    figure.legend(handles, labels, loc="outside lower center", ncols=ncols)
    yield from _saved(figure, path)


def _forest(
    name: str, figures: Iterable[Mapping[str, Any]], baseline: str, path: Path
) -> Iterator[Path]:
    """A suite that was played once: each recipe's mean and seeds, and its difference."""
    rows = [row for row in figures if (row["tasks"], row["step_rule"]) == ("all", "last")]
    titles = (f"suite {name}, mean and seeds (%)", f"difference to {baseline} (points)")
    figure, (scores, differences) = _panels(titles)
    for place, row in enumerate(rows):
        colour = COLOURS[place % len(COLOURS)]
        _estimate(scores, row["mean"], place, colour)
        seeds = [100 * score for score in row["by_seed"]]
        scores.plot(seeds, [place + 0.2] * len(seeds), "|", color=colour)
        if row.get("against_baseline"):
            _estimate(differences, row["against_baseline"]["difference"], place, colour)
    differences.axvline(0, color="black", linewidth=1)
    for axes in (scores, differences):
        axes.set_yticks(range(len(rows)), [row["recipe"] for row in rows])
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.grid(alpha=0.3)
    yield from _saved(figure, path)


def _estimate(axes: Any, estimate: Mapping[str, Any], place: int, colour: str) -> None:
    axes.plot(100 * estimate["value"], place, "o", color=colour)
    if estimate["low"] is not None:
        ends = [100 * estimate["low"], 100 * estimate["high"]]
        axes.plot(ends, [place, place], color=colour)


def _timeline(training: Mapping[str, Any], path: Path) -> Iterator[Path]:
    """A panel for each recipe that had an interface: in how many runs each part was on."""
    shown = {recipe: curves for recipe, curves in training.items() if curves["interface"]}
    if not shown:
        return
    parts = sorted(
        {part for curves in shown.values() for part in curves["interface"]}, reverse=True
    )
    figure, every = _panels(shown)
    for axes, curves in zip(every, shown.values(), strict=True):
        steps = sorted({int(step) for by_step in curves["metrics"].values() for step in by_step})
        on = [
            [curves["interface"].get(part, {}).get(str(step), 0) for step in steps]
            for part in parts
        ]
        mesh = axes.pcolormesh(steps, parts, on, cmap="Blues", vmin=0, vmax=1, edgecolors="white")
        axes.set_xlabel("training step")
    figure.colorbar(mesh, ax=every, label="share of the runs with the part on", shrink=0.6)
    yield from _saved(figure, path)


def _panels(titles: Iterable[str]) -> tuple[Any, list[Any]]:
    """A figure, and its axes with these titles."""
    # Imported here because it takes a second, and --help does not need it.
    from matplotlib.figure import Figure

    titles = list(titles)
    columns = min(_COLUMNS, len(titles))
    rows = -(-len(titles) // columns)
    figure = Figure(figsize=(_PANEL[0] * columns, _PANEL[1] * rows + 0.5), layout="constrained")
    every = figure.subplots(rows, columns, squeeze=False).flatten()
    for axes in every[len(titles) :]:
        axes.remove()
    used = list(every[: len(titles)])
    for axes, title in zip(used, titles, strict=True):
        axes.set_title(title, fontsize="medium")
    return figure, used


def _saved(figure: Any, path: Path) -> Iterator[Path]:
    """The figure's files, written."""
    from matplotlib import rc_context

    for suffix in (".svg", ".png"):
        file = path.with_suffix(suffix)
        # The same figure is the same file.
        with rc_context({"svg.hashsalt": path.name}):
            figure.savefig(file, dpi=110, metadata={"Date": None} if suffix == ".svg" else None)
        yield file


def _curves(axes: Any, curves: Mapping[str, Mapping[str, Mapping[str, Any]]], scale: float) -> None:
    for place, (recipe, by_step) in enumerate(curves.items()):
        steps = [int(step) for step in by_step]
        colour = COLOURS[place % len(COLOURS)]
        style = STYLES[place // len(COLOURS) % len(STYLES)]
        bands = list(by_step.values())
        means = [scale * band["mean"] for band in bands]
        axes.plot(steps, means, style, color=colour, label=recipe, marker=".")
        if all(band["low"] is not None and band["seeds"] >= _BAND_SEEDS for band in bands):
            lows, highs = ([scale * band[end] for band in bands] for end in ("low", "high"))
            axes.fill_between(steps, lows, highs, color=colour, alpha=0.1, linewidth=0)
    # Wide bands are cut off, because the lines would look flat beside them.
    every = [scale * band["mean"] for by_step in curves.values() for band in by_step.values()]
    margin = 0.6 * (max(every) - min(every)) or 0.1 * scale
    axes.set_ylim(min(every) - margin, max(every) + margin)
    axes.set_xlabel("training step")
    axes.grid(alpha=0.3)
