"""The report as a page of Markdown.

In: the document that `report` makes. Out: text, which refers to the plots that `figures` draws.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from seal.study.definition import INTERACTION

RULES = {
    "start": "before training",
    "last": "at the last step",
    "declared": "at the step that was declared beforehand",
    "development": "at the step with the best score on the development suite",
    "best": "at the best step on this suite itself (selected on what is reported: too high)",
}


def page(document: Mapping[str, Any]) -> str:
    """The whole page."""
    return "\n".join(_lines(document)) + "\n"


def _lines(document: Mapping[str, Any]) -> Iterator[str]:
    study = document["study"]
    yield f"# Study {study['name']}\n"
    runs = document["runs"]
    finished = sum(run["state"] == "finished" for run in runs)
    whole = "" if document["complete"] else " **The study is not complete.**"
    yield f"{finished} of {len(runs)} runs of `{study['conf']}` have finished.{whole}\n"
    primary = "last" if study["declared_step"] is None else "declared"
    yield (
        "Scores are in percent, with 95 % intervals over seeds and tasks together (with one seed: "
        f"over its tasks). A difference is that to `{study['baseline']}`, paired by seed and task. "
        f"The study's primary comparison is suite {study['suites'][0]!r} with all tasks, "
        f"{RULES[primary]}, between recipes with all of the study's seeds. There a difference is "
        "bold if it is significant after Holm's correction for the number of these recipes, once "
        "all of their runs have finished. Everything else is there to be looked at: of a hundred "
        "intervals, five miss by chance. Intervals of interquartile means and probabilities of "
        "improvement are conservative.\n"
    )
    for note in document["notes"]:
        yield f"- {note}"
    if document["notes"]:
        yield ""
    for name, suite in document["suites"].items():
        yield from _suite(name, suite, study)
    yield from _training(document["training"])
    yield from _cost(document["cost"])


def _suite(name: str, suite: Mapping[str, Any], study: Mapping[str, Any]) -> Iterator[str]:
    yield f"## Suite {name}\n"
    yield f"{suite['tasks']} tasks, {suite['rollouts']} rollouts each.\n"
    yield f"![Scores of suite {name}]({name}.svg)\n"
    for kind, rules, part in _tables(suite["figures"]):
        which = "" if kind == "all" else f", {kind}"
        heading = ", also ".join(RULES[rule] for rule in rules)
        declared = f" ({study['declared_step']})" if "declared" in rules else ""
        yield f"### {heading.capitalize()}{declared}{which}\n"
        yield from _table(part, study["seeds"])
        shown = {"tasks": kind, "step_rule": part[0]["step_rule"]}
        for effects in suite["factorial"]:
            if shown.items() <= effects.items():
                yield from _effects(effects, study)
    if any(value is not None for tokens in suite["tokens"].values() for value in tokens.values()):
        yield "Mean tokens of a dialogue after its prompt, at the last step:\n"
        yield from _head("recipe", "passed", "failed")
        for recipe, tokens in suite["tokens"].items():
            cells = ("-" if value is None else f"{value:.0f}" for value in tokens.values())
            yield _row(recipe, *cells)
        yield ""
    selection = suite["selection"]
    if selection["optimism"] is not None:
        other = RULES[selection["against"]]
        yield (
            f"The best step on this suite scores {100 * selection['optimism']:+.1f} points above "
            f"the one {other}, in the mean of the runs that have both. Reporting the best step "
            "would add that much; a part of it can be a real difference between the steps.\n"
        )


def _tables(
    figures: Sequence[Mapping[str, Any]],
) -> Iterator[tuple[str, list[str], list[Mapping[str, Any]]]]:
    """What is shown of a suite: which tasks, by which rules, and their figures.

    Rules that name the same steps share a table.
    """
    for kind in dict.fromkeys(figure["tasks"] for figure in figures):
        by_rule: dict[str, list[Mapping[str, Any]]] = {}
        for figure in figures:
            if figure["tasks"] == kind:
                by_rule.setdefault(figure["step_rule"], []).append(figure)
        same: dict[str, list[str]] = {}
        for rule, part in by_rule.items():
            steps = str([(figure["recipe"], figure["steps"]) for figure in part])
            same.setdefault(steps, []).append(rule)
        for rules in same.values():
            # The primary comparison's marks are in the figures of its rule, the declared step.
            yield kind, rules, by_rule["declared" if "declared" in rules else rules[0]]


def _table(figures: Sequence[Mapping[str, Any]], seeds: Sequence[int]) -> Iterator[str]:
    sampled = [figure for figure in figures if "pass_at" in figure]
    ks = list(sampled[0]["pass_at"]) if sampled else []
    yield from _head(
        *("recipe", "seeds", "steps", "mean", "by seed", "interquartile mean"),
        *(f"pass@{k}" for k in ks),
        *(f"pass^{k}" for k in ks),
        *("difference", "probability of improvement"),
    )
    for figure in figures:
        difference, improvement = _against(figure.get("against_baseline"), seeds)
        yield _row(
            figure["recipe"],
            str(len(figure["seeds"])),
            ", ".join(str(step) for step in dict.fromkeys(figure["steps"])),
            _points(figure["mean"]),
            ", ".join(f"{100 * value:.1f}" for value in figure["by_seed"]),
            _points(figure["interquartile_mean"]) if "interquartile_mean" in figure else "-",
            *(_points(figure["pass_at"][k]) for k in ks),
            *(_points(figure["pass_all"][k]) for k in ks),
            difference,
            improvement,
        )
    yield ""
    contrasts = [
        (f"`{figure['recipe']}` - `{other}`", *_against(contrast, seeds))
        for figure in figures
        for other, contrast in figure["contrasts"].items()
    ]
    if contrasts:
        yield from _head("contrast", "difference", "probability of improvement")
        yield from (_row(*cells) for cells in contrasts)
        yield ""


def _effects(effects: Mapping[str, Any], study: Mapping[str, Any]) -> Iterator[str]:
    """Main effects and interaction of a 2 x 2 design."""
    design = study["factorial"]
    first, second = design["factors"]
    yield (
        f"Main effects of {first} and {second}, and their interaction: `{design['first']}` has "
        f"{first} alone, `{design['second']}` has {second} alone, `{design['both']}` both, "
        f"`{design['neither']}` neither.\n"
    )
    yield from _head("effect", "points")
    for name, estimate in effects["effects"].items():
        named = name if name == INTERACTION else f"main effect of {name}"
        yield _row(named, _points(estimate, sign=True) + _seeds(effects["seeds"], study["seeds"]))
    yield ""


def _against(against: Mapping[str, Any] | None, seeds: Sequence[int]) -> tuple[str, str]:
    """A difference and a probability of improvement as cells."""
    if against is None:
        return "-", "-"
    estimate = against["difference"]
    mark = "**" if estimate["notable"] else ""
    difference = f"{mark}{_points(estimate, sign=True)}{mark}{_seeds(against['seeds'], seeds)}"
    return difference, _points(against["probability_of_improvement"])


def _seeds(common: Sequence[int], seeds: Sequence[int]) -> str:
    """The seeds of a paired figure if they are not all of the study's."""
    if list(common) == list(seeds):
        return ""
    return f" on seed{'s'[: len(common) > 1]} {', '.join(str(seed) for seed in common)}"


def _training(training: Mapping[str, Any]) -> Iterator[str]:
    yield "## Training\n"
    yield "![Metrics of the rounds](training.svg)\n"
    yield "![Shares of the labels among all turns](labels.svg)\n"
    yield "Mean over all steps and seeds:\n"
    yield from _by_recipe("", training, "metrics", _mean_of_steps)
    yield "Parts of the learning interface, share of the rounds after which each was on:\n"
    if not any(recipe["interface"] for recipe in training.values()):
        yield "none was on in any run.\n"
        return
    yield "![Parts of the interface over training](interface.svg)\n"
    yield from _by_recipe("part", training, "interface", _share_of_rounds)


def _by_recipe(
    head: str, training: Mapping[str, Any], kind: str, cell: Callable[[Mapping[str, Any], str], str]
) -> Iterator[str]:
    """A table with a column for each recipe and a row for each name among its `kind`."""
    yield from _head(head, *training)
    for name in dict.fromkeys(name for recipe in training.values() for name in recipe[kind]):
        yield _row(f"`{name}`", *(cell(recipe, name) for recipe in training.values()))
    yield ""


def _mean_of_steps(recipe: Mapping[str, Any], metric: str) -> str:
    values = [step["mean"] for step in recipe["metrics"].get(metric, {}).values()]
    return f"{sum(values) / len(values):.4f}" if values else "-"


def _share_of_rounds(recipe: Mapping[str, Any], part: str) -> str:
    rounds = max((len(by_step) for by_step in recipe["metrics"].values()), default=0)
    on = sum(recipe["interface"].get(part, {}).values())
    return f"{100 * on / max(1, rounds):.0f} %"


def _cost(cost: Mapping[str, Any]) -> Iterator[str]:
    yield "## Cost of a run\n"
    yield from _head(
        "recipe", "tokens (prompts included)", "s a step", "wall min", "core hours", "GPU hours"
    )
    for recipe, means in cost.items():
        yield _row(
            recipe,
            f"{means['tokens']:,.0f}",
            "-" if means["step_s"] is None else f"{means['step_s']:.1f}",
            f"{means['wall_s'] / 60:.1f}",
            f"{means['core_hours']:.2f}",
            f"{means['gpu_hours']:.2f}",
        )


def _points(estimate: Mapping[str, Any], sign: bool = False) -> str:
    """An estimate in percent with its interval."""
    form = "+.1f" if sign else ".1f"
    value = format(100 * estimate["value"], form)
    if estimate["low"] is None:
        return value
    low, high = (format(100 * estimate[end], form) for end in ("low", "high"))
    return f"{value} ({low} to {high})"


def _head(*cells: str) -> Iterator[str]:
    """The first two lines of a table."""
    yield _row(*cells)
    yield _row(*["---"] * len(cells))


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"
