import dataclasses
from typing import Any

import pytest

from benchmarks.gpu_smoke import figures
from benchmarks.gpu_smoke.figures import Followed, PhaseFigures
from benchmarks.gpu_smoke.kept import SmokeError
from benchmarks.gpu_smoke.page import page
from benchmarks.gpu_smoke.sampling import GpuSample


def line(**changed: float) -> dict[str, Any]:
    """A step of 10 s with 2,000 tokens in the batch, as verl logs it."""
    return {
        "timing_s/step": 10.0,
        "timing_s/gen": 4.0,
        "timing_s/old_log_prob": 1.0,
        "timing_s/ref": 1.0,
        "timing_s/adv": 0.5,
        "timing_s/update_actor": 2.0,
        "timing_s/update_weights": 0.5,
        "prompt_length/mean": 100.0,
        "response_length/mean": 400.0,
        "perf/total_num_tokens": 2000,
        "perf/throughput": 200.0,
        "actor/perf/max_memory_allocated_gb": 3.0,
        **changed,
    }


def followed(*steps: dict[str, Any]) -> Followed:
    return Followed(list(steps), [100.0 + 10.0 * number for number in range(len(steps))])


def test_the_figures_of_a_loop() -> None:
    first = line(**{"timing_s/step": 99.0, "actor/perf/max_memory_allocated_gb": 5.0})
    other = line(**{"timing_s/gen": 2.0, "timing_s/step": 8.0, "seal/environment_s_per_rollout": 1})
    ours = {"seal/environment_s_per_rollout": 1.0}
    samples = [
        GpuSample(99.0, 0.0, 9.0),  # before the first step's end: start and warm-up
        GpuSample(101.0, 1.0, 7.0),
        GpuSample(119.0, 0.5, 8.0),
        GpuSample(121.0, 0.0, 1.0),
    ]
    found = figures.loop_figures(
        followed({**first, **ours}, line(**ours), other), [1, 800, 400], 2, samples
    )
    assert (found.step_s, found.generation_s, found.update_s) == (9.0, 3.0, 2.0)
    assert found.weight_sync_s == 0.5
    assert found.between_phases == pytest.approx(1 - 8.0 / 9.0)
    assert found.generated_tokens == 600
    assert found.generation_tokens_s == (200 + 200) / 2 / 2  # two steps, two GPUs
    assert found.update_tokens_s == 500  # 2,000 tokens in 2 s on two GPUs
    assert found.environment_wait == pytest.approx((1 / 4 + 1 / 2) / 2)
    assert found.gpu_idle == 0.25
    assert (found.actor_memory_gib, found.gpu_memory_gib) == (5.0, 9.0)


def test_a_processor_has_no_gpu_figures_and_a_single_turn_no_service() -> None:
    found = figures.loop_figures(followed(line(), line()), [800, 800], 0, [])
    assert found.generation_tokens_s == 200
    assert found.environment_wait is None
    assert (found.gpu_idle, found.actor_memory_gib, found.gpu_memory_gib) == (None, None, None)


def test_one_step_is_too_few() -> None:
    with pytest.raises(SmokeError, match="1 step"):
        figures.loop_figures(followed(line()), [1], 0, [])


def test_time_idle_share_and_memory_by_phase() -> None:
    log = [
        {"time": 0.0, "phase": "rollout", "step": 1},
        {"time": 10.0, "phase": "step_end", "step": 1},
        {"time": 11.0, "phase": "rollout", "step": 2},
        {"time": 13.0, "phase": "update", "step": 2},
        {"time": 14.0, "phase": "step_end", "step": 2},
        {"time": 15.0, "phase": "rollout", "step": 3},
        {"time": 18.0, "phase": "step_end", "step": 3},
        {"time": 30.0, "phase": "done", "step": 3},
    ]
    samples = [
        GpuSample(t, busy, memory)
        for t, busy, memory in ((5.0, 0.1, 9.0), (12.0, 1.0, 2.0), (16.0, 0.5, 3.0))
    ]
    assert figures.by_phase(log, samples) == {
        "rollout": PhaseFigures(5.0, 0.25, 3.0),
        "update": PhaseFigures(1.0, None, None),
        "step_end": PhaseFigures(1.0, None, None),
    }


def test_only_what_the_policy_wrote_counts_as_generated() -> None:
    rollouts = [
        {"step": 2, "turn_spans": [[0, 0, 8], [1, 20, 28]]},
        {"step": 1, "turn_spans": [[0, 0, 8]]},
        {"step": 2, "turn_spans": [[0, 0, 4]]},
    ]
    assert figures.generated_by_step(rollouts) == [[8], [16, 4]]


def agreeing(correlation: float, mean: float, largest: float) -> dict[str, float]:
    return {
        "training/rollout_actor_probs_pearson_corr": correlation,
        "training/rollout_probs_diff_mean": mean,
        "training/rollout_probs_diff_max": largest,
    }


def test_agreement_is_that_of_the_worst_step() -> None:
    steps = [agreeing(0.99, 0.1, 0.2), agreeing(0.98, 0.05, 0.4)]
    assert figures.agreement(steps) == {
        "correlation": 0.98,
        "mean_distance": 0.1,
        "largest_distance": 0.4,
    }
    assert figures.agreement([*steps, line()]) == {}


def report(**changed: Any) -> dict[str, Any]:
    samples = [GpuSample(105.0, 0.5, 70.0)]
    seal = dataclasses.asdict(
        figures.loop_figures(followed(line(), line()), [800, 800], 1, samples)
    )
    verl = {**seal, "generation_tokens_s": 400.0, "environment_wait": None}
    found: dict[str, Any] = {
        "checks": {
            "findings": [
                {"subject": "GPUs", "level": "ok", "said": "1"},
                {"subject": "flash-attn", "level": "warning", "said": "not used"},
            ]
        },
        "plan": {
            "update": 60 * 2**30,
            "aside": 4 * 2**30,
            "wake": 72 * 2**30,
            "utilization": 0.5,
            "largest_utilization": None,
        },
        "loops": {
            "seal": {
                "figures": seal,
                "agreement": {
                    "correlation": 0.99,
                    "mean_distance": 0.001,
                    "largest_distance": 0.25,
                },
                "phases": {
                    "rollout": {"seconds": 5.0, "idle": 0.25, "memory_gib": 71.0},
                    "sleep": {"seconds": 0.5, "idle": None, "memory_gib": None},
                    "update": {"seconds": 5.0, "idle": 0.0, "memory_gib": 58.0},
                    "weight_transfer": {"seconds": 1.0, "idle": 0.0, "memory_gib": 73.0},
                },
            },
            "verl": {"figures": verl},
        },
        "ratios": figures.ratios(seal, verl),
        **changed,
    }
    machine = {"device": "1 x A100", "versions": {"torch": "2"}, "attention": "sdpa"}
    return {"machine": machine, "steps": 2, "sizes": {"0.5b": found}}


def test_the_page_has_both_loops_and_the_plan_beside_what_was_measured() -> None:
    lines = page(report()).splitlines()
    assert "| generation, tokens/s per GPU | 200 | 400 | 0.50 |" in lines
    assert "| share of generation a rollout waits for the service | - | - | - |" in lines
    assert "| rollout | 5.00 | 25.0% | 71.0 |" in lines and "| sleep | 0.50 | - | - |" in lines
    assert "| update, torch's allocator | 56.0 | 3.0 |" in lines
    assert "| update, all on the fullest GPU | 60.0 | 58.0 |" in lines
    assert "| wake-up and rollouts, all on it | 72.0 | 73.0 |" in lines
    assert "`--check`: 1 lines are ok." in lines and "- warning, flash-attn: not used" in lines
    text = "\n".join(lines)
    assert "correlation 0.990000, mean distance 1.00e-03, largest 2.50e-01" in text
    assert "0.50 was set, - is the largest by the plan" in text


def test_the_page_shows_what_there_is_of_a_size_that_failed() -> None:
    whole = report()["sizes"]["0.5b"]
    half = {"failure": "verl's own loop failed", "loops": {"seal": whole["loops"]["seal"]}}
    text = page({**report(), "sizes": {"3b": half, "7b": {"failure": "no memory"}}})
    assert "**Not measured to its end**: verl's own loop failed" in text
    assert "| generation, tokens/s per GPU | 200 | - | - |" in text
    assert text.index("## 3b") < text.index("## 7b") < text.index("no memory")
