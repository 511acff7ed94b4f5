"""Synthetic tasks among a step's prompts: verl's loader and a real queue; rewards of a script."""

import math
import pickle
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from labelled import rollout
from played_groups import Sampling, Script, left, real_queue, sampling
from pool_files import pool_rows, write_pool

from seal.coevolution.interface import INITIAL
from seal.coevolution.rollout import Rollout
from seal.labels import Label
from seal.tasks.pools import pool_of, read_pool
from seal.train.errors import TrainingError
from seal.train.state import after_round, loop_config
from seal.train.synthetic import SyntheticPrompts, prompts_of_pool

pytestmark = [
    pytest.mark.filterwarnings("ignore:'set_vital' is deprecated"),  # torchdata's own call
    pytest.mark.filterwarnings("ignore::FutureWarning"),  # Ray's, about its accelerators
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # Ray leaves sockets to its end
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

SMALL = ("data.train_batch_size=4", "actor_rollout_ref.rollout.n=2")
FILTER = ("algorithm.filter_groups.enable=true", "algorithm.filter_groups.max_num_gen_batches=3")
LOSSES = "trainer.env_failure.max_share=1.0"
"""At the end of a pass over the small pool a lost task may be drawn again in its own place."""
POOL = 24


def with_pool(share: float, *more: str) -> tuple[str, ...]:
    return (*SMALL, "data.synthetic_tasks=some", f"data.synthetic_share={share}", *more)


STEERED = ("data.synthetic_refresh=2", "data.synthetic_steering=4.0")


@pytest.fixture(scope="module", autouse=True)
def queue() -> Iterator[None]:
    with real_queue():
        yield


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project folder with a pool."""
    write_pool(tmp_path, "some", pool_rows("some", POOL))
    monkeypatch.setattr("seal.train.synthetic.ROOT", tmp_path)
    return tmp_path


def mixed(task: str, session: int) -> float:
    return float(session == 0)


def synthetic(tasks: list[str]) -> list[str]:
    return [task for task in tasks if pool_of(task) == "some"]


def real(tasks: list[str]) -> list[str]:
    return [task for task in tasks if pool_of(task) is None]


# ---- how many --------------------------------------------------------------------------------


@given(st.integers(1, 100), st.integers(1, 64), st.integers(1, 300))
def test_the_share_is_exact_over_steps(percent: int, batch_size: int, steps: int) -> None:
    share = percent / 100
    counts = [prompts_of_pool(step, share, batch_size) for step in range(1, steps + 1)]
    assert sum(counts) == math.floor(Fraction(percent, 100) * batch_size * steps)
    assert all(0 <= count <= batch_size for count in counts)
    assert max(counts) - min(counts) <= 1


def test_a_share_is_the_number_that_is_written() -> None:
    assert math.floor(0.29 * 100) == 28  # in floating point
    assert [prompts_of_pool(step, 0.29, 100) for step in (1, 2, 3)] == [29, 29, 29]
    assert [prompts_of_pool(step, 1, 4) for step in (1, 2)] == [4, 4]


@pytest.mark.parametrize(
    ("share", "counts"), [(0.5, [2, 2, 2]), (0.3, [1, 1, 1]), (0.1, [0, 0, 1])]
)
def test_a_batch_has_its_share_and_the_loader_gives_the_rest_in_its_order(
    cache: Path, share: float, counts: list[int]
) -> None:
    with sampling(mixed, cache, *SMALL) as without:
        for _ in counts:
            without.trained()
        order, steps = without.rollouts.submitted, without.trainer.total_training_steps
    with sampling(mixed, cache, *with_pool(share)) as made:
        batches = [made.trained()[0] for _ in counts]
        assert [len(synthetic(batch)) for batch in batches] == counts
        assert all(len(batch) == 4 for batch in batches)
        submitted = real(made.rollouts.submitted)
        assert submitted == order[: len(submitted)]
        assert made.trainer.total_training_steps == steps
        assert left() == {}


def test_with_share_1_the_loader_is_not_asked_and_a_pass_has_every_task_once(cache: Path) -> None:
    with sampling(mixed, cache, *with_pool(1)) as made:
        before = pickle.dumps(made.trainer.train_dataloader.state_dict())
        batches = [made.trained()[0] for _ in range(POOL // 4)]
        assert all(len(synthetic(batch)) == 4 for batch in batches)
        assert len({task for batch in batches for task in batch}) == POOL
        assert pickle.dumps(made.trainer.train_dataloader.state_dict()) == before
        assert made.trainer._state.drawing.drawn.passes == 0
        made.trained()
        assert made.trainer._state.drawing.drawn.passes == 1


def test_without_a_pool_the_state_has_no_drawing(cache: Path) -> None:
    with sampling(mixed, cache, *SMALL) as made:
        made.trained()
        assert made.trainer._state.drawing is None


# ---- lost and filtered groups ----------------------------------------------------------------


@pytest.mark.parametrize("kind", [synthetic, real])
def test_a_lost_group_is_replaced_by_one_of_its_kind(cache: Path, kind: Any) -> None:
    with sampling(mixed, cache, *with_pool(0.5)) as whole:
        first = whole.trained()[0]
    lost = kind(whole.rollouts.submitted)[0]

    def script(task: str, session: int) -> float | None:
        return None if task == lost else mixed(task, session)

    with sampling(script, cache, *with_pool(0.5), LOSSES) as made:
        tasks, metrics = made.trained()
        assert metrics["seal/dropped_groups"] == 1
        assert lost in first and lost not in tasks
        assert (len(synthetic(tasks)), len(real(tasks))) == (2, 2)
        # The draw goes on: what replaces the lost one is not drawn again.
        again = made.trained()[0]
        assert not set(synthetic(tasks)) & set(synthetic(again))


def test_filtered_groups_are_replaced_by_their_kind(cache: Path) -> None:
    """The pool's tasks all pass: only prompts of the pool are asked for in their place."""

    def script(task: str, session: int) -> float:
        return 1.0 if pool_of(task) else mixed(task, session)

    with sampling(script, cache, *with_pool(0.5), *FILTER) as made:
        tasks, metrics = made.trained()
        assert len(real(made.rollouts.submitted)) == 2
        assert len(synthetic(made.rollouts.submitted)) == 2 + metrics["seal/refilled_groups"]
        assert metrics["seal/refilled_groups"] == 8  # all that may be generated
        assert (len(synthetic(tasks)), len(real(tasks))) == (2, 2)


# ---- resuming --------------------------------------------------------------------------------


def fails(task: str) -> list[Rollout]:
    """Rollouts of a task: those of the benchmark skip calls, those of the pool leave a state."""
    label = Label.STATE_MISMATCH if pool_of(task) else Label.MISSING_TOOL_CALL
    return [rollout([label], task_id=task)]


def trained(made: Sampling) -> list[str]:
    """A step with its labels in the state, as in the trainer's `step`."""
    tasks = made.trained()[0]
    trainer = made.trainer
    settings = trainer._settings
    config = loop_config(settings.seal, settings.data.synthetic_refresh)
    rollouts = [one for task in tasks for one in fails(task)]
    trainer._state = after_round(trainer._state, trainer.global_steps, rollouts, INITIAL, config)
    return tasks


@pytest.mark.parametrize("step", [1, 2, 3, 6, 7])
@pytest.mark.parametrize(
    ("share", "more"),
    [(0.5, STEERED), (0.3, (*STEERED, "data.synthetic_choice=shuffled")), (1, STEERED), (0.5, ())],
    ids=["half", "shuffled", "alone", "uniform"],
)
def test_a_resumed_run_draws_what_an_uninterrupted_one_draws(
    cache: Path, step: int, share: float, more: tuple[str, ...]
) -> None:
    """Also where a group is lost before, and one behind the checkpoint; scores included."""
    overrides = (*with_pool(share, *more), LOSSES)

    def script(lost: set[str]) -> Script:
        return lambda task, session: None if task in lost else mixed(task, session)

    with sampling(mixed, cache, *overrides) as plain:
        batches = [trained(plain) for _ in range(step + 1)]
    lost = {synthetic(batches[-2] + batches[-1])[0], synthetic(batches[-1])[-1]}
    with sampling(script(lost), cache, *overrides) as whole:
        for _ in range(step):
            trained(whole)
        before, saved = len(whole.rollouts.submitted), pickle.dumps(whole.state())
        expected = [sorted(trained(whole)) for _ in range(3)]
        submitted, state = whole.rollouts.submitted[before:], whole.trainer._state
    with sampling(script(lost), cache, *overrides, state=pickle.loads(saved)) as resumed:
        resumed.trainer.global_steps = step
        assert [sorted(trained(resumed)) for _ in range(3)] == expected
        assert resumed.rollouts.submitted == submitted
        assert resumed.trainer._state == state
    assert bool(state.drawing.scores) == bool(more)


def test_another_pool_than_that_of_the_checkpoint_is_refused(cache: Path, project: Path) -> None:
    with sampling(mixed, cache, *with_pool(0.5)) as made:
        made.trained()
        made.trainer._synthetic._pool = other = read_pool("some", project)
        object.__setattr__(other, "tasks_sha256", "0" * 64)
        with pytest.raises(TrainingError, match="trained on another pool 'some'.*make that one"):
            made.trained()


# ---- steering --------------------------------------------------------------------------------


def drawn_by_target(cache: Path, project: Path, *more: str) -> list[float]:
    """Shares of the tasks drawn in two steps that invite what real and synthetic ones fail at."""
    with sampling(mixed, cache, *with_pool(0.5, *more)) as made:
        trained(made)
        assert made.trainer._state.drawing.scores == {Label.MISSING_TOOL_CALL: 1.0}
        before = len(made.rollouts.submitted)
        for _ in range(2):
            trained(made)
        targets = {task.task_id: task.targets for task in read_pool("some", project).rows}
        drawn = [targets[task] for task in synthetic(made.rollouts.submitted[before:])]
    return [
        sum(label in some for some in drawn) / len(drawn)
        for label in (Label.MISSING_TOOL_CALL, Label.STATE_MISMATCH)
    ]


def test_failures_of_real_tasks_steer_and_those_of_synthetic_ones_do_not(
    cache: Path, project: Path
) -> None:
    strong = ("data.synthetic_refresh=1", "data.synthetic_steering=1e6")
    assert drawn_by_target(cache, project, *strong) == [1.0, 0.0]
    wanted, _ = drawn_by_target(cache, project, *strong, "data.synthetic_choice=shuffled")
    assert wanted < 1.0


# ---- what is refused, and what stays ---------------------------------------------------------


def test_a_missing_pool_ends_the_start(cache: Path, project: Path) -> None:
    (project / "data/synthetic/some.jsonl").unlink()
    with pytest.raises(TrainingError, match="no pool 'some'.*synthesis make some"):
        Sampling(mixed, cache, with_pool(0.5))


def test_training_files_with_other_columns_are_refused(cache: Path, project: Path) -> None:
    with sampling(mixed, cache, *SMALL) as made:
        training = made.trainer.train_dataset
        training.dataframe = training.dataframe.remove_columns("ability")
        with pytest.raises(TrainingError, match="data.train_files have the columns agent_name, da"):
            SyntheticPrompts(read_pool("some", project), made.trainer._settings, training)


def test_a_validation_has_the_same_rows_with_and_without_synthetic_tasks(cache: Path) -> None:
    rows = []
    for overrides in (SMALL, with_pool(0.5, *STEERED), with_pool(1)):
        with sampling(mixed, cache, *overrides) as made:
            made.trained()
            (batch,) = made.trainer.val_dataloader
            rows.append([row["task_id"] for row in batch["extra_info"]])
            assert made.trainer.val_dataset.dataframe.to_list() == list(
                made.trainer.val_dataset.dataframe
            )
    assert rows[0] == rows[1] == rows[2]
    assert synthetic(rows[0]) == [] and len(rows[0]) == 32
