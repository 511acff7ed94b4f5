"""What each page shows: the values that its template writes down.

In: a run, a step, filters. Out: a `View`. Called by `seal.logview.app`; the files are read by
`seal.logview.runs`.
"""

import difflib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from seal.logview import charts
from seal.logview.charts import Chart, style_of
from seal.logview.dialogue import Cut, Message, cut_dialogue
from seal.logview.listing import Filters, Listed, listing, ordered
from seal.logview.records import Round, Turn
from seal.logview.runs import Experiments, Run, suite_of
from seal.records.validation_statistics import rates, task_results

_METRIC_POINTS = 500
"""Last values of a metric that are drawn."""


@dataclass(frozen=True)
class View:
    """One page."""

    template: str
    values: dict[str, Any]


@dataclass(frozen=True)
class Section:
    """A turn of a dialogue; `number` None is what stands before the first."""

    number: int | None
    turn: Turn | None
    """None where nothing is known of the turn."""
    weight: float | None
    messages: tuple[Message, ...]


def percent(share: float) -> str:
    """A share with one digit, e.g. 12.5 %."""
    return f"{100 * share:.1f} %" if math.isfinite(share) else str(share)


def moment(seconds: float) -> str:
    """Seconds since 1970 as an ISO time, which the browser turns into an age."""
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
    except (ValueError, OverflowError, OSError):
        return ""


def sentence(text: str) -> View:
    """A page that says why there is nothing else on it."""
    return View("sentence.html", {"text": text})


def every_run(experiments: Experiments) -> View:
    """The list of runs."""
    states = [one.state() for one in experiments.runs()]
    return View("runs.html", {"states": states, "folder": str(experiments.folder)})


def run(one: Run) -> View:
    """Charts, rounds and validations of a run."""
    rounds, faults = one.rounds()
    metrics, metric_faults = one.metrics()
    previous: dict[int, list[str]] = {}
    active: list[str] = []
    for step, record in rounds.items():
        previous[step], active = active, record.interface_shown.active
    return View(
        "run.html",
        {
            "run": one.name,
            "state": one.state(),
            "rounds": list(reversed(rounds.values())),
            "bars": {step: charts.bar(r.turns_by_label()) for step, r in rounds.items()},
            "leading": {step: _leading(r) for step, r in rounds.items()},
            "previous": previous,
            "unfinished": [step for step in reversed(one.steps()) if step not in rounds],
            "validation_steps": list(reversed(one.validation_steps())),
            "suites": _suites(metrics),
            "charts": [chart for chart in (_pass_rates(metrics, rounds), _labels(rounds)) if chart],
            "faults": (*faults, *metric_faults),
        },
    )


def metrics(one: Run) -> View:
    """Every metric of a run with a small drawing."""
    by_name, faults = one.metrics()
    rows = [
        (name, points[-1], _least(points), _greatest(points), charts.spark_line(_values(points)))
        for name, points in by_name.items()
    ]
    return View("metrics.html", {"run": one.name, "rows": rows, "faults": faults})


def step(one: Run, step: int, filters: Filters) -> View:
    """A training step: what the interface said, and the rollouts."""
    rows, faults = one.rows(step)
    rounds, _ = one.rounds()
    listed = [
        Listed(
            line=row.line,
            task=row.rollout.task_id if row.rollout else "",
            category=row.rollout.category if row.rollout else "",
            suite="",
            reward=row.reward,
            weight=row.rollout.weight if row.rollout else None,
            turns=row.rollout.turns if row.rollout else (),
            version=row.rollout.interface_version if row.rollout else None,
            truncated=row.rollout.truncated if row.rollout else False,
        )
        for row in rows
    ]
    record = rounds.get(step)
    earlier = max((other for other in rounds if other < step), default=None)
    return View(
        "step.html",
        {
            "run": one.name,
            "step": step,
            "round": record,
            "bar": charts.bar(record.turns_by_label()) if record else (),
            "earlier": earlier,
            "change": _change(rounds, earlier, step) if record else [],
            "unmatched": sum(row.rollout is None or row.line is None for row in rows),
            "without_uid": any(row.rollout and row.rollout.uid is None for row in rows),
            "kind": "steps",
            "faults": faults,
            **_neighbours(one.steps(), step),
            **listing(listed, filters),
        },
    )


def validation(one: Run, step: int, filters: Filters) -> View:
    """A validation: pass rates by category, and the rollouts."""
    contents = one.validation(step)
    suites = sorted({line.kept.rollout.suite for line in contents.lines})
    listed = [
        Listed(
            line=line.number,
            task=line.kept.rollout.task_id,
            category=line.kept.rollout.category,
            suite=line.kept.rollout.suite,
            reward=line.kept.rollout.score,
            weight=None,
            turns=line.kept.turns,
            version=None,
            truncated=bool(line.kept.rollout.truncated),
        )
        for line in contents.lines
    ]
    of_suite = {
        suite: rates(
            task_results(
                line.kept.rollout for line in contents.lines if line.kept.rollout.suite == suite
            )
        )
        for suite in suites
    }
    return View(
        "validation.html",
        {
            "run": one.name,
            "step": step,
            "rates": of_suite,
            "kind": "validation",
            "faults": contents.faults,
            **_neighbours(one.validation_steps(), step),
            **listing(listed, filters),
        },
    )


def rollout(one: Run, step: int, line: int) -> View:
    """The dialogue of a rollout that was trained on."""
    dialogue, record = one.dialogue(step, line)
    cut = cut_dialogue(dialogue.input, dialogue.output, record.turn_spans if record else ())
    return View(
        "dialogue.html",
        {
            "run": one.name,
            "step": step,
            "line": line,
            "kind": "steps",
            "dialogue": dialogue,
            "rollout": record,
            "validated": None,
            "verified": cut.verified,
            "sections": _sections(
                cut, record.turns if record else (), record.weights if record else ()
            ),
            "group": [(other.number, other.kept.score) for other in one.group(step, dialogue.uid)],
            **_neighbours([row.line for row in one.rows(step)[0] if row.line is not None], line),
        },
    )


def validated(one: Run, step: int, line: int) -> View:
    """The dialogue of a validation."""
    dialogue, kept = one.validation_dialogue(step, line)
    cut = cut_dialogue(dialogue.input, dialogue.output)
    same_task = [
        (other.number, other.kept.rollout.score)
        for other in one.validation(step).lines
        if (other.kept.rollout.suite, other.kept.rollout.task_id)
        == (kept.rollout.suite, kept.rollout.task_id)
    ]
    return View(
        "dialogue.html",
        {
            "run": one.name,
            "step": step,
            "line": line,
            "kind": "validation",
            "dialogue": dialogue,
            "rollout": None,
            "validated": kept,
            "verified": cut.verified,
            "sections": _sections(cut, kept.turns, ()),
            "group": same_task,
            **_neighbours([other.number for other in one.validation(step).lines], line),
        },
    )


def _sections(cut: Cut, turns: Sequence[Turn], weights: Sequence[float]) -> list[Section]:
    by_turn: dict[int | None, list[Message]] = {}
    for message in cut.messages:
        by_turn.setdefault(message.turn, []).append(message)
    # A turn can be judged without a message of its own, where the text was cut at its end.
    for index in range(len(turns)):
        by_turn.setdefault(index, [])
    return [
        Section(
            index,
            turns[index] if index is not None and index < len(turns) else None,
            weights[index] if index is not None and index < len(weights) else None,
            tuple(messages),
        )
        for index, messages in sorted(
            by_turn.items(), key=lambda item: -1 if item[0] is None else item[0]
        )
    ]


def _neighbours(ordered: Sequence[int], current: int) -> dict[str, int | None]:
    place = ordered.index(current) if current in ordered else None
    return {
        "before": ordered[place - 1] if place else None,
        "after": ordered[place + 1] if place is not None and place + 1 < len(ordered) else None,
    }


def _change(rounds: Mapping[int, Round], earlier: int | None, step: int) -> list[tuple[str, str]]:
    """Lines of the interface shown, each with "+", "-" or " " against the round before."""
    before = rounds[earlier].interface_shown.text if earlier is not None else ""
    after = rounds[step].interface_shown.text
    lines = difflib.ndiff(before.splitlines(), after.splitlines())
    # "?" points at characters within a line.
    return [(line[0], line[2:]) for line in lines if line[0] != "?"]


def _leading(record: Round) -> list[tuple[str, float]]:
    """The two most frequent labels with their shares."""
    counts = record.turns_by_label()
    total = max(1, sum(counts.values()))
    most = sorted(counts, key=lambda label: -counts[label])[:2]
    return [(label, counts[label] / total) for label in most]


def _suites(metrics: Mapping[str, list[tuple[int, float]]]) -> dict[str, dict[int, float]]:
    """Pass rates of the validations by suite and step."""
    return {
        suite: dict(points)
        for name, points in metrics.items()
        if (suite := suite_of(name)) is not None
    }


def _pass_rates(
    metrics: Mapping[str, list[tuple[int, float]]], rounds: Mapping[int, Round]
) -> Chart | None:
    lines: dict[str, list[tuple[int, float]]] = {
        "training": [
            (step, record.metrics["seal/pass_rate"])
            for step, record in rounds.items()
            if "seal/pass_rate" in record.metrics
        ]
    }
    for suite, by_step in _suites(metrics).items():
        lines[f"validation, {suite}"] = list(by_step.items())
    styles = {name: f"series-{index % 6}" for index, name in enumerate(lines)}
    return charts.line_chart("Pass rate", lines, styles)


def _labels(rounds: Mapping[int, Round]) -> Chart | None:
    counts = {step: record.turns_by_label() for step, record in rounds.items()}
    names = ordered({name for by_label in counts.values() for name in by_label})
    lines = {
        name: [
            (step, by_label.get(name, 0) / max(1, sum(by_label.values())))
            for step, by_label in counts.items()
        ]
        for name in names
    }
    return charts.line_chart(
        "Labels, share of turns", lines, {name: style_of(name) for name in names}
    )


def _values(points: Sequence[tuple[int, float]]) -> list[float]:
    return [value for _, value in points[-_METRIC_POINTS:]]


def _least(points: Sequence[tuple[int, float]]) -> float:
    return min(value for _, value in points)


def _greatest(points: Sequence[tuple[int, float]]) -> float:
    return max(value for _, value in points)
