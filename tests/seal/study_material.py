"""Made-up runs on the disk, as the launcher leaves them, with known scores."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from labelled import rollout
from omegaconf import OmegaConf

from seal.coevolution.interface import INITIAL, Interface
from seal.labels import Label
from seal.launch.resume import flat
from seal.records.loop_log import group_of
from seal.validation.metrics import validation_metrics
from seal.wire import TurnDiagnosis

CONFIG = {
    "seed": 1,
    "data": {"train_files": "data/train.parquet", "train_batch_size": 8, "seed": 1},
    "seal": {"weights": {"w_max": 2.0}, "run_id": "x"},
    "rollout": {"trace": {"experiment_name": "x"}},
    "trainer": {
        "experiment_name": "x",
        "total_training_steps": 2,
        "nnodes": 1,
        "n_gpus_per_node": 1,
        "device": "cpu",
    },
    "actor": {"lr": 1e-4},
}
RECORD: dict[str, Any] = {
    "versions": {"verl": "0.9.1", "torch": "2.13.0"},
    "service_versions": {"bfcl-eval": "2026.3.23"},
    "data": {"data/train.parquet": "aa"},
    "policy": {"model.safetensors": "aa"},
    "interface_texts": "0123",
    "git": {"commit": "c" * 40, "changed": False, "untracked": []},
    "machine": {"host": "made-up-host", "cpu": "one", "cores": 2, "gpus": []},
    "command_line": ["/made/up/python", "launcher.py"],
    "ray_address": None,
}


def compose(overrides: Sequence[str], dtype: str) -> dict[str, Any]:
    """The made-up recipe under overrides such as "actor.lr=2", by key with dots.

    It does not ask for the processor's type.
    """
    made = OmegaConf.create(CONFIG)
    for override in overrides:
        OmegaConf.update(made, *override.split("="))
    made.data.seed = made.seed = int(made.seed)
    made.seal.weights.w_max = float(made.seal.weights.w_max)
    return dict(flat(OmegaConf.to_container(made)))


def told_apart(name: str, suite: str, step: int) -> int:
    """Tokens of each dialogue that tell runs, suites and steps apart."""
    return 1000 * step + 100 * len(suite) + len(name)


def write_run(
    root: Path,
    name: str,
    seed: int,
    scores: Mapping[int, Mapping[str, Mapping[str, Sequence[float]]]],
    *,
    config: Mapping[str, Any] | None = None,
    record: Mapping[str, Any] | None = None,
    rounds: int = 2,
    dropped: int = 0,
    done: bool = True,
) -> None:
    """Write a run.

    Args:
        root: Folder that stands for the project's.
        name: Of the run.
        seed: Its seed.
        scores: By step, suite and task: the scores of the task's rollouts.
        config: Changes of the configuration, by key with dots.
        record: Changes of the record.
        rounds: Training steps.
        dropped: Groups that were lost in each step.
        done: Whether it has finished.
    """
    made = OmegaConf.create(CONFIG)
    for key, value in {
        "seed": seed,
        "data.seed": seed,
        "trainer.experiment_name": name,
        "trainer.total_training_steps": rounds,
        "rollout.trace.experiment_name": name,
        "seal.run_id": name,
        **(config or {}),
    }.items():
        OmegaConf.update(made, key, value)
    folder = root / "launcher_record" / name
    folder.mkdir(parents=True)
    OmegaConf.save(made, folder / "config.yaml")
    (folder / "record.json").write_text(json.dumps({**RECORD, **(record or {})}))
    loop = root / "experiments" / name / "loop"
    loop.mkdir(parents=True)
    lines = [
        {
            "time": 100.0 + step,
            "step": step,
            "metrics": {
                "seal/pass_rate": 0.5,
                "seal/advantage/token_mean_after": -0.1 * seed,
                "seal/interface/version": evolved(step - 1).version,
                "seal/interface/active_parts": len(evolved(step - 1).active()),
            },
            "rollouts": 32,
            "dropped_groups": dropped,
            "labels": {"multi_turn_base": {"pass": 3, "state_mismatch": 1}},
            "interface_shown": asdict(evolved(step - 1).to_reply()),
            "profile": "long " * 99,
            "interface": asdict(evolved(step).to_reply()),
        }
        for step in range(1, rounds + 1)
    ]
    last = "done" if done else "interrupted"
    if not done:
        lines = lines[:-1]
    write_lines(loop / "rounds.jsonl", lines)
    rollouts = [one for step in range(1, len(lines) + 1) for one in trained(step)]
    write_lines(loop / "rollouts.jsonl", rollouts)
    write_lines(loop / "phases.jsonl", [{"time": 1.0, "phase": last, "step": rounds}])
    validated = {step: validation_metrics(*_columns(suites)) for step, suites in scores.items()}
    metrics = [
        {"step": 0, "data": validated.get(0, {})},
        *(
            {
                "step": step,
                "data": {
                    "timing_s/step": 10.0,
                    "perf/total_num_tokens": 500,
                    "actor/lr": 1e-6,
                    **validated.get(step, {}),
                },
            }
            for step in range(1, rounds + 1)
        ),
    ]
    # The second half of a run that was resumed.
    write_lines(root / "experiments" / name / "metrics.1.jsonl", metrics[:2])
    write_lines(root / "experiments" / name / "metrics.jsonl", metrics[2:])
    for step, suites in scores.items():
        rollouts = [
            {
                "step": step,
                "suite": suite,
                "task_id": task,
                "category": task.rpartition("_")[0],
                "score": score,
                "labels": "pass",
                "truncated": 0.0,
                "exit_status": "completed",
                "response_tokens": (100 if score else 300) + told_apart(name, suite, step),
                "input": "a long dialogue " * 99,
            }
            for suite, tasks in suites.items()
            for task, every in tasks.items()
            for score in every
        ]
        path = root / f"experiments/tech_synthetic/{name}/validation_log/{step}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_lines(path, rollouts)


def evolved(step: int) -> Interface:
    """The interface after a round: version 0 before the first one, with a part from the second."""
    return replace(INITIAL, version=step, schema_cues=step > 1)


def trained(step: int) -> list[dict[str, Any]]:
    """Lines of the rollouts of a round: two groups of two."""
    reason = "a reason that quotes a dialogue"
    turns = (
        TurnDiagnosis(0, Label.PASS, reason, None),
        TurnDiagnosis(1, Label.STATE_MISMATCH, reason, 1, cascade=True),
    )
    lines = []
    for uid in ("aa_0_0", "aa_1_0", "bb_0_0", "bb_1_0"):
        reward = float(uid.endswith("1_0"))
        played = rollout(
            turns,
            reward,
            "multi_turn_base",
            shown=True,
            task_id="multi_turn_base_7",
            interface_version=evolved(step - 1).version,
            environment_s=0.5,
            turn_spans=((0, 0, 40), (1, 90, 110)),
        )
        own = {"step": step, "uid": uid, "group": group_of(uid), "weights": [1.25, 1.25]}
        own |= {"policy_tokens": 60, "response_tokens": 110}
        lines.append({"time": 100.0 + step, **own, **played.to_json()})
    return lines


def _columns(suites: Mapping[str, Mapping[str, Sequence[float]]]) -> tuple[list[Any], ...]:
    """Suite, category, group, reward and exit status of each rollout of a validation."""
    rows = [
        (suite, task.rpartition("_")[0], f"uid of {task}", score, "completed")
        for suite, tasks in suites.items()
        for task, every in tasks.items()
        for score in every
    ]
    return tuple(list(column) for column in zip(*rows, strict=True)) if rows else ([],) * 5


def write_lines(path: Path, lines: Sequence[Mapping[str, Any]]) -> None:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def drawn(
    rates: Sequence[float], rollouts: int, seed: int, category: str = "multi_turn_base"
) -> dict[str, list[float]]:
    """Scores of tasks that pass with given rates."""
    draw = np.random.default_rng(seed)
    return {
        f"{category}_{number}": draw.binomial(1, rate, rollouts).astype(float).tolist()
        for number, rate in enumerate(rates)
    }
