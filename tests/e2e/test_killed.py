"""Two trainer ranks with two rollout engines; what is killed ends the run, and it can go on.

A rollout engine of the first run is killed; the second run goes on with the first, and a trainer
rank of it is killed.
"""

import shutil
import time
from dataclasses import dataclass

import pytest
from short_run import ROLLOUTS, ROOT, Finished, ShortRun, read_lines

NAME = "e2e_two_ranks"
OVERRIDES = [
    "trainer.n_gpus_per_node=2",
    "ray_kwargs.ray_init.num_gpus=2",
    "ray_kwargs.ray_init.num_cpus=16",
    "launcher.environment.OMP_NUM_THREADS='1'",
    "trainer.val_before_train=False",
    "trainer.test_freq=-1",
    "trainer.save_freq=1",
    "seal.checkpoints.keep_last=null",
    "seal.checkpoints.keep_best=false",
]
NOTICED_WITHIN_S = 60

pytestmark = pytest.mark.e2e


@dataclass(frozen=True)
class Killed:
    """A run that lost a process."""

    finished: Finished
    ended_after_s: float
    """From the kill to the launcher's end, all processes of the run ended."""


def end_of(run: ShortRun, title: str) -> Killed:
    """Kill a process of a run and wait for the run's end."""
    run.kill(title)
    killed = time.monotonic()
    return Killed(run.wait(), time.monotonic() - killed)


@pytest.fixture(scope="module")
def without_engine() -> Killed:
    """An engine is killed in the rollouts of step 3."""
    shutil.rmtree(ROOT / "experiments" / NAME, ignore_errors=True)
    run = ShortRun(NAME, OVERRIDES, steps=4)
    run.wait_for_phase("rollout", 3)
    # Scheduler and model of an engine are one process (seal.train.cpu.executor).
    assert len(run.processes("EngineCore")) == 2
    assert run.processes("VLLM::Worker") == []
    [fork_server] = run.processes("seal.train.cpu.fork_server")
    assert {rank.ppid() for rank in run.processes("WorkerDict")} == {fork_server.pid}
    return end_of(run, "EngineCore")


@pytest.fixture(scope="module")
def rounds(without_engine: Killed) -> list[dict[str, object]]:
    """Of the first run, before the second one writes in their place."""
    return without_engine.finished.rounds()


@pytest.fixture(scope="module")
def without_rank(rounds: list[dict[str, object]]) -> Killed:
    """The same run goes on, as if it had ended before the checkpoint of step 2 was saved.

    From its start on, its service loses a worker process every two seconds. A trainer rank is
    killed in the update of step 3.
    """
    shutil.rmtree(ROOT / "experiments" / NAME / "checkpoints/global_step_2")
    (ROOT / "experiments" / NAME / "loop/phases.jsonl").unlink()
    run = ShortRun(NAME, OVERRIDES, steps=4, options=["--resume"])
    killed: list[int] = []
    # Before, the service has to come up.
    run.wait_for_phase("start", 0)
    run.kill_workers(killed)
    run.wait_for_phase("update", 3)
    ended = end_of(run, "WorkerDict")
    assert len(killed) > 5
    return ended


def test_two_ranks_and_two_engines_agree(without_engine: Killed) -> None:
    correlations = without_engine.finished.correlations()
    assert len(correlations) == 2
    assert all(value > 0.99999 for value in correlations)


def test_a_killed_engine_ends_the_run(without_engine: Killed) -> None:
    output = " ".join(without_engine.finished.output.split())
    assert without_engine.finished.code == 1, output
    assert "training failed: rollout engine" in output
    assert "has died: its engine process has ended" in output
    assert "steps up to 2 are saved" in output
    assert "all processes of the run have ended" in output
    assert without_engine.ended_after_s < NOTICED_WITHIN_S


def test_a_killed_rank_ends_the_run(without_rank: Killed) -> None:
    output = " ".join(without_rank.finished.output.split())
    assert without_rank.finished.code == 1, output
    # Ray's error, or the one of the other rank, which may come first.
    assert "(WorkerDict) has died: it was killed, or it crashed" in output
    assert "steps up to 2 are saved" in output
    assert "all processes of the run have ended" in output
    assert without_rank.ended_after_s < NOTICED_WITHIN_S


def test_a_killed_run_goes_on_where_its_checkpoint_was(
    rounds: list[dict[str, object]], without_rank: Killed
) -> None:
    first, second = without_rank.finished.rounds()[:2]
    assert [first["step"], second["step"]] == [1, 2]
    assert first == rounds[0]
    # The same interface, evolved anew by a service that had never heard of the run.
    assert second["interface_shown"] == rounds[1]["interface_shown"]
    assert second["interface_versions"] == [1]
    # Nobody noticed the deaths of the service's workers.
    assert (second["rollouts"], second["dropped_groups"]) == (ROLLOUTS, 0)
    # The data goes on where it was.
    assert second["task_ids"] == rounds[1]["task_ids"] != rounds[0]["task_ids"]
    logged = read_lines(without_rank.finished.folder / "loop/rollouts.jsonl")
    assert [line["step"] for line in logged if line["step"] <= 2] == sorted([1, 2] * ROLLOUTS)
