"""The report of all sizes as a Markdown page: it says what happened to whoever has not seen it."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.output import figure, markdown

GIB = 2**30
_LOOPS = (
    ("step, s", "step_s", ".2f"),
    ("generation, s", "generation_s", ".2f"),
    ("update of the actor, s", "update_s", ".2f"),
    ("wake-up and transfer of weights, s", "weight_sync_s", ".3f"),
    ("tokens of a prompt", "prompt_tokens", ".0f"),
    ("tokens generated in a step", "generated_tokens", ".0f"),
    ("generation, tokens/s per GPU", "generation_tokens_s", ".0f"),
    ("update, tokens/s per GPU", "update_tokens_s", ".0f"),
    ("whole step, tokens/s per GPU", "throughput", ".0f"),
    ("share of a step between phases", "between_phases", ".1%"),
    ("share of generation a rollout waits for the service", "environment_wait", ".1%"),
    ("GPU idle, share of the time", "gpu_idle", ".1%"),
    ("memory, peak of the actor, GiB", "actor_memory_gib", ".1f"),
    ("memory, peak of a GPU, GiB", "gpu_memory_gib", ".1f"),
)
"""Title, key of LoopFigures, format."""


def page(report: Mapping[str, Any]) -> str:
    """The whole report."""
    machine = report["machine"]
    versions = ", ".join(f"{name} {number}" for name, number in machine["versions"].items())
    lines = [
        "# exp/SEAL.yaml on this machine's GPUs, and verl's own loop beside it",
        "",
        f"{machine['device']}; {versions}; attention of the trainers: {machine['attention']}; "
        f"{report['steps']} steps, the first one left out of all means.",
    ]
    for size, results in report["sizes"].items():
        lines += ["", f"## {size}", ""]
        for part in _parts(results):
            lines += [*part, ""]
    return "\n".join(lines) + "\n"


def _parts(results: Mapping[str, Any]) -> Iterator[Iterator[str] | list[str]]:
    """The lines of each part of a size that there is."""
    if "failure" in results:
        yield [f"**Not measured to its end**: {results['failure']}"]
    if "checks" in results:
        yield _checks(results["checks"]["findings"])
    loops = results.get("loops", {})
    if loops:
        yield _loops(loops, results.get("ratios", {}))
    if "seal" in loops:
        seal = loops["seal"]
        yield _phases(seal["phases"])
        if seal["agreement"]:
            yield [_agreement(seal["agreement"])]
        if "plan" in results:
            yield from _memory(results["plan"], seal["figures"], seal["phases"])


def _checks(findings: Sequence[Mapping[str, str]]) -> Iterator[str]:
    notable = [line for line in findings if line["level"] != "ok"]
    yield f"`--check`: {len(findings) - len(notable)} lines are ok."
    yield from (f"- {line['level']}, {line['subject']}: {line['said']}" for line in notable)


def _loops(loops: Mapping[str, Any], ratios: Mapping[str, float | None]) -> Iterator[str]:
    columns = [loops[name]["figures"] if name in loops else {} for name in ("seal", "verl")]
    rows = (
        (
            title,
            *(figure(column.get(key), style) for column in columns),
            figure(ratios.get(key), ".2f"),
        )
        for title, key, style in _LOOPS
    )
    return markdown(["", "exp/SEAL.yaml", "verl, single turn", "ratio"], rows)


def _phases(phases: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    rows = (
        (
            name,
            f"{phase['seconds']:.2f}",
            figure(phase["idle"], ".1%"),
            figure(phase["memory_gib"], ".1f"),
        )
        for name, phase in phases.items()
    )
    head = ["phase of exp/SEAL.yaml", "seconds, all steps", "GPU idle", "peak of a GPU, GiB"]
    return markdown(head, rows)


def _agreement(worst: Mapping[str, float]) -> str:
    return (
        "Probabilities of the same tokens in the rollout engine and in the actor, the worst step: "
        f"correlation {worst['correlation']:.6f}, mean distance {worst['mean_distance']:.2e}, "
        f"largest {worst['largest_distance']:.2e}."
    )


def _memory(
    plan: Mapping[str, Any], figures: Mapping[str, Any], phases: Mapping[str, Mapping[str, Any]]
) -> Iterator[Iterator[str] | list[str]]:
    """The memory plan beside what was measured."""
    if "unplanned" in plan:
        yield [f"No memory plan: {plan['unplanned']}"]
        return
    rows = (
        ("update, torch's allocator", plan["update"] - plan["aside"], figures["actor_memory_gib"]),
        ("update, all on the fullest GPU", plan["update"], _peak(phases, "update")),
        (
            "wake-up and rollouts, all on it",
            plan["wake"],
            _peak(phases, "weight_transfer", "rollout"),
        ),
    )
    yield markdown(
        ["memory, GiB", "planned", "measured"],
        ((title, f"{planned / GIB:.1f}", figure(peak, ".1f")) for title, planned, peak in rows),
    )
    yield [
        f"`gpu_memory_utilization`: {plan['utilization']:.2f} was set, "
        f"{figure(plan['largest_utilization'], '.2f')} is the largest by the plan."
    ]


def _peak(phases: Mapping[str, Mapping[str, Any]], *names: str) -> float | None:
    seen = [phases[name]["memory_gib"] for name in names if name in phases]
    return max((peak for peak in seen if peak is not None), default=None)
