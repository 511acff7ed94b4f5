"""Failure profile to the diagnostic utilities of the next round."""

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seal.coevolution.profile import EMPTY, FailureProfile, LabelStatistic
from seal.coevolution.utilities import UtilityConfig, next_utilities
from seal.coevolution.weights import UTILITIES
from seal.labels import FAILURES, Label

# Run times on a shared machine say nothing; what is slow is tested by itself.
UNTIMED = settings(deadline=None)

DYNAMIC = UtilityConfig(enabled=True)
AT_ONCE = UtilityConfig(enabled=True, beta=1.0)

statistics = st.builds(
    lambda turns, share, reward: LabelStatistic(turns, turns * share, turns * share * reward, 0.0),
    st.floats(0.25, 500),
    st.floats(0.1, 1),
    st.floats(0, 1),
)
profiles = st.builds(
    FailureProfile,
    st.integers(0, 9),
    st.dictionaries(st.sampled_from(Label), statistics),
    st.just({}),
    st.just({}),
)
configs = st.builds(
    UtilityConfig, st.just(True), st.floats(0, 1), st.floats(0, 5), st.integers(1, 100)
)


def seen(label: Label, turns: float, mean_reward: float = 0.0) -> FailureProfile:
    return FailureProfile(1, {label: LabelStatistic(turns, turns, turns * mean_reward, 0)}, {}, {})


def after(profile: FailureProfile, config: UtilityConfig = AT_ONCE) -> dict[Label, float]:
    return next_utilities(UTILITIES, UTILITIES, profile, config, 0.5, 4.0)


def test_a_prevalent_unsolved_failure_that_was_seen_often_doubles() -> None:
    assert after(seen(Label.RECOVERY_FAILURE, 32))[Label.RECOVERY_FAILURE] == 2 * 1.2
    assert after(seen(Label.RECOVERY_FAILURE, 99))[Label.RECOVERY_FAILURE] == 2 * 1.2


def test_what_was_seen_rarely_or_is_solved_rises_less() -> None:
    moved = after(seen(Label.STATE_MISMATCH, 8))
    assert moved[Label.STATE_MISMATCH] == 1.25
    moved = after(seen(Label.STATE_MISMATCH, 32, mean_reward=0.75))
    assert moved[Label.STATE_MISMATCH] == 1.25


def test_alpha_says_how_far() -> None:
    config = UtilityConfig(enabled=True, beta=1.0, alpha=0.5)
    moved = after(seen(Label.STATE_MISMATCH, 32), config)
    assert moved[Label.STATE_MISMATCH] == 1.5


def test_beta_says_how_fast() -> None:
    moved = after(seen(Label.STATE_MISMATCH, 32), DYNAMIC)
    assert moved[Label.STATE_MISMATCH] == 0.75 * 1.0 + 0.25 * 2.0


def test_the_target_is_clipped() -> None:
    profile = seen(Label.INVALID_TOOL_CALL, 32)
    moved = next_utilities(UTILITIES, UTILITIES, profile, AT_ONCE, 0.8, 1.6)
    assert moved[Label.INVALID_TOOL_CALL] == 1.6
    assert moved[Label.INSTANCE_MISMATCH] == 0.8


def test_rounding_carries_no_utility_over_its_goal() -> None:
    rho, current = {Label.STATE_MISMATCH: 2.6}, {Label.STATE_MISMATCH: 0.482}
    assert 0.482 + 1.0 * (2.6 - 0.482) > 2.6
    assert next_utilities(current, rho, EMPTY, AT_ONCE, 0.1, 2.6) == rho


def test_a_label_that_is_no_longer_seen_goes_back_to_its_base() -> None:
    raised = {**UTILITIES, Label.STATE_MISMATCH: 2.0, Label.CORRECT_ABSTENTION: 2.0}
    moved = next_utilities(raised, UTILITIES, EMPTY, DYNAMIC, 0.5, 2.0)
    assert moved[Label.STATE_MISMATCH] == 0.75 * 2.0 + 0.25 * 1.0
    assert moved[Label.CORRECT_ABSTENTION] == pytest.approx(0.75 * 2.0 + 0.25 * 1.8)


def test_prevalence_is_among_all_turns_that_count() -> None:
    """As in the published code: the passed ones, too, but no faults of the scorer."""
    table = {
        label: LabelStatistic(32, 32, 0.0, 0)
        for label in (Label.STATE_MISMATCH, Label.PASS, Label.CHECKER_ERROR)
    }
    assert after(FailureProfile(1, table, {}, {}))[Label.STATE_MISMATCH] == 1.5


def test_an_abstention_moves_as_a_failure_does_and_pass_stays_even_out_of_bounds() -> None:
    assert after(seen(Label.PASS, 99))[Label.PASS] == UTILITIES[Label.PASS]
    assert after(seen(Label.CORRECT_ABSTENTION, 99))[Label.CORRECT_ABSTENTION] == 2 * 1.8
    base = {**UTILITIES, Label.PASS: 3.0}
    raised = {**base, Label.PASS: 1.0}
    assert next_utilities(raised, base, EMPTY, DYNAMIC, 0.5, 2.0)[Label.PASS] == 3.0


@UNTIMED
@given(profiles)
def test_static_utilities_are_the_base_whatever_happened(profile: FailureProfile) -> None:
    raised = dict.fromkeys(UTILITIES, 2.0)
    moved = next_utilities(raised, UTILITIES, profile, UtilityConfig(), 0.5, 2.0)
    assert moved == UTILITIES and moved is not UTILITIES


@UNTIMED
@given(
    st.lists(profiles, min_size=1, max_size=5), configs, st.floats(0.1, 1.0), st.floats(1.0, 3.0)
)
def test_utilities_stay_between_bounds_and_base(
    rounds: list[FailureProfile], config: UtilityConfig, w_min: float, w_max: float
) -> None:
    now: dict[Label, float] = dict(UTILITIES)
    for profile in rounds:
        now = next_utilities(now, UTILITIES, profile, config, w_min, w_max)
        assert now.keys() == UTILITIES.keys()
        for label, base in UTILITIES.items():
            assert min(w_min, base) <= now[label] <= max(w_max, base)


@UNTIMED
@given(profiles, st.floats(0.05, 1), st.sampled_from(FAILURES))
def test_a_constant_profile_is_converged_to(
    profile: FailureProfile, beta: float, label: Label
) -> None:
    goal = after(profile)
    config = UtilityConfig(enabled=True, beta=beta)
    now: dict[Label, float] = dict(UTILITIES)
    for step in range(1, 6):  # what is left shrinks by 1 - beta a round
        now = next_utilities(now, UTILITIES, profile, config, 0.5, 4.0)
        left = (1 - beta) ** step * (UTILITIES[label] - goal[label])
        assert now[label] - goal[label] == pytest.approx(left, abs=1e-9)


@UNTIMED
@given(profiles)
def test_a_goal_that_is_reached_is_kept(profile: FailureProfile) -> None:
    goal = after(profile)
    assert next_utilities(goal, UTILITIES, profile, DYNAMIC, 0.5, 4.0) == goal


def test_a_label_without_a_current_utility_is_refused() -> None:
    current = dict(UTILITIES)
    del current[Label.STATE_MISMATCH]
    with pytest.raises(ValueError, match="every label of rho, none for .'state_mismatch'"):
        next_utilities(current, UTILITIES, EMPTY, DYNAMIC, 0.5, 2.0)


def test_the_defaults_are_the_published_ones_switched_off() -> None:
    assert UtilityConfig() == UtilityConfig(enabled=False, beta=0.25, alpha=1.0, n_conf=32)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"beta": -0.1}, "beta must be in .0, 1., got -0.1"),
        ({"beta": 1.1}, "beta"),
        ({"alpha": -1.0}, "alpha must be at least 0 and finite, got -1.0"),
        ({"alpha": math.inf}, "alpha"),
        ({"alpha": math.nan}, "alpha"),
        ({"n_conf": 0}, "n_conf must be at least 1, got 0"),
    ],
)
def test_a_number_out_of_range_is_refused_by_name(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        UtilityConfig(**change)
