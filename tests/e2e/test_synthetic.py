"""A short run on real and synthetic tasks, real in every part: pool, service, trainer, logs."""

import subprocess

import pandas as pd
import pytest
from short_run import ROLLOUTS, ROOT, Finished, ShortRun, read_lines

from seal.coevolution.drawing import Drawn, draw, weights
from seal.coevolution.rollout import Rollout
from seal.labels import Label
from seal.tasks.pools import pool_of, read_pool
from seal.train.state import LoopState, load
from seal.wire import from_json

POOL = "e2e"
STEPS = 2
SHARE, STEERING, SEED = 0.5, 4.0, 7
PROMPTS = ROLLOUTS // 8
E2E_EVAL = "experiments/e2e_synthetic_eval.parquet"

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def run() -> Finished:
    python = str(ROOT / ".venv-bfcl/bin/python")
    make = (
        f"-m env_service.environments.bfcl.synthesis make {POOL} --split data/bfcl_clean_split.json"
    )
    knobs = "--tasks 40 --classes GorillaFileSystem --categories base --turns 1-2 --calls 1"
    subprocess.run([python, *make.split(), *knobs.split()], cwd=ROOT, check=True)
    # The scenarios of the clean split's evaluation tasks are no seeds of the pool.
    some = ROOT / E2E_EVAL
    some.parent.mkdir(exist_ok=True)
    pd.read_parquet(ROOT / "data/bfcl_clean_eval.parquet").head(5).to_parquet(some, index=False)
    overrides = [
        f"seed={SEED}",
        f"data.synthetic_tasks={POOL}",
        f"data.synthetic_share={SHARE}",
        "data.synthetic_refresh=1",
        f"data.synthetic_steering={STEERING}",
        f"data.val_files={E2E_EVAL}",
        "trainer.val_before_train=False",
        "trainer.test_freq=-1",
        "seal.checkpoints.keep_best=false",
        "trainer.save_freq=1",
    ]
    finished = ShortRun("e2e_synthetic", overrides, STEPS).wait()
    assert finished.code == 0, finished.output
    return finished


def synthetic(line: dict[str, list[str]]) -> set[str]:
    return {task for task in line["task_ids"] if pool_of(task) == POOL}


def test_half_of_each_batch_is_synthetic(run: Finished) -> None:
    rounds = run.rounds()
    assert [line["step"] for line in rounds] == [1, 2]
    for line in rounds:
        assert {name: of["groups"] for name, of in line["sources"].items()} == {
            "real": PROMPTS // 2,
            "synthetic": PROMPTS // 2,
        }
        assert line["rollouts"] == ROLLOUTS
        assert f"synthetic ({PROMPTS // 2}) pass" in " ".join(run.output.split())


def test_the_tasks_are_those_of_seed_step_and_failures_of_real_tasks(run: Finished) -> None:
    """Drawn anew from the log: the first round alike, the second with the scores of the first."""
    pool, drawn = read_pool(POOL, ROOT), Drawn()
    targets = [task.targets for task in pool.rows]
    logged = read_lines(run.folder / "loop/rollouts.jsonl")
    for line in run.rounds():
        scores = {Label(name): score for name, score in line["scores"].items()}
        numbers, drawn = draw(
            drawn, weights(scores, targets, STEERING), PROMPTS // 2, SEED, line["step"]
        )
        assert synthetic(line) == {pool.rows[number].task_id for number in numbers}
        real = [
            rollout
            for rollout in (
                from_json(Rollout, one) for one in logged if one["step"] == line["step"]
            )
            if not rollout.synthetic
        ]
        failed = {label.value for rollout in real for label in rollout.labels}
        assert line["next_scores"].keys() <= failed
    first, second = run.rounds()
    assert first["scores"] == {}
    assert second["scores"] == first["next_scores"] != {}


def test_the_checkpoint_has_what_was_drawn(run: Finished) -> None:
    state: LoopState = load(run.folder / f"checkpoints/global_step_{STEPS}")
    assert state.drawing is not None
    assert state.drawing.pool_sha256 == read_pool(POOL, ROOT).tasks_sha256
    rows = read_pool(POOL, ROOT).rows
    assert {rows[number].task_id for number in state.drawing.drawn.tasks} == {
        task for line in run.rounds() for task in synthetic(line)
    }
