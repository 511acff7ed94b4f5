"""Labels to the weights of a batch."""

import math
import random
from dataclasses import replace
from statistics import fmean
from typing import Any, TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from labelled import rollout, turn

from seal.coevolution.rollout import Rollout
from seal.coevolution.weights import (
    UTILITIES,
    WeightConfig,
    applies,
    batch_weights,
    mean_utility,
    trajectory_weight,
    turn_weights,
)
from seal.labels import EXCLUDED, FAILURES, Label
from seal.wire import TurnDiagnosis

# Run times on a shared machine say nothing; what is slow is tested by itself.
UNTIMED = settings(deadline=None)

CONFIG = WeightConfig()
ONES = dict.fromkeys(UTILITIES, 1.0)

turn_lists = st.lists(st.builds(turn, st.sampled_from(Label), st.booleans()), max_size=12)
batches = st.lists(
    st.tuples(turn_lists, st.sampled_from(["g1", "g2"]), st.sampled_from([0.0, 0.5, 1.0])),
    min_size=1,
    max_size=8,
)
Batch: TypeAlias = list[tuple[list[TurnDiagnosis], str, float]]
"""Turns, group and reward of each trajectory."""
configs = st.builds(
    WeightConfig,
    w_min=st.floats(0.01, 1.0),
    w_max=st.floats(1.0, 10.0),
    scope=st.sampled_from(["trajectory", "turn"]),
    normalize=st.sampled_from(["none", "group", "batch", "balanced"]),
    cascade_share=st.floats(0, 1),
)


def turns(*labels: Label) -> list[TurnDiagnosis]:
    return [turn(label) for label in labels]


def failed(*trajectories: list[TurnDiagnosis]) -> list[Rollout]:
    return [rollout(one) for one in trajectories]


# ---- one trajectory ----------------------------------------------------------------------


def test_the_weight_is_the_expected_utility() -> None:
    labels = [Label.PASS] * 3 + [Label.INVALID_TOOL_CALL]
    weight = trajectory_weight(turns(*labels), UTILITIES, CONFIG)
    assert weight == pytest.approx((3 * 1.0 + 2.0) / 4)


def test_the_weight_is_clipped_and_the_mean_utility_is_not() -> None:
    config = WeightConfig(w_min=0.9, w_max=1.5)
    heavy, light = turns(Label.INVALID_TOOL_CALL), turns(Label.INSTANCE_MISMATCH)
    assert trajectory_weight(heavy, UTILITIES, config) == 1.5
    assert trajectory_weight(light, UTILITIES, config) == 0.9
    assert mean_utility(heavy, UTILITIES, 1.0) == 2.0
    assert mean_utility(light, UTILITIES, 1.0) == 0.6


def test_the_utilities_are_those_given_and_not_the_base() -> None:
    given_now = {**UTILITIES, Label.PASS: 1.25}
    assert trajectory_weight(turns(Label.PASS), given_now, CONFIG) == 1.25
    assert turn_weights(turns(Label.PASS), given_now, CONFIG) == (1.25,)


def test_without_labels_that_count_the_weight_is_exactly_one() -> None:
    config = WeightConfig(w_min=1.5, w_max=2.0, cascade_share=0.0)
    follows = turn(Label.STATE_MISMATCH, cascade=True)
    for none_counts in ([], turns(*EXCLUDED), [follows]):
        assert trajectory_weight(none_counts, UTILITIES, config) == 1.0
        assert mean_utility(none_counts, UTILITIES, 0.0) == 1.0


def test_excluded_labels_do_not_dilute() -> None:
    counted = turns(Label.MISSING_TOOL_CALL)
    assert trajectory_weight([*counted, *turns(*EXCLUDED)], UTILITIES, CONFIG) == 1.5


def test_a_cascade_turn_counts_with_its_share() -> None:
    failed = turn(Label.INVALID_TOOL_CALL)
    follows = turn(Label.INSTANCE_MISMATCH, cascade=True)
    expected = {0.0: 2.0, 0.5: (2.0 + 0.5 * 0.6) / 1.5, 1.0: (2.0 + 0.6) / 2}
    for share, weight in expected.items():
        config = WeightConfig(cascade_share=share)
        assert trajectory_weight([failed, follows], UTILITIES, config) == pytest.approx(weight)


@UNTIMED
@given(turn_lists, configs)
def test_the_weight_is_within_bounds(labeled: list[TurnDiagnosis], config: WeightConfig) -> None:
    assert config.w_min <= trajectory_weight(labeled, UTILITIES, config) <= config.w_max
    for weight in turn_weights(labeled, UTILITIES, config):
        assert config.w_min <= weight <= config.w_max


@UNTIMED
@given(turn_lists, configs, st.randoms(use_true_random=False))
def test_the_order_of_turns_does_not_matter(
    labeled: list[TurnDiagnosis], config: WeightConfig, rng: random.Random
) -> None:
    shuffled = list(labeled)
    rng.shuffle(shuffled)
    assert trajectory_weight(shuffled, UTILITIES, config) == trajectory_weight(
        labeled, UTILITIES, config
    )


# ---- turns -------------------------------------------------------------------------------


def test_a_turn_weighs_its_own_utility() -> None:
    labels = (Label.PASS, Label.SPURIOUS_TOOL_CALL, Label.REFERENCE_ERROR)
    config = WeightConfig(w_min=1.2, w_max=1.6)
    assert turn_weights(turns(*labels), UTILITIES, config) == (1.2, 1.6, 1.0)
    assert turn_weights(turns(*labels), UTILITIES, CONFIG) == (1.0, 2.0, 1.0)


def test_a_cascade_turn_moves_towards_one() -> None:
    follows = [turn(Label.INVALID_TOOL_CALL, cascade=True)]
    for share, weight in ((0.0, 1.0), (0.5, 1.5), (1.0, 2.0)):
        config = WeightConfig(cascade_share=share)
        assert turn_weights(follows, UTILITIES, config) == (weight,)


@UNTIMED
@given(st.sampled_from(Label), st.integers(1, 5), configs)
def test_with_one_label_a_turn_weighs_what_the_trajectory_does(
    label: Label, count: int, config: WeightConfig
) -> None:
    same = turns(*[label] * count)
    weight = pytest.approx(trajectory_weight(same, UTILITIES, config))
    assert turn_weights(same, UTILITIES, config) == (weight,) * count


# ---- batches -----------------------------------------------------------------------------


def test_a_trajectory_without_turns_has_one_weight() -> None:
    for config in (WeightConfig(scope="trajectory"), WeightConfig(scope="turn")):
        assert batch_weights(failed([]), ["g"], UTILITIES, config) == [(1.0,)]


def test_the_scope_decides_what_a_turn_gets() -> None:
    batch = failed(turns(Label.PASS, Label.INVALID_TOOL_CALL))
    assert batch_weights(batch, ["g"], UTILITIES, CONFIG) == [(1.5, 1.5)]
    own = WeightConfig(scope="turn")
    assert batch_weights(batch, ["g"], UTILITIES, own) == [(1.0, 2.0)]


def test_each_group_is_normalised_by_itself() -> None:
    invalid = turns(Label.INVALID_TOOL_CALL)
    batch = failed(turns(Label.PASS), invalid, invalid)
    weights = batch_weights(batch, ["a", "a", "b"], UTILITIES, WeightConfig(normalize="group"))
    assert weights == [(1.0 / 1.5,), (2.0 / 1.5,), (1.0,)]
    weights = batch_weights(batch, ["a", "a", "b"], UTILITIES, WeightConfig(normalize="batch"))
    assert weights == [(1.0 / (5 / 3),), (2.0 / (5 / 3),), (2.0 / (5 / 3),)]


def test_a_long_trajectory_has_one_voice_in_the_mean() -> None:
    batch = failed(turns(*[Label.INVALID_TOOL_CALL] * 9), turns(Label.PASS))
    weights = batch_weights(batch, ["a", "a"], UTILITIES, WeightConfig(normalize="group"))
    assert weights == [(2.0 / 1.5,) * 9, (1.0 / 1.5,)]


def test_what_is_normalised_is_not_clipped_again() -> None:
    batch = failed(*[turns(Label.INSTANCE_MISMATCH)] * 3, turns(Label.INVALID_TOOL_CALL))
    weights = batch_weights(batch, ["g"] * 4, UTILITIES, WeightConfig(normalize="batch"))
    assert weights[3][0] == pytest.approx(2.0 / 0.95) and weights[3][0] > CONFIG.w_max


@UNTIMED
@given(batches, st.text(max_size=3))
def test_shuffled_labels_give_the_same_weights_to_others(batch: Batch, seed: str) -> None:
    labeled = [rollout(labels, reward) for labels, _, reward in batch]
    groups = [pair[1] for pair in batch]
    config = WeightConfig(assignment="shuffled")
    weights = batch_weights(labeled, groups, UTILITIES, config, seed)
    assert weights == batch_weights(labeled, groups, UTILITIES, config, seed)
    own = batch_weights(labeled, groups, UTILITIES, CONFIG)
    assert sorted(one[0] for one in weights) == sorted(one[0] for one in own)
    assert [len(one) for one in weights] == [len(one) for one in own]


def test_shuffled_labels_move_by_the_seed() -> None:
    labeled = failed(turns(Label.INVALID_TOOL_CALL), *[turns(Label.PASS)] * 5)
    config = WeightConfig(assignment="shuffled")
    places = {
        batch_weights(labeled, ["g"] * 6, UTILITIES, config, str(step)).index((2.0,))
        for step in range(40)
    }
    assert places == set(range(6))


def test_with_assignment_mean_all_have_the_batchs_mean() -> None:
    labeled = failed(turns(Label.INVALID_TOOL_CALL), turns(Label.PASS, Label.PASS))
    weights = batch_weights(labeled, ["a", "b"], UTILITIES, WeightConfig(assignment="mean"))
    assert weights == [(1.5,), (1.5, 1.5)]
    assert batch_weights([], [], UTILITIES, WeightConfig(assignment="mean")) == []


@UNTIMED
@given(batches, configs)
def test_batch_weights_are_positive_and_finite_and_their_mean_is_as_configured(
    batch: Batch, config: WeightConfig
) -> None:
    labeled = [rollout(labels, reward) for labels, _, reward in batch]
    groups = [pair[1] for pair in batch]
    weights = batch_weights(labeled, groups, UTILITIES, config)
    assert [len(one) for one in weights] == [max(1, len(one.turns)) for one in labeled]
    assert all(0 < weight < math.inf for one in weights for weight in one)
    means = [fmean(one) for one in weights]
    if config.normalize == "batch":
        assert fmean(means) == pytest.approx(1.0)
    if config.normalize == "group":
        for group in set(groups):
            of_group = [m for m, name in zip(means, groups, strict=True) if name == group]
            assert fmean(of_group) == pytest.approx(1.0)
    if config.normalize in ("none", "balanced"):
        assert all(config.w_min <= weight <= config.w_max for one in weights for weight in one)


@UNTIMED
@given(batches, configs)
def test_with_equal_utilities_nothing_is_weighted(batch: Batch, config: WeightConfig) -> None:
    labeled = [rollout(labels, reward) for labels, _, reward in batch]
    groups = [pair[1] for pair in batch]
    weights = batch_weights(labeled, groups, ONES, config)
    assert {weight for one in weights for weight in one} == {1.0}


def test_an_empty_batch_has_no_weights() -> None:
    assert batch_weights([], [], UTILITIES, WeightConfig(normalize="batch")) == []


def test_a_trajectory_without_a_group_is_refused() -> None:
    with pytest.raises(ValueError, match="a group for each of 2 rollouts, got 1"):
        batch_weights(failed([], []), ["g"], UTILITIES, CONFIG)


# ---- failures in trajectories that pass ---------------------------------------------------


@UNTIMED
@given(turn_lists, configs)
def test_no_failure_raises_the_weight_of_a_trajectory_that_passes(
    turns: list[TurnDiagnosis], config: WeightConfig
) -> None:
    """Its advantage is positive: the heavier its failures, the more they would be learnt."""
    passed = rollout(turns, 1.0)
    mended = replace(
        passed,
        turns=tuple(turn(Label.PASS) if one.label in FAILURES else one for one in passed.turns),
    )
    assert batch_weights([passed], ["g"], UTILITIES, config) == batch_weights(
        [mended], ["g"], UTILITIES, config
    )


def test_the_published_file_weighs_a_failure_in_a_trajectory_that_passes() -> None:
    passed = rollout([Label.SPURIOUS_TOOL_CALL, Label.PASS], 1.0)
    published = WeightConfig(failures_in_passes="as_failure")
    assert batch_weights([passed], ["g"], UTILITIES, published) == [(1.5, 1.5)]
    assert batch_weights([passed], ["g"], UTILITIES, CONFIG) == [(1.0, 1.0)]
    # In one that fails the label counts in both.
    failing = replace(passed, reward=0.0)
    assert batch_weights([failing], ["g"], UTILITIES, CONFIG) == [(1.5, 1.5)]


# ---- settings ----------------------------------------------------------------------------


def test_the_sign_of_the_advantage_decides_whether_it_is_weighted() -> None:
    signs = (-0.5, 0.0, 0.5)
    found = {
        sign: [applies(advantage, replace(CONFIG, applies_to=sign)) for advantage in signs]
        for sign in ("all", "positive", "negative")
    }
    assert found == {
        "all": [True, True, True],
        "positive": [False, False, True],
        "negative": [True, False, False],
    }


def test_every_label_that_counts_has_a_utility() -> None:
    assert set(UTILITIES) == set(Label) - EXCLUDED


def test_the_defaults_are_the_papers() -> None:
    assert (CONFIG.w_min, CONFIG.w_max, CONFIG.cascade_share) == (0.5, 2.0, 1.0)
    assert (CONFIG.scope, CONFIG.applies_to, CONFIG.normalize) == ("trajectory", "all", "none")
    assert (CONFIG.assignment, CONFIG.failures_in_passes) == ("own", "as_pass")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"w_min": 0.0}, "w_min=0.0"),
        ({"w_min": 3.0}, "w_min=3.0"),
        ({"w_max": math.inf}, "w_max=inf"),
        ({"w_min": math.nan}, "w_min=nan"),
        ({"cascade_share": 1.1}, "cascade_share must be in .0, 1., got 1.1"),
        ({"cascade_share": math.nan}, "cascade_share"),
        ({"scope": "token"}, "scope must be one of trajectory, turn, got 'token'"),
        ({"applies_to": "none"}, "applies_to must be one of all, positive, negative"),
        ({"normalize": "round"}, "normalize must be one of none, group, batch, balanced"),
        ({"assignment": "other"}, "assignment must be one of own, shuffled, mean"),
        ({"failures_in_passes": "pass"}, "must be one of as_pass, as_failure"),
        ({"assignment": "shuffled", "scope": "turn"}, "set scope to trajectory"),
        ({"normalize": "balanced", "applies_to": "positive"}, "set applies_to to all"),
        ({"utilities": {**UTILITIES, Label.PASS: 0.0}}, "utility of pass .* got 0.0"),
        ({"utilities": {**UTILITIES, Label.PASS: math.inf}}, "utility of pass"),
        ({"utilities": {**UTILITIES, Label.CHECKER_ERROR: 1.0}}, "checker_error has no weight"),
        ({"utilities": {Label.PASS: 1.0}}, "no utility for invalid_tool_call"),
    ],
)
def test_a_bad_configuration_is_refused_by_name(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        WeightConfig(**change)
