"""The whole loop, real in every part: service, vLLM, verl, Ray, from the launcher to the table."""

import itertools
import socket

import pandas as pd
import psutil
import pytest
from short_run import ROLLOUTS, ROOT, Finished, ShortRun, read_lines, words

from seal.coevolution.drawing import Drawn, draw, weights
from seal.coevolution.evolution import evolve
from seal.coevolution.interface import INITIAL
from seal.coevolution.rollout import Rollout
from seal.coevolution.weights import batch_weights
from seal.labels import Label
from seal.launch.recipe import load_recipe
from seal.settings.sections import read_settings
from seal.tasks.pools import pool_of, read_pool
from seal.train.state import LoopState, after_round, load, loop_config
from seal.wire import from_json

STEPS = 4
"""In the last one the rollout engine has the weights of the step before (stale_rollout)."""
PROMPTS = ROLLOUTS // 8
POOL = "quickstart"
E2E_EVAL = "experiments/e2e_eval.parquet"

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def run() -> Finished:
    # A few tasks of all suites: evaluating them all takes longer than training.
    real = pd.read_parquet(ROOT / "data/quickstart_eval.parquet")
    unseen = pd.read_parquet(ROOT / "data/quickstart_unseen_eval.parquet")
    some = ROOT / E2E_EVAL
    some.parent.mkdir(exist_ok=True)
    rows = [real.head(5), real.tail(5), unseen.head(5)]
    pd.concat(rows).to_parquet(some, index=False)
    overrides = [
        f"trainer.test_freq={STEPS}",
        f"data.val_files={E2E_EVAL}",
        "data.synthetic_share=0.5",
        "data.synthetic_refresh=1",
        "actor_rollout_ref.rollout.engine_kwargs.vllm.worker_extension_cls="
        "stale_rollout.StaleWorkerExtension",
    ]
    finished = ShortRun("e2e", overrides, STEPS).wait()
    assert finished.code == 0, finished.output
    return finished


def test_every_round_is_recorded_and_the_next_one_sees_its_interface(run: Finished) -> None:
    rounds = run.rounds()
    assert [line["step"] for line in rounds] == [1, 2, 3, 4]
    assert [line["interface"]["version"] for line in rounds] == [1, 2, 3, 4]
    assert [line["interface_versions"] for line in rounds] == [[0], [1], [2], [3]]
    assert [line["interface_shown"]["version"] for line in rounds] == [0, 1, 2, 3]
    assert all(line["rollouts"] == ROLLOUTS for line in rounds)


def test_every_dialogue_and_every_label_is_kept(run: Finished) -> None:
    labels = read_lines(run.folder / "loop" / "rollouts.jsonl")
    assert [line["step"] for line in labels] == sorted([1, 2, 3, 4] * ROLLOUTS)
    assert all(turn["reason"] for line in labels for turn in line["turns"])
    for step in range(1, STEPS + 1):
        dialogues = read_lines(run.folder / "rollouts" / f"{step}.jsonl")
        assert len(dialogues) == ROLLOUTS
        assert all("assistant" in line["input"] for line in dialogues)


def test_labels_weigh_the_advantages_within_the_clip(run: Finished) -> None:
    for line in run.rounds():
        assert 0.5 <= line["weights"][0] <= line["weights"][-1] <= 2.0
        before = line["metrics"]["seal/advantage/mean_abs_before"]
        after = line["metrics"]["seal/advantage/mean_abs_after"]
        if before > 0:
            assert 0.5 <= after / before <= 2.0
    assert any(weight != 1.0 for line in run.rounds() for weight in line["weights"])


def test_the_weights_reach_the_rollout_engine(run: Finished) -> None:
    """And where they are not loaded, in the last step, the correlation shows it."""
    *loaded, stale = run.correlations()
    assert len(loaded) == STEPS - 1
    assert all(value > 0.99999 for value in loaded)
    # One update makes another policy, by far more than by rounding.
    assert stale < 0.9999


def test_profile_interface_and_weights_follow_from_the_rollouts(run: Finished) -> None:
    """All rounds computed anew from the labels in the log."""
    recipe = load_recipe(ROOT / "exp/quickstart.yaml", [])
    own = read_settings(recipe).seal
    config = loop_config(own)
    state, shown = LoopState(utilities=config.weights.utilities), INITIAL
    logged = read_lines(run.folder / "loop" / "rollouts.jsonl")
    for line in run.rounds():
        rollouts = [from_json(Rollout, one) for one in logged if one["step"] == line["step"]]
        weights = batch_weights(rollouts, ["?"] * len(rollouts), state.utilities, config.weights)
        written = [one["weights"] for one in logged if one["step"] == line["step"]]
        assert [list(by_turn) for by_turn in weights] == written
        assert line["interface_shown"]["content_hash"] == shown.content_hash()
        state = after_round(state, line["step"], rollouts, shown, config)
        shown = evolve(shown, state.profile, own.interface)
        assert line["profile"] == state.profile.to_json()
        assert line["total"] == state.history.total.to_json()
        assert line["interface"]["interface"] == shown.to_json()


def synthetic(line: dict[str, list[str]]) -> set[str]:
    return {task for task in line["task_ids"] if pool_of(task) == POOL}


def test_half_of_each_batch_is_synthetic(run: Finished) -> None:
    rounds = run.rounds()
    for line in rounds:
        assert {name: of["groups"] for name, of in line["sources"].items()} == {
            "real": PROMPTS // 2,
            "synthetic": PROMPTS // 2,
        }
        assert line["rollouts"] == ROLLOUTS
        assert f"synthetic ({PROMPTS // 2}) pass" in " ".join(run.output.split())


def test_the_tasks_are_those_of_seed_step_and_failures_of_real_tasks(run: Finished) -> None:
    """Drawn anew from the log: the first round alike, the second with the scores of the first."""
    recipe = load_recipe(ROOT / "exp/quickstart.yaml", [])
    seed, data = int(recipe.seed), read_settings(recipe).data
    pool, drawn = read_pool(POOL, ROOT), Drawn()
    targets = [task.targets for task in pool.rows]
    logged = read_lines(run.folder / "loop/rollouts.jsonl")
    failed: list[set[str]] = []
    for line in run.rounds():
        scores = {Label(name): score for name, score in line["scores"].items()}
        numbers, drawn = draw(
            drawn,
            weights(scores, targets, data.synthetic_steering),
            PROMPTS // 2,
            seed,
            line["step"],
        )
        assert synthetic(line) == {pool.rows[number].task_id for number in numbers}
        real = [
            rollout
            for rollout in (
                from_json(Rollout, one) for one in logged if one["step"] == line["step"]
            )
            if not rollout.synthetic
        ]
        failed.append({label.value for rollout in real for label in rollout.labels})
        # C_t covers two rounds here.
        assert line["next_scores"].keys() <= set().union(*failed[-2:])
    rounds = run.rounds()
    assert rounds[0]["scores"] == {} != rounds[-1]["scores"]
    for line, following in itertools.pairwise(rounds):
        assert following["scores"] == line["next_scores"]


def test_the_checkpoint_has_what_was_drawn(run: Finished) -> None:
    state: LoopState = load(run.folder / f"checkpoints/global_step_{STEPS}")
    assert state.drawing is not None
    assert state.drawing.pool_sha256 == read_pool(POOL, ROOT).tasks_sha256
    rows = read_pool(POOL, ROOT).rows
    assert {rows[number].task_id for number in state.drawing.drawn.tasks} == {
        task for line in run.rounds() for task in synthetic(line)
    }


def test_evaluation_sees_the_untouched_benchmark(run: Finished) -> None:
    for step in (0, STEPS):
        lines = run.validation(step)
        assert {line["suite"] for line in lines} == {"fixed", "benchmark", "unseen"}
        assert {line["interface_version"] for line in lines} == {0}


def test_the_report_shows_before_and_after(run: Finished) -> None:
    for title in ("Pass rate, suite 'fixed'", "Turns by label", "Learning interface", "Cost"):
        assert title in run.output


def test_nothing_is_left_running(run: Finished) -> None:
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", run.port)) != 0
    ours = [p for p in psutil.process_iter() if str(ROOT / "launcher_record/e2e") in str(words(p))]
    assert ours == []
