"""What each page shows: the values for its template.

In: a run, a step, filters. Out: a `View`.
"""

import difflib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from seal.logview import charts
from seal.logview.charts import Chart, style_of
from seal.logview.experiments import Experiments, Points, Run
from seal.logview.lines import Dialogue, Round, TrainedRollout, Turn
from seal.logview.listing import Filters, Listed, listing, ordered
from seal.logview.messages import Message, cut_dialogue
from seal.validation.log import Rollout
from seal.validation.statistics import rates, suite_results

_METRIC_POINTS = 500
"""Last values of a metric that are drawn."""


@dataclass(frozen=True)
class View:
    """One page."""

    template: str
    values: dict[str, Any]


@dataclass(frozen=True)
class Section:
    """A turn of a dialogue."""

    number: int | None
    """From 0; None for what stands before the first turn."""
    turn: Turn | None
    """None if nothing is known of the turn."""
    weight: float | None
    messages: tuple[Message, ...]


def percent(share: float) -> str:
    """A share with one digit, e.g. 12.5 %."""
    return f"{100 * share:.1f} %" if math.isfinite(share) else str(share)


def moment(seconds: float) -> str:
    """Seconds since 1970 as an ISO time, which the browser shows as an age."""
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
    except (ValueError, OverflowError, OSError):
        return ""


def sentence(text: str) -> View:
    """A page with one sentence, which says why there is nothing else on it."""
    return View("sentence.html", {"text": text})


def every_run(experiments: Experiments) -> View:
    """The list of runs."""
    states = [logs.state() for logs in experiments.runs()]
    return View("runs.html", {"states": states, "folder": str(experiments.folder)})


def run(logs: Run) -> View:
    """Charts, rounds and validations of a run."""
    rounds, faults = logs.rounds()
    _, metric_faults = logs.metrics()
    suites = logs.pass_rates()
    previous: dict[int, list[str]] = {}
    active: list[str] = []
    for step, record in rounds.items():
        previous[step] = active
        if record.interface_shown is not None:
            active = record.interface_shown.active
    return View(
        "run.html",
        {
            "run": logs.name,
            "state": logs.state(),
            "rounds": list(reversed(rounds.values())),
            "bars": {step: charts.bar(r.turns_by_label()) for step, r in rounds.items()},
            "leading": {step: _leading(r) for step, r in rounds.items()},
            "previous": previous,
            "unfinished": [step for step in reversed(logs.steps()) if step not in rounds],
            "validation_steps": list(reversed(logs.validation_steps())),
            "suites": {suite: dict(points) for suite, points in suites.items()},
            "charts": [
                chart
                for chart in (_pass_rates(suites, rounds), _labels(rounds), _scores(rounds))
                if chart
            ],
            "faults": (*faults, *metric_faults),
        },
    )


def metrics(logs: Run) -> View:
    """Every metric of a run with a small drawing."""
    by_name, faults = logs.metrics()
    rows = []
    for name, points in by_name.items():
        values = [value for _, value in points]
        line = charts.spark_line(values[-_METRIC_POINTS:])
        rows.append((name, points[-1], min(values), max(values), line))
    return View("metrics.html", {"run": logs.name, "rows": rows, "faults": faults})


def step(logs: Run, step: int, filters: Filters) -> View:
    """A training step: what the interface said, and the rollouts."""
    rollouts, faults = logs.rollouts(step)
    rounds, _ = logs.rounds()
    listed = [
        Listed(
            line=entry.line,
            task=entry.record.task_id if entry.record else "",
            category=entry.record.category if entry.record else "",
            suite="",
            reward=entry.reward,
            weight=entry.record.weight if entry.record else None,
            turns=entry.record.turns if entry.record else (),
            limit=_limit(entry.record) if entry.record else "",
        )
        for entry in rollouts
    ]
    record = rounds.get(step)
    shown_at = [other for other, record in rounds.items() if record.interface_shown is not None]
    earlier = max((other for other in shown_at if other < step), default=None)
    return View(
        "step.html",
        {
            "run": logs.name,
            "step": step,
            "round": record,
            "bar": charts.bar(record.turns_by_label()) if record else (),
            "source_bars": {
                name: charts.bar(source.labels)
                for name, source in (record.sources if record else {}).items()
            },
            "earlier": earlier,
            "change": _change(rounds, earlier, step) if step in shown_at else [],
            "unmatched": sum(entry.record is None or entry.line is None for entry in rollouts),
            "without_uid": any(entry.record and entry.record.uid is None for entry in rollouts),
            "kind": "steps",
            "faults": faults,
            **_neighbours(logs.steps(), step),
            **listing(listed, filters),
        },
    )


def validation(logs: Run, step: int, filters: Filters) -> View:
    """A validation: pass rates by category, and the rollouts."""
    contents = logs.validation(step)
    rollouts = [line.kept.rollout for line in contents.lines]
    listed = [
        Listed(
            line=rollout.line if line.kept.has_dialogue else None,
            task=rollout.task_id,
            category=rollout.category,
            suite=rollout.suite,
            reward=rollout.score,
            weight=None,
            turns=_turns(rollout),
            limit=_limit(rollout),
        )
        for line, rollout in zip(contents.lines, rollouts, strict=True)
    ]
    suites = sorted({rollout.suite for rollout in rollouts})
    return View(
        "validation.html",
        {
            "run": logs.name,
            "step": step,
            "rates": {suite: rates(suite_results(rollouts, suite)) for suite in suites},
            "kind": "validation",
            "faults": contents.faults,
            **_neighbours(logs.validation_steps(), step),
            **listing(listed, filters),
        },
    )


def rollout(logs: Run, step: int, line: int) -> View:
    """The dialogue of a rollout that was trained on."""
    dialogue, record = logs.dialogue(step, line)
    turns, weights, spans = (
        (record.turns, record.weights, record.turn_spans) if record else ((), (), ())
    )
    values = {
        "kind": "steps",
        "rollout": record,
        "validated": None,
        "group": [(other.number, other.kept.score) for other in logs.group(step, dialogue.uid)],
        **_neighbours([row.line for row in logs.rollouts(step)[0] if row.line is not None], line),
    }
    return _dialogue(logs, step, line, dialogue, turns, weights, spans, values)


def validated(logs: Run, step: int, line: int) -> View:
    """The dialogue of a validation."""
    dialogue, kept = logs.validation_dialogue(step, line)
    rollouts = [other.kept.rollout for other in logs.validation(step).lines]
    values = {
        "kind": "validation",
        "rollout": None,
        "validated": kept,
        "group": [
            (other.line, other.score)
            for other in rollouts
            if (other.suite, other.task_id) == (kept.suite, kept.task_id)
        ],
        **_neighbours([other.line for other in rollouts], line),
    }
    return _dialogue(logs, step, line, dialogue, _turns(kept), (), (), values)


def _dialogue(
    logs: Run,
    step: int,
    line: int,
    dialogue: Dialogue,
    turns: Sequence[Turn],
    weights: Sequence[float],
    spans: Sequence[Sequence[int]],
    values: Mapping[str, Any],
) -> View:
    """The page of a dialogue; `values` are those of its kind."""
    cut = cut_dialogue(dialogue.input, dialogue.output, spans)
    return View(
        "dialogue.html",
        {
            "run": logs.name,
            "step": step,
            "line": line,
            "dialogue": dialogue,
            "verified": cut.verified,
            "sections": _sections(cut.messages, turns, weights),
            **values,
        },
    )


def _turns(rollout: Rollout) -> list[Turn]:
    """Labels of the turns; validation logs give no reasons."""
    return [Turn(label=label, reason="") for label in rollout.labels]


def _limit(rollout: TrainedRollout | Rollout) -> str:
    """The limit that ended a rollout; "" if none did. Older logs do not name it."""
    return rollout.exit_status or "truncated" if rollout.truncated else ""


def _sections(
    messages: Sequence[Message], turns: Sequence[Turn], weights: Sequence[float]
) -> list[Section]:
    # -1: before the first turn. A judged turn whose text was cut off has no message.
    by_turn: dict[int, list[Message]] = {index: [] for index in range(len(turns))}
    for message in messages:
        by_turn.setdefault(-1 if message.turn is None else message.turn, []).append(message)
    return [
        Section(
            None if index < 0 else index,
            turns[index] if 0 <= index < len(turns) else None,
            weights[index] if 0 <= index < len(weights) else None,
            tuple(by_turn[index]),
        )
        for index in sorted(by_turn)
    ]


def _neighbours(ordered: Sequence[int], current: int) -> dict[str, int | None]:
    place = ordered.index(current) if current in ordered else None
    return {
        "before": ordered[place - 1] if place else None,
        "after": ordered[place + 1] if place is not None and place + 1 < len(ordered) else None,
    }


def _change(rounds: Mapping[int, Round], earlier: int | None, step: int) -> list[tuple[str, str]]:
    """Lines of the interface shown, each with "+", "-" or " " compared with an earlier round."""
    shown = [None if earlier is None else rounds[earlier].interface_shown]
    shown.append(rounds[step].interface_shown)
    before, after = (interface.text.splitlines() if interface else [] for interface in shown)
    lines = difflib.ndiff(before, after)
    # ndiff's "?" lines point at characters within a line.
    return [(line[0], line[2:]) for line in lines if line[0] != "?"]


def _leading(record: Round) -> list[tuple[str, float]]:
    """The two most frequent labels with their shares."""
    counts = record.turns_by_label()
    return [(label, turns / max(1, counts.total())) for label, turns in counts.most_common(2)]


def _pass_rates(suites: Mapping[str, Points], rounds: Mapping[int, Round]) -> Chart | None:
    lines = {
        "training": [
            (step, record.metrics["seal/pass_rate"])
            for step, record in rounds.items()
            if "seal/pass_rate" in record.metrics
        ]
    }
    for source in ("real", "synthetic"):
        points = [
            (step, record.sources[source].pass_rate)
            for step, record in rounds.items()
            if source in record.sources
        ]
        if points:
            lines[f"training, {source}"] = points
    lines |= {f"validation, {suite}": points for suite, points in suites.items()}
    styles = {name: f"series-{index % 6}" for index, name in enumerate(lines)}
    return charts.line_chart("Pass rate", lines, styles)


def _labels(rounds: Mapping[int, Round]) -> Chart | None:
    counts = {step: record.turns_by_label() for step, record in rounds.items() if record.labels}
    names = ordered({name for by_label in counts.values() for name in by_label})
    lines = {
        name: [
            (step, by_label[name] / max(1, by_label.total())) for step, by_label in counts.items()
        ]
        for name in names
    }
    return charts.line_chart(
        "Labels, share of turns", lines, {name: style_of(name) for name in names}
    )


def _scores(rounds: Mapping[int, Round]) -> Chart | None:
    names = ordered({name for record in rounds.values() for name in record.scores})
    lines = {
        name: [
            (step, record.scores.get(name, 0.0))
            for step, record in rounds.items()
            if record.sources
        ]
        for name in names
    }
    return charts.line_chart(
        "Scores that synthetic tasks were drawn with",
        lines,
        {name: style_of(name) for name in names},
    )
