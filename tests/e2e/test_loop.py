"""The whole loop, real in every part: service, vLLM, verl, Ray, from the launcher to the table."""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pandas as pd
import psutil
import pytest

from seal.coevolution.evolution import InterfaceConfig, evolve
from seal.coevolution.interface import INITIAL
from seal.coevolution.weights import batch_weights
from seal.launch.recipe import load_recipe
from seal.train.round import RolloutRecord
from seal.train.state import LoopState, after_round, loop_config

ROOT = Path(__file__).resolve().parents[2]
STEPS = 4
"""In the last one the rollout engine has the weights of the step before (stale_rollout)."""
ROLLOUTS = 32
E2E_EVAL = "experiments/e2e_eval.parquet"
CORRELATION = "training/rollout_actor_probs_pearson_corr"

pytestmark = pytest.mark.e2e


@dataclass(frozen=True)
class Run:
    """A finished launcher process and what it left behind."""

    name: str
    code: int
    output: str
    port: int

    @property
    def folder(self) -> Path:
        return ROOT / "experiments" / self.name

    def rounds(self) -> list[dict[str, Any]]:
        return read_lines(self.folder / "loop" / "rounds.jsonl")

    def correlations(self) -> list[float]:
        metrics = [line["data"] for line in read_lines(self.folder / "metrics.jsonl")]
        return [line[CORRELATION] for line in metrics if CORRELATION in line]

    def validation(self, step: int) -> list[dict[str, Any]]:
        log = ROOT / "experiments/tech_synthetic" / self.name / "validation_log" / f"{step}.jsonl"
        return read_lines(log)


def read_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def kill_workers(port: int, ended: threading.Event, killed: list[int]) -> None:
    """End one worker process of the run's service after another, until the run has ended."""
    while not ended.wait(2.0):
        for process in psutil.process_iter():
            words = _words(process)
            if "env_service" in words and str(port) in words:
                with contextlib.suppress(psutil.Error, IndexError):
                    process.children()[0].kill()
                    killed.append(port)


def launch(
    name: str,
    *overrides: str,
    steps: int = STEPS,
    killed: list[int] | None = None,
    options: tuple[str, ...] = (),
) -> Run:
    policy = "experiments/e2e_policy"
    port = free_port()
    command = [
        sys.executable,
        "launcher.py",
        "--conf=exp/quickstart.yaml",
        "--with-bfcl",
        *options,
        "--",
        f"trainer.experiment_name={name}",
        f"env_service.env_url=http://127.0.0.1:{port}",
        f"trainer.total_training_steps={steps}",
        f"actor_rollout_ref.model.path={policy}",
        f"launcher.build_policy='scripts/make_tiny_policy.py --out {policy} --dialogues 24'",
        # A policy of a few seconds' warm-up: it has to move, not to be good. It hardly ever passes
        # a task, so its gradient is that of the entropy, which must not make it ramble for long.
        "seal.start_gate=null",
        "actor_rollout_ref.actor.optim.lr=1e-3",
        "actor_rollout_ref.actor.entropy_coeff=0.01",
        "env_service.max_tokens_per_step=96",
        # Has verl compute the actor's own probabilities, too, and compare.
        "algorithm.rollout_correction.bypass_mode=false",
        f"data.train_batch_size={ROLLOUTS // 8}",
        *overrides,
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests/e2e")}
    ended = threading.Event()
    if killed is not None:
        threading.Thread(target=kill_workers, args=(port, ended, killed)).start()
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    ended.set()
    return Run(name, done.returncode, done.stdout + done.stderr, port)


@pytest.fixture(scope="module")
def run() -> Run:
    # A few tasks of both suites: evaluating them all takes longer than training.
    every = pd.read_parquet(ROOT / "data/quickstart_eval.parquet")
    some = ROOT / E2E_EVAL
    some.parent.mkdir(exist_ok=True)
    pd.concat([every.head(5), every.tail(5)]).to_parquet(some, index=False)
    finished = launch(
        "e2e",
        f"trainer.test_freq={STEPS}",
        f"data.val_files={E2E_EVAL}",
        "trainer.save_freq=1",
        "seal.checkpoints.keep_last=null",
        "actor_rollout_ref.rollout.engine_kwargs.vllm.worker_extension_cls="
        "stale_rollout.StaleWorkerExtension",
    )
    assert finished.code == 0, finished.output
    return finished


def test_every_round_is_recorded_and_the_next_one_sees_its_interface(run: Run) -> None:
    rounds = run.rounds()
    assert [line["step"] for line in rounds] == [1, 2, 3, 4]
    assert [line["interface"]["version"] for line in rounds] == [1, 2, 3, 4]
    assert [line["interface_versions"] for line in rounds] == [[0], [1], [2], [3]]
    assert [line["interface_shown"]["version"] for line in rounds] == [0, 1, 2, 3]
    assert all(line["rollouts"] == ROLLOUTS for line in rounds)


def test_every_dialogue_and_every_label_is_kept(run: Run) -> None:
    labels = read_lines(run.folder / "loop" / "rollouts.jsonl")
    assert [line["step"] for line in labels] == sorted([1, 2, 3, 4] * ROLLOUTS)
    assert all(turn["reason"] for line in labels for turn in line["turns"])
    for step in range(1, STEPS + 1):
        dialogues = read_lines(run.folder / "rollouts" / f"{step}.jsonl")
        assert len(dialogues) == ROLLOUTS
        assert all("assistant" in line["input"] for line in dialogues)


def test_labels_weigh_the_advantages_within_the_clip(run: Run) -> None:
    for line in run.rounds():
        assert 0.5 <= line["weights"][0] <= line["weights"][-1] <= 2.0
        before = line["metrics"]["seal/advantage/mean_abs_before"]
        after = line["metrics"]["seal/advantage/mean_abs_after"]
        if before > 0:
            assert 0.5 <= after / before <= 2.0
    assert any(weight != 1.0 for line in run.rounds() for weight in line["weights"])


def test_the_weights_reach_the_rollout_engine(run: Run) -> None:
    """And where they are not loaded, in the last step, the correlation shows it."""
    *loaded, stale = run.correlations()
    assert len(loaded) == STEPS - 1
    assert all(value > 0.99999 for value in loaded)
    # One update makes another policy, by far more than by rounding.
    assert stale < 0.9999


@pytest.fixture(scope="module")
def resumed(run: Run) -> Run:
    """The run as it was when round 2 had ended and its checkpoint had not: killed, and resumed.

    While it goes on, its service loses a worker process every two seconds.
    """
    killed: list[int] = []
    folder = ROOT / "experiments" / "e2e_resumed"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(run.folder / "loop", folder / "loop")
    checkpoints = folder / "checkpoints"
    shutil.copytree(run.folder / "checkpoints/global_step_1", checkpoints / "global_step_1")
    (checkpoints / "latest_checkpointed_iteration.txt").write_text("1")
    record = ROOT / "launcher_record" / "e2e_resumed"
    shutil.rmtree(record, ignore_errors=True)
    record.mkdir(parents=True)
    config = (ROOT / "launcher_record/e2e/config.yaml").read_text()
    for old in ("experiments/e2e/", "tech_synthetic/e2e/", "experiment_name: e2e"):
        config = config.replace(old, old.replace("e2e", "e2e_resumed"))
    config = config.replace(
        "stale_rollout.StaleWorkerExtension", "seal.train.cpu.rollout.CpuWorkerExtension"
    )
    (record / "config.yaml").write_text(config)
    finished = launch(
        "e2e_resumed",
        f"data.val_files={E2E_EVAL}",
        "trainer.val_before_train=False",
        "trainer.test_freq=-1",
        "trainer.save_freq=-1",
        "seal.checkpoints.keep_best=false",
        steps=2,
        killed=killed,
        options=("--resume",),
    )
    assert finished.code == 0, finished.output
    assert len(killed) > 5
    return finished


def test_a_killed_run_goes_on_where_its_checkpoint_was(run: Run, resumed: Run) -> None:
    whole, (first, second) = run.rounds(), resumed.rounds()
    assert [line["step"] for line in (first, second)] == [1, 2]
    assert first == whole[0]
    # The same interface, evolved anew by a service that had never heard of the run.
    assert second["interface_shown"] == whole[1]["interface_shown"]
    assert second["interface_versions"] == [1]
    # Nobody noticed the deaths of workers.
    assert (second["rollouts"], second["dropped_groups"]) == (ROLLOUTS, 0)
    # The data goes on where it was.
    assert second["task_ids"] == whole[1]["task_ids"] != whole[0]["task_ids"]
    logged = read_lines(resumed.folder / "loop" / "rollouts.jsonl")
    assert [line["step"] for line in logged] == sorted([1, 2] * ROLLOUTS)


@pytest.mark.parametrize("name", ["run", "resumed"])
def test_profile_interface_and_weights_follow_from_the_rollouts(
    name: str, request: pytest.FixtureRequest
) -> None:
    """All rounds computed anew from the labels in the log, resumed or not."""
    finished: Run = request.getfixturevalue(name)
    recipe = load_recipe(ROOT / "exp/quickstart.yaml", [])
    config = loop_config(recipe.seal)
    state, shown = LoopState(utilities=config.weights.utilities), INITIAL
    logged = read_lines(finished.folder / "loop" / "rollouts.jsonl")
    for line in finished.rounds():
        records = [
            RolloutRecord.from_json({f.name: one[f.name] for f in fields(RolloutRecord)})
            for one in logged
            if one["step"] == line["step"]
        ]
        labeled = [record.labeled() for record in records]
        weights = batch_weights(
            [one.turns for one in labeled], ["?"] * len(labeled), state.utilities, config.weights
        )
        written = [one["weights"] for one in logged if one["step"] == line["step"]]
        assert [list(by_turn) for by_turn in weights] == written
        assert line["interface_shown"]["content_hash"] == shown.content_hash()
        state = after_round(state, line["step"], labeled, shown, config)
        shown = evolve(shown, state.profile, InterfaceConfig(**recipe.seal.interface))
        assert line["profile"] == state.profile.to_json()
        assert line["total"] == state.history.total.to_json()
        assert line["interface"]["interface"] == shown.to_json()


def test_evaluation_sees_the_untouched_benchmark(run: Run) -> None:
    for step in (0, STEPS):
        lines = run.validation(step)
        assert {line["suite"] for line in lines} == {"fixed", "benchmark"}
        assert {line["interface_version"] for line in lines} == {0}


def test_the_report_shows_before_and_after(run: Run) -> None:
    for words in ("Pass rate, suite 'fixed'", "Turns by label", "Learning interface", "Cost"):
        assert words in run.output


def test_nothing_is_left_running(run: Run) -> None:
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", run.port)) != 0
    ours = [p for p in psutil.process_iter() if str(ROOT / "launcher_record/e2e") in str(_words(p))]
    assert ours == []


def _words(process: psutil.Process) -> list[str]:
    try:
        return list(process.cmdline())
    except psutil.Error:
        return []
