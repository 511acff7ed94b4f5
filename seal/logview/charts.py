"""Line charts and bars as the coordinates of an SVG drawing.

In: numbers. Out: coordinates and texts for a template; no markup is made here. Pure functions.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from seal.labels import Label

WIDTH, HEIGHT = 640, 180
_LEFT, _RIGHT, _TOP, _BOTTOM = 40, 8, 10, 22
_MOST_MARKED = 60
"""A line with more points gets a mark on its last point only: marks would touch each other."""

Points = Sequence[tuple[int, float]]
"""(step, value) in ascending order of steps."""


@dataclass(frozen=True)
class Series:
    """One line."""

    name: str
    style: str
    """CSS class that gives its colour."""
    path: str
    """Attribute `points` of an SVG polyline."""
    marks: tuple[tuple[float, float, str], ...]
    """(x, y, text) of the points that are marked."""


@dataclass(frozen=True)
class Chart:
    """A line chart of WIDTH by HEIGHT units."""

    title: str
    series: tuple[Series, ...]
    ticks_y: tuple[tuple[float, str], ...]
    """(y, text) of the grid lines."""
    ticks_x: tuple[tuple[float, str], ...]
    """(x, text) below the axis."""


@dataclass(frozen=True)
class Part:
    """One part of a bar of 100 units."""

    label: str
    style: str
    turns: int
    x: float
    width: float


def style_of(label: str) -> str:
    """CSS class of a label; that of an unknown name is "label-other"."""
    return f"label-{label}" if label in set(Label) else "label-other"


def line_chart(title: str, lines: Mapping[str, Points], styles: Mapping[str, str]) -> Chart | None:
    """A chart of shares over steps, from 0 to 1; None if there is nothing to draw."""
    finite = {
        name: [(step, value) for step, value in points if math.isfinite(value)]
        for name, points in lines.items()
    }
    finite = {name: points for name, points in finite.items() if points}
    if not finite:
        return None
    steps = [step for points in finite.values() for step, _ in points]
    first, last = min(steps), max(steps)

    def x(step: int) -> float:
        share = (step - first) / (last - first) if last > first else 0.5
        return round(_LEFT + share * (WIDTH - _LEFT - _RIGHT), 1)

    def y(value: float) -> float:
        share = min(1.0, max(0.0, value))
        return round(HEIGHT - _BOTTOM - share * (HEIGHT - _TOP - _BOTTOM), 1)

    series = []
    for name, points in finite.items():
        marked = points if len(points) <= _MOST_MARKED else points[-1:]
        series.append(
            Series(
                name,
                styles[name],
                " ".join(f"{x(step)},{y(value)}" for step, value in points),
                tuple(
                    (x(step), y(value), f"{name}, step {step}: {100 * value:.1f} %")
                    for step, value in marked
                ),
            )
        )
    shares = [quarter / 4 for quarter in range(5)]
    ticks = sorted({first, last, *(first + (last - first) * k // 4 for k in (1, 2, 3))})
    return Chart(
        title,
        tuple(series),
        tuple((y(share), f"{100 * share:.0f} %") for share in shares),
        tuple((x(step), str(step)) for step in ticks),
    )


def spark_line(values: Sequence[float]) -> str:
    """Attribute `points` of a polyline of 120 by 20 units through the values."""
    low, high = min(values), max(values)
    # Halves first: the difference of two large numbers may not be finite.
    span = high / 2 - low / 2
    across = max(1, len(values) - 1)
    return " ".join(
        f"{120 * index / across:.1f},"
        f"{19 - 18 * ((value / 2 - low / 2) / span if span else 0.5):.1f}"
        for index, value in enumerate(values)
    )


def bar(turns_by_label: Mapping[str, int]) -> tuple[Part, ...]:
    """A bar of 100 units: the labels in the order of their vocabulary, then unknown ones."""
    known = [label.value for label in Label if turns_by_label.get(label.value, 0) > 0]
    other = [name for name, turns in turns_by_label.items() if name not in known and turns > 0]
    total = sum(turns_by_label[name] for name in (*known, *other))
    parts, x = [], 0.0
    for name in (*known, *other):
        width = 100 * turns_by_label[name] / total
        parts.append(Part(name, style_of(name), turns_by_label[name], round(x, 2), round(width, 2)))
        x += width
    return tuple(parts)
