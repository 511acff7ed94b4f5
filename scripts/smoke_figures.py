"""What `gpu_smoke.py` measures: GPUs sampled while a loop runs, and a loop's metrics reduced.

In: verl's metrics, the loop log and samples through NVML. Out: `LoopFigures`, one set a loop, which
the script prints side by side. No torch here.
"""

import importlib
import json
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from rich.console import Console
from rich.table import Table

from seal.launch import gpus
from seal.loop_log import DONE

SAMPLE_S = 0.1
# verl's phases of a step; what they leave of it is time between them.
TIMED = ("gen", "old_log_prob", "ref", "adv", "update_actor", "update_weights")

# Title, key of LoopFigures, format.
ROWS = (
    ("step, s", "step_s", ".2f"),
    ("generation, s", "generation_s", ".2f"),
    ("update of the actor, s", "update_s", ".2f"),
    ("transfer of weights, s", "weight_sync_s", ".3f"),
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


class SmokeError(Exception):
    """The measurement cannot start or has failed; the message says what to do."""


class NoGpuError(SmokeError):
    """This machine has no GPU that can be used."""


@dataclass(frozen=True)
class GpuSample:
    """Every used GPU at one moment, through NVML."""

    time: float
    """Seconds since the epoch."""
    busy: float
    """Share of NVML's last sampling period (1/6 to 1 s) in which a kernel ran; mean over GPUs."""
    memory_gib: float
    """Memory in use on the fullest GPU, by all processes."""


@dataclass(frozen=True)
class LoopFigures:
    """Means over the steps of one loop after the first, which warms everything up."""

    step_s: float
    """Seconds of a step."""
    generation_s: float
    """Of these, from the first prompt sent to the last rollout in."""
    update_s: float
    """The actor's update alone, without the log probabilities before it."""
    weight_sync_s: float
    """Handing the weights to vLLM."""
    between_phases: float
    """Share of a step outside all of verl's phases."""
    prompt_tokens: float
    """Mean tokens of a prompt."""
    generated_tokens: float
    """Tokens that the policy wrote in a step; observations do not count."""
    generation_tokens_s: float
    """These a second of generation, per GPU."""
    update_tokens_s: float
    """All tokens of the batch a second of update, per GPU."""
    throughput: float
    """All tokens of the batch a second of step, per GPU (verl's perf/throughput)."""
    environment_wait: float | None
    """Share of the generation that a rollout waits for the service; None where there is none."""
    gpu_idle: float | None
    """Share of the time from the first step's end to the last's without a kernel; None: no GPU."""
    actor_memory_gib: float | None
    """Peak of torch's allocator in the training process; None: no GPU."""
    gpu_memory_gib: float | None
    """Peak memory in use on a GPU; None: no GPU."""


@dataclass
class Followed:
    """What a loop told while it ran."""

    lines: list[dict[str, Any]] = field(default_factory=list)
    """verl's metrics, one entry a step."""
    seen: list[float] = field(default_factory=list)
    """When each arrived: the ends of the steps, in seconds since the epoch."""


def loop_figures(
    followed: Followed, generated: Sequence[int], gpus: int, samples: Sequence[GpuSample]
) -> LoopFigures:
    """Reduce a loop's metrics to its figures.

    Args:
        followed: Its metrics, at least two steps.
        generated: Tokens that the policy wrote in each step.
        gpus: Devices it ran on; 0 for the processor, which counts as one device.
        samples: GPU samples taken meanwhile; empty without a GPU.

    Raises:
        SmokeError: Fewer than two steps, or metrics that verl should have logged are missing.
    """
    if len(followed.lines) < 2 or len(followed.lines) != len(generated):
        raise SmokeError(f"{len(followed.lines)} steps were logged; at least 2 are needed")
    kept = list(zip(followed.lines, generated, strict=True))[1:]

    def mean(value: Callable[[dict[str, Any], int], float]) -> float:
        return fmean(value(line, tokens) for line, tokens in kept)

    def seconds(name: str) -> float:
        return mean(lambda line, _: line[f"timing_s/{name}"])

    devices = max(1, gpus)
    window = [s for s in samples if followed.seen[0] <= s.time <= followed.seen[-1]]
    memory = [line["actor/perf/max_memory_allocated_gb"] for line in followed.lines]
    waits = "seal/environment_s_per_rollout" in followed.lines[0]
    return LoopFigures(
        step_s=seconds("step"),
        generation_s=seconds("gen"),
        update_s=seconds("update_actor"),
        weight_sync_s=seconds("update_weights"),
        between_phases=1 - sum(map(seconds, TIMED)) / seconds("step"),
        prompt_tokens=mean(lambda line, _: line["prompt_length/mean"]),
        generated_tokens=mean(lambda _, tokens: tokens),
        generation_tokens_s=mean(lambda line, n: n / line["timing_s/gen"]) / devices,
        update_tokens_s=mean(
            lambda line, _: line["perf/total_num_tokens"] / line["timing_s/update_actor"]
        )
        / devices,
        throughput=mean(lambda line, _: line["perf/throughput"]),
        environment_wait=mean(
            lambda line, _: line["seal/environment_s_per_rollout"] / line["timing_s/gen"]
        )
        if waits
        else None,
        gpu_idle=1 - fmean(s.busy for s in window) if window else None,
        actor_memory_gib=max(memory) if gpus else None,
        gpu_memory_gib=max(s.memory_gib for s in samples) if samples else None,
    )


def idle_by_phase(
    phases: Sequence[Mapping[str, Any]], samples: Sequence[GpuSample]
) -> dict[str, dict[str, float]]:
    """GPU idle share and seconds of each phase of the loop log, over all steps after the first.

    The time from a step's end to the next rollout counts as phase "step_end"; what follows the last
    step is not counted.

    >>> log = [{"time": 0.0, "phase": "rollout", "step": 2}, {"time": 2.0, "phase": "update",
    ...         "step": 2}, {"time": 3.0, "phase": "step_end", "step": 2}]
    >>> idle_by_phase(log, [GpuSample(0.5, 1.0, 1.0), GpuSample(1.5, 0.5, 1.0)])
    {'rollout': {'seconds': 2.0, 'idle': 0.25}, 'update': {'seconds': 1.0}}
    """
    found: dict[str, tuple[float, list[float]]] = {}
    for line, following in zip(phases, phases[1:], strict=False):
        if line["step"] < 2 or following["phase"] == DONE:
            continue
        start, end = line["time"], following["time"]
        length, busy = found.setdefault(line["phase"], (0.0, []))
        busy += [s.busy for s in samples if start <= s.time < end]
        found[line["phase"]] = (length + end - start, busy)
    return {
        phase: {"seconds": length, **({"idle": 1 - fmean(busy)} if busy else {})}
        for phase, (length, busy) in found.items()
    }


def generated_by_step(rollouts: Sequence[Mapping[str, Any]]) -> list[list[int]]:
    """Tokens that the policy wrote in each rollout of each step, from the loop log's rollouts."""
    steps: dict[int, list[int]] = {}
    for line in rollouts:
        written = sum(end - start for _, start, end in line["turn_spans"])
        steps.setdefault(line["step"], []).append(written)
    return [steps[step] for step in sorted(steps)]


class GpuSampler:
    """Samples GPUs in a thread of its own while its block runs.

    Args:
        handles: NVML handles of the GPUs; none: it samples nothing.
    """

    def __init__(self, handles: Sequence[Any]) -> None:
        self.samples: list[GpuSample] = []
        self._handles = handles
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> "GpuSampler":
        if self._handles:
            self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._over.set()
        if self._handles:
            self._thread.join()

    def _sample(self) -> None:
        nvml = importlib.import_module("pynvml")
        while not self._over.wait(SAMPLE_S):
            busy = fmean(nvml.nvmlDeviceGetUtilizationRates(h).gpu for h in self._handles) / 100
            used = max(nvml.nvmlDeviceGetMemoryInfo(h).used for h in self._handles) / 1024**3
            self.samples.append(GpuSample(time.time(), busy, used))


def find_gpus(wanted: int | None) -> tuple[list[Any], list[str]]:
    """NVML handles and names of the first `wanted` GPUs that CUDA_VISIBLE_DEVICES leaves.

    None asks for as many as there are, rounded down to a power of two: a batch has to divide.

    Raises:
        NoGpuError: There is none, or fewer than wanted.
    """
    try:
        nvml, handles = gpus.visible()
        names = [gpus.text(nvml.nvmlDeviceGetName(handle)) for handle in handles]
    except gpus.NvmlError as error:
        raise NoGpuError(
            f"no GPU found ({error}); on a machine without one try: --size tiny --cpu"
        ) from error
    count = wanted or 2 ** (len(handles).bit_length() - 1) if handles else 0
    if not handles or count > len(handles):
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        raise NoGpuError(
            f"no GPU found (CUDA_VISIBLE_DEVICES={visible} leaves {len(handles)}, {wanted or 1} "
            "asked for); on a machine without one try: --size tiny --cpu"
        )
    return handles[:count], names[:count]


def same_settings(path: Path, settings: Sequence[str]) -> None:
    """Note what is measured in a folder, in its file `path`.

    Raises:
        SmokeError: Something else was measured there.
    """
    if path.exists() and json.loads(path.read_text("utf-8")) != list(settings):
        raise SmokeError(f"{path.parent} holds a measurement with other settings; name another")
    path.write_text(json.dumps(list(settings), indent=1) + "\n", "utf-8")


def once(path: Path, measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What was measured, kept in a file: an interrupted script does not measure it again."""
    if not path.exists():
        path.write_text(json.dumps(measure()) + "\n", "utf-8")
    read: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return read


def ratios(seal: dict[str, Any], verl: dict[str, Any]) -> dict[str, float | None]:
    """This project's figures over verl's; None where one is missing or verl's is 0."""
    return {
        key: seal[key] / verl[key] if seal[key] is not None and verl[key] else None for key in seal
    }


def print_tables(console: Console, report: dict[str, Any]) -> None:
    """The figures of both loops side by side, then the idle time by phase."""
    seal, verl = (report["loops"][name]["figures"] for name in ("seal", "verl"))
    title = f"{report['model']['size']}, {report['machine']['device']}; means of steps 2 to "
    table = Table(title=f"{title}{report['steps']}", title_justify="left")
    table.add_column("")
    for name in ("exp/SEAL.yaml", "verl, single turn", "ratio"):
        table.add_column(name, justify="right")
    for name, key, style in ROWS:
        cells = ["-" if f[key] is None else format(f[key], style) for f in (seal, verl)]
        ratio = report["ratios"][key]
        table.add_row(name, *cells, "-" if ratio is None else f"{ratio:.2f}")
    console.print()
    console.print(table)
    phases = Table(title="exp/SEAL.yaml by phase of its loop log", title_justify="left")
    for name in ("phase", "seconds", "GPU idle"):
        phases.add_column(name, justify="left" if name == "phase" else "right")
    for phase, found in report["loops"]["seal"]["phases"].items():
        idle = f"{found['idle']:.1%}" if "idle" in found else "-"
        phases.add_row(phase, f"{found['seconds']:.2f}", idle)
    console.print(phases)
