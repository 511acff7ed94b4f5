"""What is drawn from a pool of synthetic tasks, and how failures steer it."""

import json
import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from labelled import rollout

from seal.coevolution.drawing import (
    Drawing,
    Drawn,
    dealt_out,
    draw,
    scores_of,
    steering_rollouts,
    weights,
)
from seal.coevolution.profile import EMPTY, ProfileHistory, ProfileWindow, profile_of
from seal.coevolution.rollout import Rollout
from seal.labels import FAILURES, Label

LABELS = st.sampled_from(list(Label))
ROLLOUTS = st.lists(
    st.builds(
        lambda labels, reward: rollout(labels, reward),
        st.lists(LABELS, min_size=1, max_size=4),
        st.sampled_from([0.0, 0.25, 1.0]),
    ),
    max_size=12,
)
TARGETS = st.lists(st.lists(LABELS, max_size=4).map(tuple), min_size=1, max_size=20)
WEIGHTS = st.lists(st.floats(1.0, 5.0), min_size=1, max_size=30)
SCORES = st.dictionaries(st.sampled_from(FAILURES), st.floats(0.01, 1.0), min_size=1).map(
    lambda raw: {label: value / math.fsum(raw.values()) for label, value in raw.items()}
)


# ---- scores and weights --------------------------------------------------------------------


@given(ROLLOUTS)
def test_scores_are_shares_of_unsolved_failures(rollouts: list[Rollout]) -> None:
    scores = scores_of(profile_of(1, rollouts))
    assert all(label in FAILURES and 0 < score <= 1 for label, score in scores.items())
    assert not scores or math.isclose(math.fsum(scores.values()), 1.0)
    failed = any(label in FAILURES and one.reward < 1.0 for one in rollouts for label in one.labels)
    assert bool(scores) == failed


def test_a_solved_failure_is_wanted_less_and_a_passed_one_not_at_all() -> None:
    rollouts = [
        # Equally frequent; trajectories with the first earn 0.5 in the mean, with the second 0.
        rollout([Label.STATE_MISMATCH], 0.5),
        rollout([Label.MISSING_TOOL_CALL], 0.0),
        # In trajectories that pass in full.
        rollout([Label.SPURIOUS_TOOL_CALL], 1.0),
    ]
    scores = scores_of(profile_of(1, rollouts))
    assert scores == pytest.approx({Label.STATE_MISMATCH: 1 / 3, Label.MISSING_TOOL_CALL: 2 / 3})
    assert scores_of(EMPTY) == {}


@given(SCORES, TARGETS, st.floats(0.0, 1e6))
def test_weights_are_bounded_whatever_a_task_invites(
    scores: dict[Label, float], targets: list[tuple[Label, ...]], steering: float
) -> None:
    found = weights(scores, targets, steering)
    assert len(found) == len(targets)
    assert all(1 <= weight <= 1 + steering for weight in found)
    for labels, weight in zip(targets, found, strict=True):
        # A label that is named twice counts once, and another target never lowers a weight.
        assert weights(scores, [(*labels, *labels)], steering) == [weight]
        assert weights(scores, [(*labels, *FAILURES)], steering)[0] >= weight
    assert weights({}, targets, steering) == [1.0] * len(targets)


@given(TARGETS, st.integers(0, 2**32 - 1))
def test_the_control_deals_the_same_targets_out_to_other_tasks(
    targets: list[tuple[Label, ...]], seed: int
) -> None:
    dealt = dealt_out(targets, seed)
    assert Counter(dealt) == Counter(targets)
    assert dealt == dealt_out(targets, seed)


def test_the_control_moves_targets() -> None:
    targets = [(label,) for label in Label] * 3
    assert dealt_out(targets, 1) != targets
    assert dealt_out(targets, 1) != dealt_out(targets, 2)


def test_synthetic_rollouts_steer_only_where_no_real_one_is() -> None:
    real = rollout([Label.PASS], task_id="multi_turn_base_1")
    drawn = rollout([Label.PASS], task_id="synthetic_a_000001_7")
    assert list(steering_rollouts([drawn, real, drawn])) == [real]
    assert list(steering_rollouts([drawn, drawn])) == [drawn, drawn]


# ---- the draw ----------------------------------------------------------------------------------


@given(WEIGHTS, st.lists(st.integers(0, 12), max_size=8), st.integers(0, 2**32 - 1))
def test_no_task_comes_twice_in_a_pass(
    task_weights: list[float], counts: list[int], seed: int
) -> None:
    drawn, passes = Drawn(), {0: list[int]()}
    for step, count in enumerate(counts, 1):
        before = drawn
        tasks, drawn = draw(before, task_weights, count, seed, step)
        assert len(tasks) == count
        assert draw(before, task_weights, count, seed, step) == (tasks, drawn)
        # The tasks of this step that belong to the pass that has not ended.
        passes.setdefault(drawn.passes, []).extend(
            tasks[-len(drawn.tasks) :] if drawn.passes > before.passes else tasks
        )
        assert tuple(passes[drawn.passes]) == drawn.tasks
        assert len(set(drawn.tasks)) == len(drawn.tasks)
        assert set(tasks) <= set(range(len(task_weights)))


@given(WEIGHTS, st.integers(0, 40), st.integers(0, 40), st.integers(0, 100))
def test_a_step_that_asks_twice_gets_what_it_would_have_got_at_once(
    task_weights: list[float], first: int, second: int, seed: int
) -> None:
    at_once = draw(Drawn(), task_weights, first + second, seed, 3)
    some, drawn = draw(Drawn(), task_weights, first, seed, 3)
    more, drawn = draw(drawn, task_weights, second, seed, 3)
    assert ([*some, *more], drawn) == at_once


def test_a_pass_has_every_task_or_half_of_them_where_weights_differ() -> None:
    tasks, drawn = draw(Drawn(), [1.0] * 7, 14, 1, 1)
    assert sorted(tasks[:7]) == sorted(tasks[7:]) == list(range(7))
    assert (drawn.passes, len(drawn.tasks)) == (1, 7)
    tasks, drawn = draw(Drawn(), [1.0] * 6 + [5.0], 9, 1, 1)
    assert (drawn.passes, len(drawn.tasks)) == (2, 1)
    # New weights end a pass in which more than half has been drawn.
    _, drawn = draw(Drawn(), [1.0] * 7, 5, 1, 1)
    _, drawn = draw(drawn, [1.0] * 6 + [5.0], 1, 1, 2)
    assert (drawn.passes, len(drawn.tasks)) == (1, 1)


def test_steps_and_seeds_draw_differently() -> None:
    firsts = {
        tuple(draw(Drawn(), [1.0] * 50, 5, seed, step)[0]) for seed in (1, 2) for step in (1, 2)
    }
    assert len(firsts) == 4


def test_the_first_task_comes_in_proportion_to_its_weight() -> None:
    task_weights = [1.0, 1.0, 2.0, 4.0]
    draws = 8000
    counts = Counter(draw(Drawn(), task_weights, 1, seed, 1)[0][0] for seed in range(draws))
    for number, weight in enumerate(task_weights):
        share = weight / sum(task_weights)
        assert abs(counts[number] / draws - share) < 4 * math.sqrt(share * (1 - share) / draws)


def test_the_second_task_comes_in_proportion_to_the_weights_that_are_left() -> None:
    task_weights = [1.0, 1.0, 2.0, 4.0, 1.0, 1.0]
    pairs = Counter(tuple(draw(Drawn(), task_weights, 2, seed, 1)[0]) for seed in range(8000))
    after_3 = {pair[1]: times for pair, times in pairs.items() if pair[0] == 3}
    total = sum(after_3.values())
    # 2 of the 6 that are left.
    assert abs(after_3[2] / total - 1 / 3) < 4 * math.sqrt(2 / 9 / total)


# ---- what a checkpoint keeps ---------------------------------------------------------------------


def failed(label: Label) -> list[Rollout]:
    return [rollout([label])] * 4


def test_scores_are_made_anew_every_few_rounds_from_the_window() -> None:
    window, drawing = ProfileWindow(window_rounds=2), Drawing("hash")
    seen = []
    labels = (Label.STATE_MISMATCH, Label.MISSING_TOOL_CALL, Label.ARGUMENT_MISMATCH)
    for step in range(1, 5):
        profile = profile_of(step, failed(labels[step % 3]))
        drawing = drawing.after(profile, window, refresh=2)
        seen.append(dict(drawing.scores))
    # Round 1: none yet. Round 2: labels 1 and 2. Round 3: as before. Round 4: labels 0 and 1.
    first = {Label.MISSING_TOOL_CALL: 0.5, Label.ARGUMENT_MISMATCH: 0.5}
    second = {Label.STATE_MISMATCH: 0.5, Label.MISSING_TOOL_CALL: 0.5}
    assert seen == [{}, first, first, second]


@given(SCORES, WEIGHTS, st.integers(0, 40), ROLLOUTS)
def test_a_drawing_survives_json(
    scores: dict[Label, float],
    task_weights: list[float],
    count: int,
    rollouts: list[Rollout],
) -> None:
    history = ProfileHistory().after(profile_of(1, rollouts), ProfileWindow())
    drawing = Drawing("hash", draw(Drawn(), task_weights, count, 1, 1)[1], scores, history)
    read = Drawing.from_json(json.loads(json.dumps(drawing.to_json())))
    assert read == drawing
    assert draw(read.drawn, task_weights, 5, 1, 2) == draw(drawing.drawn, task_weights, 5, 1, 2)


@pytest.mark.parametrize(
    "damage",
    [{"drawn": None}, {"scores": {"laziness": 1.0}}, {"drawn": {"passes": 0}}, {"more": 1}],
)
def test_a_damaged_drawing_is_refused(damage: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"drawing|laziness"):
        Drawing.from_json({**Drawing("hash").to_json(), **damage})
