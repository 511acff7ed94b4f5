"""A loop's metrics, its log and the GPU's samples, reduced to figures.

In: verl's metrics, the loop log, samples of the GPUs. Out: the `LoopFigures` of a loop, and the
`PhaseFigures` of each phase. No torch here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from benchmarks.gpu_smoke.kept import SmokeError
from benchmarks.gpu_smoke.sampling import GpuSample
from seal.records.loop_log import DONE

TIMED = ("gen", "old_log_prob", "ref", "adv", "update_actor", "update_weights")
"""verl's phases of a step; the rest of a step is time between them."""

_AGREEMENT = {
    "correlation": ("training/rollout_actor_probs_pearson_corr", min),
    "mean_distance": ("training/rollout_probs_diff_mean", max),
    "largest_distance": ("training/rollout_probs_diff_max", max),
}
"""A token's probability in the rollout engine against the actor's: metric, and the worst step's."""


@dataclass(frozen=True)
class LoopFigures:
    """Means over the steps of one loop after the first, which warms everything up."""

    step_s: float
    """Seconds of a step."""
    generation_s: float
    """Of these, from sending the first prompt to receiving the last rollout."""
    update_s: float
    """The actor's update alone, without the log probabilities before it."""
    weight_sync_s: float
    """Sending the weights to vLLM."""
    between_phases: float
    """Share of a step outside all of verl's phases."""
    prompt_tokens: float
    """Mean tokens of a prompt."""
    generated_tokens: float
    """Tokens that the policy wrote in a step; observations do not count."""
    generation_tokens_s: float
    """Generated tokens a second of generation, per GPU."""
    update_tokens_s: float
    """All tokens of the batch a second of update, per GPU."""
    throughput: float
    """All tokens of the batch a second of step, per GPU (verl's perf/throughput)."""
    environment_wait: float | None
    """Share of the generation that a rollout waits for the service; None: no service is used."""
    gpu_idle: float | None
    """Share of time without a kernel, from the end of the first step on; None: no GPU."""
    actor_memory_gib: float | None
    """Peak of torch's allocator in the training process; None: no GPU."""
    gpu_memory_gib: float | None
    """Peak memory in use on a GPU; None: no GPU."""


@dataclass
class Followed:
    """What was read of a loop while it ran."""

    lines: list[dict[str, Any]] = field(default_factory=list)
    """verl's metrics, an entry for each step."""
    seen: list[float] = field(default_factory=list)
    """When each arrived: the ends of the steps, in seconds since the epoch."""


def loop_figures(
    followed: Followed, generated: Sequence[int], gpus: int, samples: Sequence[GpuSample]
) -> LoopFigures:
    """Reduce a loop's metrics to its figures.

    Args:
        followed: Its metrics, at least two steps.
        generated: Tokens that the policy wrote in each step.
        gpus: How many GPUs it ran on; 0: the processor, which counts as one device.
        samples: Of the GPUs while it ran; empty without a GPU.

    Raises:
        SmokeError: Fewer than two steps, or metrics that verl should have logged are missing.
    """
    if len(followed.lines) < 2 or len(followed.lines) != len(generated):
        raise SmokeError(f"{len(followed.lines)} steps were logged; at least 2 are needed")
    kept = followed.lines[1:]

    def mean(key: str) -> float:
        return fmean(line[key] for line in kept)

    def mean_share(part: str, whole: str) -> float:
        return fmean(line[part] / line[whole] for line in kept)

    devices = max(1, gpus)
    window = [s for s in samples if followed.seen[0] <= s.time <= followed.seen[-1]]
    memory = [line["actor/perf/max_memory_allocated_gb"] for line in followed.lines]
    speeds = [n / line["timing_s/gen"] for line, n in zip(kept, generated[1:], strict=True)]
    wait = "seal/environment_s_per_rollout"
    return LoopFigures(
        step_s=mean("timing_s/step"),
        generation_s=mean("timing_s/gen"),
        update_s=mean("timing_s/update_actor"),
        weight_sync_s=mean("timing_s/update_weights"),
        between_phases=1 - sum(mean(f"timing_s/{name}") for name in TIMED) / mean("timing_s/step"),
        prompt_tokens=mean("prompt_length/mean"),
        generated_tokens=fmean(generated[1:]),
        generation_tokens_s=fmean(speeds) / devices,
        update_tokens_s=mean_share("perf/total_num_tokens", "timing_s/update_actor") / devices,
        throughput=mean("perf/throughput"),
        environment_wait=mean_share(wait, "timing_s/gen") if wait in kept[0] else None,
        gpu_idle=1 - fmean(s.busy for s in window) if window else None,
        actor_memory_gib=max(memory) if gpus else None,
        gpu_memory_gib=max(s.memory_gib for s in samples) if samples else None,
    )


@dataclass(frozen=True)
class PhaseFigures:
    """What a phase of the loop took, over all steps after the first."""

    seconds: float
    idle: float | None
    """Share of the time without a kernel; None: no sample fell into it."""
    memory_gib: float | None
    """Peak memory in use on the fullest GPU; None: no sample fell into it."""


def by_phase(
    phases: Sequence[Mapping[str, Any]], samples: Sequence[GpuSample]
) -> dict[str, PhaseFigures]:
    """Time, idle share and memory of each phase of the loop log.

    The time from a step's end to the next rollout is the phase "step_end". The first step and what
    follows the last one are not counted.

    >>> log = [{"time": 0.0, "phase": "rollout", "step": 2}, {"time": 2.0, "phase": "update",
    ...         "step": 2}, {"time": 3.0, "phase": "step_end", "step": 2}]
    >>> figures = by_phase(log, [GpuSample(0.5, 1.0, 8.0), GpuSample(1.5, 0.5, 9.0)])
    >>> figures["rollout"]
    PhaseFigures(seconds=2.0, idle=0.25, memory_gib=9.0)
    >>> figures["update"]
    PhaseFigures(seconds=1.0, idle=None, memory_gib=None)
    """
    totals: dict[str, tuple[float, list[GpuSample]]] = {}
    for line, following in zip(phases, phases[1:], strict=False):
        if line["step"] < 2 or following["phase"] == DONE:
            continue
        start, end = line["time"], following["time"]
        length, within = totals.setdefault(line["phase"], (0.0, []))
        within += [sample for sample in samples if start <= sample.time < end]
        totals[line["phase"]] = (length + end - start, within)
    return {
        phase: PhaseFigures(
            seconds=length,
            idle=1 - fmean(sample.busy for sample in within) if within else None,
            memory_gib=max(sample.memory_gib for sample in within) if within else None,
        )
        for phase, (length, within) in totals.items()
    }


def agreement(lines: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """How far rollout engine and actor agree on the tokens' probabilities, in the worst step.

    Returns:
        Correlation, and mean and largest distance; empty if verl did not compare them.
    """
    return {
        name: worst(line[key] for line in lines)
        for name, (key, worst) in _AGREEMENT.items()
        if all(key in line for line in lines)
    }


def generated_by_step(rollouts: Sequence[Mapping[str, Any]]) -> list[list[int]]:
    """Tokens that the policy wrote in each rollout of each step, from the loop log's rollouts."""
    steps: dict[int, list[int]] = {}
    for line in rollouts:
        written = sum(end - start for _, start, end in line["turn_spans"])
        steps.setdefault(line["step"], []).append(written)
    return [steps[step] for step in sorted(steps)]


def ratios(seal: Mapping[str, Any], verl: Mapping[str, Any]) -> dict[str, float | None]:
    """This project's figures divided by verl's; None if one is missing or verl's is 0."""
    return {
        key: seal[key] / verl[key] if seal[key] is not None and verl[key] else None for key in seal
    }
