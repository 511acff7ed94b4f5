import contextlib
import dataclasses
import json
import signal
import subprocess
import sys
import time
import types
from pathlib import Path
from typing import Any

import gpu_smoke
import pyarrow.parquet as pq
import pytest
import torch
from omegaconf import OmegaConf
from transformers import AutoModelForCausalLM, AutoTokenizer

from benchmarks.gpu_smoke import (
    configuration,
    figures,
    kept,
    loops,
    models,
    sampling,
    update,
)
from benchmarks.gpu_smoke.configuration import Case, baseline_config, case
from benchmarks.gpu_smoke.figures import Followed, PhaseFigures
from benchmarks.gpu_smoke.kept import SmokeError
from benchmarks.gpu_smoke.page import page
from benchmarks.gpu_smoke.sampling import GpuSample, GpuSampler, NoGpuError
from seal.launch.recipe import load_recipe

ROOT = Path(__file__).resolve().parents[2]


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


# ---- figures ---------------------------------------------------------------------------------


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


# ---- GPUs ------------------------------------------------------------------------------------


def nvml(count: int) -> types.ModuleType:
    """NVML with `count` GPUs, the first half busy, the second at 50 %."""
    module = types.ModuleType("pynvml")
    calls = {
        "nvmlInit": lambda: None,
        "nvmlDeviceGetCount": lambda: count,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetHandleByUUID": lambda uuid: f"by {uuid}",
        "nvmlDeviceGetName": lambda handle: b"A100",
        "nvmlDeviceGetUtilizationRates": lambda handle: types.SimpleNamespace(
            gpu=100 - 50 * handle
        ),
        "nvmlDeviceGetMemoryInfo": lambda handle: types.SimpleNamespace(used=(1 + handle) * 2**30),
    }
    for name, call in calls.items():
        setattr(module, name, call)
    return module


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setitem(sys.modules, "pynvml", nvml(3))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return monkeypatch


def test_gpus_that_cuda_sees(gpus: pytest.MonkeyPatch) -> None:
    assert sampling.find_gpus(None) == ([0, 1], ["A100", "A100"])  # a batch divides by two
    assert sampling.find_gpus(1) == ([0], ["A100"])
    gpus.setenv("CUDA_VISIBLE_DEVICES", "2,GPU-77")
    assert sampling.find_gpus(2) == ([2, "by GPU-77"], ["A100", "A100"])


@pytest.mark.parametrize("visible", ["", "-1"])
def test_gpus_hidden_from_cuda_are_none(gpus: pytest.MonkeyPatch, visible: str) -> None:
    gpus.setenv("CUDA_VISIBLE_DEVICES", visible)
    with pytest.raises(NoGpuError, match="leaves 0"):
        sampling.find_gpus(None)


def test_more_gpus_than_there_are(gpus: pytest.MonkeyPatch) -> None:
    with pytest.raises(NoGpuError, match="leaves 3, 4 asked for"):
        sampling.find_gpus(4)


def test_the_sampler_means_use_and_takes_the_fullest_memory(gpus: pytest.MonkeyPatch) -> None:
    with GpuSampler([0, 1]) as sampler:
        deadline = time.monotonic() + 10
        while len(sampler.samples) < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
    assert (sampler.samples[0].busy, sampler.samples[0].memory_gib) == (0.75, 2.0)
    assert sampler.samples[0].time < sampler.samples[1].time


def test_without_a_gpu_it_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)  # an import of it fails
    out = tmp_path / "out"
    assert gpu_smoke.main([f"--out={out}"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("gpu_smoke: no GPU found (") and "try: --cpu" in said
    assert not out.exists()


# ---- models ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "weights", "heads"),
    # Published: 0.49, 3.09 and 7.61 billion parameters.
    [("0.5b", 494_032_768, 64), ("3b", 3_085_938_688, 128), ("7b", 7_615_616_512, 128)],
)
def test_shapes_are_those_of_the_real_models(size: str, weights: int, heads: int) -> None:
    described = models.model_config(size)
    assert described.hidden_size // described.num_attention_heads == heads
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(described)
    assert sum(parameter.numel() for parameter in model.parameters()) == weights


def test_the_choices_are_the_shapes() -> None:
    assert set(gpu_smoke.SIZES) == {*models.MODELS, configuration.REAL, "tiny"}


def test_a_built_model_loads_with_its_tokenizer(tmp_path: Path) -> None:
    out = tmp_path / "tiny"
    models.build("tiny", out)
    made = {path.name: path.stat().st_mtime_ns for path in out.iterdir()}
    models.build("tiny", out)
    assert {path.name: path.stat().st_mtime_ns for path in out.iterdir()} == made
    assert list(tmp_path.iterdir()) == [out]
    model = AutoModelForCausalLM.from_pretrained(out)
    tokenizer = AutoTokenizer.from_pretrained(out)
    assert len(tokenizer) == model.config.vocab_size == 8704
    assert model.config.eos_token_id == tokenizer.convert_tokens_to_ids("<|im_end|>")
    # Random weights emit every entry alike: each is text or an end mark, none is a hole.
    empty = [i for i in range(len(tokenizer)) if not tokenizer.decode([i])]
    assert empty == []
    tokens = tokenizer.encode('Book a flight.\n{"a": [1, 2]} \u00e9')
    assert tokenizer.decode(tokens) == 'Book a flight.\n{"a": [1, 2]} \u00e9'


def test_the_chat_template_only_ever_appends(tmp_path: Path) -> None:
    tokenizer = models.make_tokenizer(8704)
    docs = [{"function": {"name": "ls"}}, {"function": {"name": "cd"}}]
    dialogue = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "list"},
        {"role": "assistant", "content": "x"},
        {"role": "tool", "content": "[]"},
    ]

    def render(messages: list[dict[str, str]], **more: bool) -> str:
        text = tokenizer.apply_chat_template(messages, tools=docs, tokenize=False, **more)
        return str(text)

    for length in range(2, len(dialogue)):
        assert render(dialogue).startswith(render(dialogue[:length]))
    opening = render(dialogue[:2], add_generation_prompt=True)
    assert opening.startswith('<|im_start|>system\nBe brief.\n{"function": {"name": "ls"}}\n{"fun')
    assert opening.endswith("<|im_start|>assistant\n")


# ---- configuration of the two loops ----------------------------------------------------------


def measured(size: str, *overrides: str, gpus: int = 2) -> Case:
    return case(size, list(range(gpus)), 3, overrides, Path("out"))


def test_what_runs_is_the_recipe_with_small_batches() -> None:
    recipe = measured("7b", "seed=5").recipe()
    published = load_recipe(configuration.RECIPE, ["seed=5"])
    assert recipe.actor_rollout_ref.model.path == "experiments/gpu_smoke_models/7b"
    assert (recipe.trainer.n_gpus_per_node, recipe.trainer.total_training_steps) == (2, 3)
    assert recipe.seed == recipe.data.seed == 5
    assert recipe.seal.weights == published.seal.weights
    assert recipe.seal.interface == published.seal.interface
    assert recipe.actor_rollout_ref.actor.optim == published.actor_rollout_ref.actor.optim
    ours, theirs = (
        r.data.train_batch_size / r.actor_rollout_ref.actor.ppo_mini_batch_size
        for r in (recipe, published)
    )
    assert ours == theirs  # updates a step
    assert recipe.actor_rollout_ref.model.use_remove_padding is True
    # What a backbone group sets for a real model does not reach the one with random weights.
    assert recipe.actor_rollout_ref.model.custom_chat_template is None
    assert recipe.env_service.stop_tokens == []
    # The longest tool docs are 7,600 tokens, the longest dialogue has 8 turns.
    assert recipe.data.max_prompt_length == 8704
    assert recipe.data.max_response_length >= 8 * recipe.env_service.max_tokens_per_step * 1.5


def test_the_real_model_keeps_its_template_and_fits_its_context() -> None:
    recipe = measured("smollm2").recipe()
    group = load_recipe(configuration.RECIPE, ["backbone=smollm2-135m"])
    model = recipe.actor_rollout_ref.model
    assert model.custom_chat_template == group.actor_rollout_ref.model.custom_chat_template
    assert recipe.env_service.stop_tokens == ["<|im_end|>"]
    assert recipe.actor_rollout_ref.rollout.ignore_eos is False
    assert recipe.actor_rollout_ref.rollout.max_model_len <= 8192


@pytest.mark.parametrize(
    ("size", "gpus"), [("0.5b", 1), ("smollm2", 2), ("tiny", 0), ("smollm2", 0)]
)
def test_verls_loop_differs_by_its_own_parts_alone(tmp_path: Path, size: str, gpus: int) -> None:
    shared = measured(size, gpus=gpus)
    recipe = shared.recipe()
    config = baseline_config(shared, tmp_path, 77)
    assert config.trainer.v1.trainer_mode == "sync"
    assert config.trainer.v1.sampler.custom_sampler.path is None
    assert config.actor_rollout_ref.rollout.agent.default_agent_loop == "single_turn_agent"
    assert config.data.max_response_length == config.actor_rollout_ref.rollout.response_length == 77
    assert "seal" not in config and "env_service" not in config
    for section in ("actor", "model", "ref"):
        assert config.actor_rollout_ref[section] == recipe.actor_rollout_ref[section]
    assert config.algorithm == recipe.algorithm
    assert config.ray_kwargs == recipe.ray_kwargs
    rollout, own = config.actor_rollout_ref.rollout, recipe.actor_rollout_ref.rollout
    changed = {key for key in own if rollout[key] != own[key]}
    assert changed == {"agent", "response_length", "trace"}  # trace holds the run's name
    # What verl reads is whole: nothing is left to be worked out against the recipe.
    assert "${" not in OmegaConf.to_yaml(config)


def test_a_misspelt_override_is_one_sentence(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    argv = ["--cpu", f"--out={tmp_path / 'o'}", "--", "trainer.total_epoch=1"]
    assert gpu_smoke.main(argv) == 1
    assert "did you mean: trainer.total_epochs" in capsys.readouterr().err


@pytest.mark.parametrize(
    "argv",
    [
        ["--sizes", "tiny"],
        ["--cpu", "--sizes", "3b"],
        ["--steps=1"],
        ["--gpus=3"],
        ["--sizes", "14b"],
        ["--trainer-only", "--sizes", "smollm2"],
    ],
)
def test_options_that_do_not_go_together(argv: list[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        gpu_smoke.parse_arguments(argv)


# ---- running ---------------------------------------------------------------------------------


def test_prompts_are_one_a_group_in_the_order_of_the_steps(tmp_path: Path) -> None:
    # Two rollouts a group; the groups a and b are different tasks with the same prompt.
    for step, uids in ((1, ("a_0", "a_1", "b_0", "b_1")), (2, ("c_1", "c_0"))):
        prompts = {"a": "x", "b": "x", "c": "y"}
        lines = [json.dumps({"uid": uid, "input": prompts[uid[0]]}) for uid in uids]
        (tmp_path / f"{step}.jsonl").write_text("\n".join(lines) + "\n")
    loops.write_prompts(tmp_path, 2, tmp_path / "p.parquet")
    prompts = pq.read_table(tmp_path / "p.parquet").column("prompt").to_pylist()
    assert [prompt[0]["content"] for prompt in prompts] == ["x", "x", "y"]
    assert {prompt[0]["role"] for prompt in prompts} == {"user"}


def test_metrics_are_read_as_they_come_and_a_stall_is_an_error(tmp_path: Path) -> None:
    metrics = tmp_path / "metrics.jsonl"
    writes = (
        "import sys, time; f = open(sys.argv[1], 'w', buffering=1)\n"
        'for n in (1, 2):\n    print(\'{"step": %d, "data": {"n": %d}}\' % (n, n), file=f)\n'
        "    time.sleep(0.4)\n"
        "time.sleep(float(sys.argv[2]))"
    )
    with subprocess.Popen([sys.executable, "-c", writes, str(metrics), "0"]) as process:
        found = loops.follow(process, metrics, 60.0, lambda line: None)
    assert [step["n"] for step in found.lines] == [1, 2]
    assert found.seen[1] - found.seen[0] >= 0.2
    with subprocess.Popen([sys.executable, "-c", writes, str(metrics), "60"]) as process:
        with contextlib.ExitStack() as ended:
            ended.callback(process.send_signal, signal.SIGKILL)
            with pytest.raises(SmokeError, match="no step ended"):
                loops.follow(process, metrics, 1.0, lambda line: None)


def test_a_loop_that_was_measured_is_not_run_again(tmp_path: Path) -> None:
    calls: list[int] = []

    def measure() -> dict[str, Any]:
        calls.append(1)
        return {"figures": {}}

    for _ in range(2):
        assert kept.once(tmp_path / "seal.json", measure) == {"figures": {}}
    assert calls == [1]
    kept.same_settings(tmp_path / "overrides.json", ["a=1"])
    kept.same_settings(tmp_path / "overrides.json", ["a=1"])
    with pytest.raises(SmokeError, match="other settings"):
        kept.same_settings(tmp_path / "overrides.json", ["a=2"])


# ---- the update alone ------------------------------------------------------------------------


def test_the_recorded_dialogues_are_whole_rollouts() -> None:
    made = update.recorded(100, 1000, "cpu")
    assert len(made) == 48 and max(len(one.ids) for one in made) <= 16384
    for one in made:
        assert 0 < one.own[0] and one.own[-1] < len(one.ids) - 1
        assert len(one.own.unique()) == len(one.own) < len(one.ids) / 4


def test_an_update_is_measured_without_a_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On two short dialogues; the figures that need no GPU are there."""
    few = tmp_path / "few.json"
    few.write_text(json.dumps({"dialogues": [[40, 6, 5, 3], [30, 4]]}))
    monkeypatch.setattr(update, "RECORDED", few)
    argv = ["--cpu", "--trainer-only", "--steps=2", f"--out={tmp_path}/out"]
    assert gpu_smoke.main(argv) == 0
    found = json.loads((tmp_path / "out/tiny/update.json").read_text())
    assert (found["tokens"], found["own_tokens"]) == (88, 13)
    # Each dialogue's ratio is 1, and their advantages are opposite.
    assert found["loss"] == 0.0 and found["peak_gb"] is None
    assert 0 < found["rounding"] < 0.1 and found["planned_gb"] > 0
    assert "| their tokens | 88 |" in (tmp_path / "out/update.md").read_text()
    # What is measured already is shown again.
    monkeypatch.delattr(update, "measure")
    assert gpu_smoke.main(argv) == 0
    assert "their tokens" in capsys.readouterr().out


def test_an_update_needs_a_gpu_unless_told_otherwise(tmp_path: Path) -> None:
    assert gpu_smoke.main(["--trainer-only", f"--out={tmp_path}/out"]) == 2
    with pytest.raises(SystemExit):
        gpu_smoke.parse_arguments(["--trainer-only", "--", "data.train_batch_size=2"])
