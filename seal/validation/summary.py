"""The figures of a run's validations, as rows, and which tasks the logs lack or hold too often.

In: rollouts by step, what the evaluation file expects, and optionally a baseline's rollouts and the
defective tasks. Out: a flat `SummaryRow` for each suite, step and category. Pure functions,
standard library only.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

from seal.validation.log import BadValidationFile, Rollout
from seal.validation.statistics import TaskResult, differences, rates, task_results

NAMED = 5
"""Task ids that a complaint names."""

Results = dict[str, dict[int, dict[str, TaskResult]]]
"""By suite, step and task id."""


@dataclass(frozen=True)
class Expected:
    """What an evaluation file says of one task of one suite."""

    category: str
    rollouts: int
    """In each validation."""


@dataclass(frozen=True)
class SummaryRow:
    """One figure of the summary, with the names that --json and --csv give it."""

    suite: str
    step: int
    category: str
    """A category or `AVERAGE`."""
    defective_tasks: str
    """included or excluded."""
    pass_rate: float
    """Share from 0 to 1."""
    low: float
    """Lower bound of its 95 % interval."""
    high: float
    """Upper bound."""
    tasks: int
    rollouts: int
    mean_prompt_tokens: float | None = None
    """Of the prompt. This field and the next two are None if a log does not hold them."""
    mean_response_tokens: float | None = None
    """Of answers and observations together."""
    truncated_share: float | None = None
    """Share of the rollouts that a limit ended, from 0 to 1."""
    baseline_step: int | None = None
    """This field and the next ones are None if there is nothing to compare with."""
    difference_points: float | None = None
    """Percentage points above the baseline, on the tasks that both hold."""
    pairs: int | None = None
    """Tasks that both hold."""
    better: int | None = None
    worse: int | None = None
    p_value: float | None = None
    """Two-sided, exact McNemar."""


def results_of(
    run: Mapping[int, Sequence[Rollout]], expected: Mapping[str, Mapping[str, Expected]], where: str
) -> Results:
    """The result of every task, with all suites that are expected.

    A step between the first and the last may lack a whole suite, because `seal.rare_suites` are
    played at the first and the last step only. These two steps have all suites, even empty ones.

    Raises:
        BadValidationFile: A task is not expected, or in another category.
    """
    results: Results = {suite: {} for suite in expected}
    for step, rollouts in run.items():
        by_suite: dict[str, list[Rollout]] = {suite: [] for suite in expected}
        for rollout in rollouts:
            line = f"{where}, step {step}, line {rollout.line}: task {rollout.task_id!r}"
            task = expected.get(rollout.suite, {}).get(rollout.task_id)
            if task is None:
                raise BadValidationFile(
                    f"{line} of suite {rollout.suite!r} is not in the evaluation file; is it the "
                    "log of a run with another --parquet?"
                )
            if rollout.category != task.category:
                raise BadValidationFile(
                    f"{line} is of category {rollout.category!r}, in the evaluation file of "
                    f"{task.category!r}; is it the log of another benchmark?"
                )
            by_suite[rollout.suite].append(rollout)
        for suite, of_suite in by_suite.items():
            if of_suite or step in (min(run), max(run)):
                results[suite][step] = task_results(of_suite)
    return results


def complaints(
    results: Results, expected: Mapping[str, Mapping[str, Expected]], run: str
) -> Iterator[str]:
    """A sentence for every step at which tasks are missing or occur too often."""
    for suite, steps in results.items():
        wanted = expected[suite]
        for step, played in steps.items():
            where = f"{run}, step {step}, suite {suite!r}"
            over = {t: played[t].rollouts - wanted[t].rollouts for t in wanted if t in played}
            for what, tasks in (
                ("missing", [t for t in wanted if t not in played]),
                ("short of rollouts", [t for t in over if over[t] < 0]),
                ("duplicate (the mean counts)", [t for t in over if over[t] > 0]),
            ):
                if tasks:
                    named = ", ".join(tasks[:NAMED]) + (", ..." if len(tasks) > NAMED else "")
                    yield f"{where}: {len(tasks)} of {len(wanted)} tasks are {what}: {named}"
            gone = {task.category for task in wanted.values()}
            gone -= {result.category for result in played.values()}
            if played and gone:
                yield f"{where}: no task of {', '.join(sorted(gone))}: the average is without it"


def summarise(
    results: Results, baseline: Results | None, defective: Set[str] | None
) -> list[SummaryRow]:
    """All rows: by suite, with and then without defective tasks, by step, by category.

    Without a baseline nothing is compared. If `defective` is None, every row has all tasks.
    """
    kinds: dict[str, Set[str]] = {"included": frozenset()}
    if defective is not None:
        kinds["excluded"] = defective
    rows: list[SummaryRow] = []
    for suite, steps in results.items():
        against = baseline[suite] if baseline is not None else {}
        for kind, left_out in kinds.items():
            for step, played in steps.items():
                kept = {task: result for task, result in played.items() if task not in left_out}
                other = baseline_step(step, against)
                before = against[other] if other is not None else {}
                rows.extend(_rows(suite, step, kind, kept, other, before))
    return rows


def limits_reached(run: Mapping[int, Sequence[Rollout]]) -> Iterator[str]:
    """A sentence for each suite on what ended truncated rollouts at the last step, if known."""
    last = run[max(run)]
    for suite in sorted({line.suite for line in last}):
        ends = Counter(line.exit_status for line in last if line.suite == suite and line.truncated)
        known = {name: count for name, count in ends.most_common() if name is not None}
        if known:
            total = sum(line.suite == suite for line in last)
            what = ", ".join(f"{count} by {name}" for name, count in known.items())
            yield (
                f"Suite {suite!r}, step {max(run)}: {sum(known.values())} of {total} rollouts were "
                f"truncated: {what}."
            )


def baseline_step(step: int, baseline: Mapping[int, object]) -> int | None:
    """The baseline's step to compare with: its only step, or the same step if it exists."""
    if len(baseline) == 1:
        return next(iter(baseline))
    return step if step in baseline else None


def _rows(
    suite: str,
    step: int,
    kind: str,
    results: Mapping[str, TaskResult],
    other: int | None,
    baseline: Mapping[str, TaskResult],
) -> Iterator[SummaryRow]:
    changes = differences(results, baseline)
    for category, rate in rates(results).items():
        change = changes.get(category)
        yield SummaryRow(
            suite=suite,
            step=step,
            category=category,
            defective_tasks=kind,
            pass_rate=rate.rate,
            low=rate.interval.low,
            high=rate.interval.high,
            tasks=rate.tasks,
            rollouts=rate.rollouts,
            mean_prompt_tokens=rate.lengths.prompt_tokens,
            mean_response_tokens=rate.lengths.response_tokens,
            truncated_share=rate.lengths.truncated,
            baseline_step=other if change else None,
            difference_points=change.points if change else None,
            pairs=change.pairs if change else None,
            better=change.better if change else None,
            worse=change.worse if change else None,
            p_value=change.p if change else None,
        )
