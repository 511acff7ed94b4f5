"""Full batches of whole groups: verl's loader, worker and a real queue; rewards of a script."""

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import transfer_queue as tq
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from played_groups import Script, left, real_queue, sampling
from verl.utils import tensordict_utils as tu

from seal.client.client import EnvironmentFault
from seal.launch.recipe import EXP, load_recipe
from seal.train.replay import WholeGroupReplayBuffer

pytestmark = [
    pytest.mark.filterwarnings("ignore:'set_vital' is deprecated"),  # torchdata's own call
    pytest.mark.filterwarnings("ignore::FutureWarning"),  # Ray's, about its accelerators
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # Ray leaves sockets to its end
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

FILTER = ("algorithm.filter_groups.enable=true", "algorithm.filter_groups.max_num_gen_batches=3")
SMALL = ("data.train_batch_size=4", "actor_rollout_ref.rollout.n=2")
ROWS = 32


@pytest.fixture(scope="module", autouse=True)
def queue() -> Iterator[None]:
    with real_queue():
        yield


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


def mixed(task: str, session: int) -> float:
    return float(session == 0)


def order_of(cache: Path) -> list[str]:
    """The tasks of the first epoch, in the loader's order."""
    with sampling(mixed, cache, *SMALL) as made:
        for _ in range(ROWS // made.batch_size):
            made.trained()
        return made.rollouts.submitted


def loses(*tasks: str, sessions: tuple[int, ...] = (1,)) -> Script:
    """Some rollouts of these tasks are lost, each time."""
    return lambda task, session: (
        None if task in tasks and session in sessions else mixed(task, session)
    )


# ---- lost groups ---------------------------------------------------------------------------


def test_without_losses_the_batches_are_the_loaders_and_the_queue_is_empty(cache: Path) -> None:
    with sampling(mixed, cache, *SMALL) as made:
        steps = [made.trained() for _ in range(ROWS // 4)]
        assert all(
            metrics == {"seal/dropped_groups": 0, "seal/refilled_groups": 0} for _, metrics in steps
        )
        order = made.rollouts.submitted
        expected = [sorted(order[first : first + 4]) for first in range(0, ROWS, 4)]
        assert [sorted(tasks) for tasks, _ in steps] == expected
        assert len(set(order)) == ROWS
        assert left() == {}


@pytest.mark.parametrize("sessions", [(1,), (0, 1)], ids=["one rollout", "all rollouts"])
def test_the_next_prompt_takes_the_place_of_a_group_that_lost_rollouts(
    cache: Path, sessions: tuple[int, ...], caplog: pytest.LogCaptureFixture
) -> None:
    order = order_of(cache)
    with sampling(loses(order[1], sessions=sessions), cache, *SMALL) as made:
        tasks, metrics = made.trained()
        assert sorted(tasks) == sorted([order[0], *order[2:5]])
        assert (metrics["seal/dropped_groups"], metrics["seal/refilled_groups"]) == (1, 1)
        assert left() == {}  # nothing of the lost group is left
        assert sorted(made.trained()[0]) == sorted(order[5:9])
    assert "dropped 1 groups that lost rollouts" in caplog.text


def test_an_epoch_that_ends_within_a_refill_goes_on_with_the_next_one(cache: Path) -> None:
    order = order_of(cache)
    with sampling(loses(order[30]), cache, *SMALL) as made:
        steps = [made.trained() for _ in range(ROWS // 4)]
        assert (made.trainer.steps_per_epoch, made.trainer.total_training_steps) == (8, 16)
        assert len(steps[-1][0]) == 4 and order[30] not in steps[-1][0]
        submitted = made.rollouts.submitted
        assert submitted[:ROWS] == order
        assert len(submitted) == ROWS + 1 and submitted[ROWS] in order


def test_too_many_lost_groups_end_the_run_and_are_not_replaced_without_end(cache: Path) -> None:
    order = order_of(cache)
    # One of four is the share that is allowed, its replacement included.
    with sampling(loses(order[0]), cache, *SMALL) as made:
        assert made.trained()[1]["seal/dropped_groups"] == 1
    said = (
        r"2 of 4 groups of step 1 \(train\) lost rollouts; a share of 0.25 is allowed "
        r"\(trainer.env_failure.max_share\)"
    )
    for lost in (order[:2], [order[0], order[4]]):
        with (
            sampling(loses(*lost), cache, *SMALL) as made,
            pytest.raises(EnvironmentFault, match=said),
        ):
            made.trained()
        assert len(made.rollouts.submitted) <= 5


def test_the_share_is_the_recipe_s(cache: Path) -> None:
    order = order_of(cache)
    share = "trainer.env_failure.max_share=0.5"
    with sampling(loses(*order[:2]), cache, *SMALL, share) as made:
        assert made.trained()[1]["seal/dropped_groups"] == 2
    with (
        sampling(loses(*order[:3]), cache, *SMALL, share) as made,
        pytest.raises(EnvironmentFault, match="3 of 4 groups .*a share of 0.5 is allowed"),
    ):
        made.trained()


def test_a_validation_that_lost_a_rollout_is_no_validation(cache: Path) -> None:
    for lost in ((), (1,)):

        def script(task: str, session: int, lost: tuple[int, ...] = lost) -> float | None:
            return None if session in lost else 1.0

        with sampling(script, cache, *SMALL, *FILTER) as made:
            made.trainer.config.actor_rollout_ref.rollout.val_kwargs.n = 2
            batch = made.trainer._next_train_batch(4)
            tu.assign_non_tensor_data(batch, "validate", True)
            tags = [{"is_prompt": True, "status": "pending", "global_steps": 0}] * 4
            tq.kv_batch_put(keys=list(batch["uid"]), partition_id="val", tags=tags)
            made.rollouts.generate_sequences(batch)
            sample = made.trainer.replay_buffer.sample
            if lost:
                with pytest.raises(EnvironmentFault, match="of 4 groups .*may lose none"):
                    sample(global_steps=0, partition_id="val", batch_size=4)
            else:  # groups without variance stay: a validation is never filtered
                assert len(sample(global_steps=0, partition_id="val", batch_size=4)[0]) == 8
            assert len(made.rollouts.submitted) == 4


# ---- groups without variance ------------------------------------------------------------------


def test_without_the_filter_groups_without_variance_stay(cache: Path) -> None:
    with sampling(lambda task, session: 1.0, cache, *SMALL) as made:
        tasks, metrics = made.trained()
        assert len(tasks) == len(made.rollouts.submitted) == 4
        assert "seal/filtered_groups" not in metrics


def test_the_filter_replaces_groups_that_teach_nothing(cache: Path) -> None:
    order = order_of(cache)
    uniform = {order[0]: 1.0, order[2]: 0.0}
    with sampling(lambda task, s: uniform.get(task, mixed(task, s)), cache, *SMALL, *FILTER) as one:
        tasks, metrics = one.trained()
        assert len(tasks) == 4 and not uniform.keys() & set(tasks)
        assert metrics["seal/filtered_groups"] == metrics["training/filter_groups/evicted_samples"]
        assert metrics["seal/filtered_groups"] == 2
        assert (metrics["seal/unfiltered_groups"], metrics["seal/dropped_groups"]) == (0, 0)
        assert metrics["seal/refilled_groups"] == len(one.rollouts.submitted) - 4 >= 2
        assert one.rollouts.submitted == order[: len(one.rollouts.submitted)]
        assert left() == {}  # verl's surplus is gone, too


@pytest.mark.parametrize("reward", [0.0, 1.0])
def test_a_policy_that_always_passes_or_always_fails_ends_its_steps(
    cache: Path, reward: float, caplog: pytest.LogCaptureFixture
) -> None:
    with sampling(lambda task, session: reward, cache, *SMALL, *FILTER) as made:
        for step in (1, 2):
            tasks, metrics = made.trained()
            assert len(tasks) == 4
            assert (metrics["seal/filtered_groups"], metrics["seal/unfiltered_groups"]) == (8, 4)
            assert len(made.rollouts.submitted) == step * 3 * 4
        assert left() == {}
    assert "4 of 4 groups have no variance" in caplog.text
    assert "max_num_gen_batches=3" in caplog.text


@given(st.lists(st.sampled_from(["mixed", "uniform", "lost"]), min_size=16, max_size=16))
@settings(
    deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_whatever_prompts_earn_a_batch_is_full_of_the_groups_that_teach_most(
    cache: Path, outcomes: list[str]
) -> None:
    """Or too many are lost; never more is generated than the bound and the replacements."""
    given_to: dict[str, str] = {}

    def script(task: str, session: int) -> float | None:
        outcome = given_to.setdefault(task, outcomes[len(given_to) % len(outcomes)])
        return {"mixed": float(session == 0), "uniform": 1.0, "lost": None}[outcome]

    share = "trainer.env_failure.max_share=0.5"
    with sampling(script, cache, *SMALL, *FILTER, share) as made:
        try:
            tasks, metrics = made.trained()
        except EnvironmentFault:
            seen = [given_to[task] for task in made.rollouts.submitted if task in given_to]
            assert seen.count("lost") > 2
            return
        kinds = [given_to[task] for task in tasks]
        submitted = len(made.rollouts.submitted)
        assert len(kinds) == 4 and "lost" not in kinds
        assert kinds.count("uniform") == metrics["seal/unfiltered_groups"]
        assert submitted == 4 + metrics["seal/refilled_groups"]
        assert submitted <= 3 * 4 + metrics["seal/dropped_groups"]
        if "uniform" in kinds:  # all that may be generated was
            assert submitted >= 3 * 4
        assert left() == {}


# ---- resuming ----------------------------------------------------------------------------------


@pytest.mark.parametrize("overrides", [(), FILTER], ids=["losses", "filter"])
@pytest.mark.parametrize("step", [1, 3, 7, 8, 9])
def test_a_resumed_run_goes_on_with_the_prompts_of_an_uninterrupted_one(
    cache: Path, step: int, overrides: tuple[str, ...]
) -> None:
    """Wherever it was saved: within the epoch, at its end (step 8 without refills), behind it."""
    order = order_of(cache)
    lost = {1: (order[1],), 3: (order[9], order[14])}.get(step % 4, ())

    def script(task: str, session: int) -> float | None:
        if task in lost and session == 1:
            return None
        return 1.0 if overrides and task in order[16:20] else mixed(task, session)

    share = "trainer.env_failure.max_share=0.5"
    with sampling(script, cache, *SMALL, *overrides, share) as whole:
        for _ in range(step):
            whole.trained()
        before = len(whole.rollouts.submitted)
        saved = pickle.dumps(whole.state())
        whole.trained()
        whole.trained()
        expected = whole.rollouts.submitted[before:]
    with sampling(script, cache, *SMALL, *overrides, share, state=pickle.loads(saved)) as resumed:
        resumed.trainer.global_steps = step
        resumed.trained()
        resumed.trained()
        found = resumed.rollouts.submitted
    # How many surplus prompts verl submits depends on which rollouts end first, not their order.
    common = min(len(expected), len(found))
    assert common >= 8
    assert found[:common] == expected[:common]
    if not overrides:
        assert found == expected


# ---- progress ----------------------------------------------------------------------------------


def test_progress_is_told_when_more_prompts_have_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    statuses = iter(
        [
            {"running": "ab", "pending": "c"},
            {"running": "b", "pending": "c", "finished": "a"},
            {"running": "b", "pending": "c", "finished": "a"},
            {"running": "c", "finished": "a", "failure": "b"},
        ]
    )
    listed: dict[str, dict[str, dict[str, Any]]] = {}

    def polled() -> dict[str, dict[str, dict[str, Any]]]:
        listed["val"] = {
            prompt: {"is_prompt": True, "global_steps": 0, "status": status}
            for status, prompts in next(statuses).items()
            for prompt in prompts
        }
        return listed

    monkeypatch.setattr(tq, "kv_list", polled)
    monkeypatch.setattr("seal.train.replay.PROGRESS_EVERY_S", 0.0)
    buffer = WholeGroupReplayBuffer(load_recipe(EXP / "SEAL.yaml", []), lambda groups: None)
    told: list[tuple[int, int]] = []
    buffer.on_progress = lambda ended, of: told.append((ended, of))
    for _ in range(4):
        buffer._sync_metadata_from_transfer_queue()
    assert told == [(1, 3), (2, 3)]


def test_groups_that_have_left_the_queue_count_as_ended(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seal.train.replay.PROGRESS_EVERY_S", 0.0)
    with sampling(lambda task, session: 1.0, cache, *SMALL, *FILTER) as made:
        told: list[tuple[int, int]] = []
        made.trainer.replay_buffer.on_progress = lambda ended, of: told.append((ended, of))
        made.trained()
        assert told == sorted(told) and told[-1] == (12, 12)
