"""The report of all sizes as a Markdown page: it tells what happened without the machine."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

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
_WAKE = ("weight_transfer", "rollout")
_ENGINE_ASLEEP = ("update",)


def page(report: Mapping[str, Any]) -> str:
    """The whole report.

    Args:
        report: As `scripts/gpu_smoke.py` writes it to report.json.
    """
    machine = report["machine"]
    versions = ", ".join(f"{name} {number}" for name, number in machine["versions"].items())
    lines = [
        "# exp/SEAL.yaml on this machine's GPUs, and verl's own loop beside it",
        "",
        f"{machine['device']}; {versions}; attention of the trainers: {machine['attention']}; "
        f"{report['steps']} steps, the first one left out of all means.",
    ]
    for size, found in report["sizes"].items():
        lines += ["", f"## {size}", ""]
        lines += _size(found)
    return "\n".join(lines) + "\n"


def _size(found: Mapping[str, Any]) -> Iterator[str]:
    if "failure" in found:
        yield f"**Not measured to its end**: {found['failure']}"
        yield ""
    if "checks" in found:
        yield from _checks(found["checks"]["findings"])
    loops = found.get("loops", {})
    if loops:
        yield from _loops(loops, found.get("ratios", {}))
    if "seal" in loops:
        yield from _phases(loops["seal"]["phases"])
        yield from _agreement(loops["seal"]["agreement"])
        yield from _memory(found.get("plan"), loops["seal"])


def _checks(findings: Sequence[Mapping[str, str]]) -> Iterator[str]:
    said = [one for one in findings if one["level"] != "ok"]
    yield f"`--check`: {len(findings) - len(said)} lines are ok."
    yield from (f"- {one['level']}, {one['subject']}: {one['said']}" for one in said)
    yield ""


def _loops(loops: Mapping[str, Any], ratios: Mapping[str, float | None]) -> Iterator[str]:
    yield "| | exp/SEAL.yaml | verl, single turn | ratio |"
    yield "|---|---|---|---|"
    for title, key, style in _LOOPS:
        cells = [
            _cell(loops[name]["figures"][key] if name in loops else None, style)
            for name in ("seal", "verl")
        ]
        yield f"| {title} | {' | '.join(cells)} | {_cell(ratios.get(key), '.2f')} |"
    yield ""


def _phases(phases: Mapping[str, Mapping[str, float | None]]) -> Iterator[str]:
    yield "| phase of exp/SEAL.yaml | seconds, all steps | GPU idle | peak of a GPU, GiB |"
    yield "|---|---|---|---|"
    for name, found in phases.items():
        idle, memory = _cell(found["idle"], ".1%"), _cell(found["memory_gib"], ".1f")
        yield f"| {name} | {found['seconds']:.2f} | {idle} | {memory} |"
    yield ""


def _agreement(found: Mapping[str, float]) -> Iterator[str]:
    if not found:
        return
    yield (
        "Probabilities of the same tokens in the rollout engine and in the actor, the worst step: "
        f"correlation {found['correlation']:.6f}, mean distance {found['mean_distance']:.2e}, "
        f"largest {found['largest_distance']:.2e}."
    )
    yield ""


def _memory(plan: Mapping[str, Any] | None, seal: Mapping[str, Any]) -> Iterator[str]:
    """The plan against what was measured."""
    if plan is None:
        return
    if "unplanned" in plan:
        yield f"No memory plan: {plan['unplanned']}"
        yield ""
        return
    figures, phases = seal["figures"], seal["phases"]
    rows = (
        ("update, torch's allocator", plan["update"] - plan["aside"], figures["actor_memory_gib"]),
        ("update, all on the fullest GPU", plan["update"], _peak(phases, _ENGINE_ASLEEP)),
        ("wake-up and rollouts, all on it", plan["wake"], _peak(phases, _WAKE)),
    )
    yield "| memory, GiB | planned | measured |"
    yield "|---|---|---|"
    for title, planned, measured in rows:
        yield f"| {title} | {planned / GIB:.1f} | {_cell(measured, '.1f')} |"
    yield ""
    yield (
        f"`gpu_memory_utilization`: {plan['utilization']:.2f} was set, "
        f"{_cell(plan['largest_utilization'], '.2f')} is the largest by the plan."
    )
    yield ""


def _peak(phases: Mapping[str, Mapping[str, float | None]], names: Sequence[str]) -> float | None:
    seen = [phases[name]["memory_gib"] for name in names if name in phases]
    return max((one for one in seen if one is not None), default=None)


def _cell(value: float | None, style: str) -> str:
    return "-" if value is None else format(value, style)
