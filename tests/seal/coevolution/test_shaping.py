"""Official reward to training reward."""

import math
import struct
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seal.coevolution.shaping import BELOW_FULL_PASS, RewardShaping, shaped_reward
from seal.wire import TurnProgress

# Run times on a shared machine say nothing; what is slow is tested by itself.
UNTIMED = settings(deadline=None)

PART = TurnProgress(scorable=4, scorable_passed=2, abstention=2, abstention_passed=1)
ALL = TurnProgress(scorable=4, scorable_passed=4, abstention=2, abstention_passed=2)
T3RL = RewardShaping("t3rl")

counts = st.integers(0, 10).flatmap(lambda turns: st.tuples(st.just(turns), st.integers(0, turns)))
progresses = st.builds(
    lambda scorable, abstention: TurnProgress(*scorable, *abstention), counts, counts
)
shapings = st.builds(
    RewardShaping,
    st.sampled_from(["binary", "capped", "t3rl"]),
    st.floats(0, 1, exclude_max=True),
    st.floats(0, 1),
)


def test_binary_is_the_official_reward_and_the_default() -> None:
    assert shaped_reward(0.0, ALL, RewardShaping()) == 0.0
    assert shaped_reward(1.0, PART, RewardShaping()) == 1.0


def test_t3rl_is_the_weighted_share_of_passed_turns() -> None:
    assert shaped_reward(0.0, PART, T3RL) == (2 + 0.5) / (4 + 1)
    assert shaped_reward(0.0, PART, replace(T3RL, abstention_weight=1.0)) == 3 / 6
    assert shaped_reward(0.0, PART, replace(T3RL, abstention_weight=0.0)) == 2 / 4


def test_capped_is_the_share_up_to_the_cap() -> None:
    assert shaped_reward(0.0, PART, RewardShaping("capped", cap=0.3)) == 0.3
    assert shaped_reward(0.0, PART, RewardShaping("capped", cap=0.8)) == 0.5


def test_a_share_of_one_without_a_full_pass_stays_below_it() -> None:
    assert shaped_reward(0.0, ALL, T3RL) == BELOW_FULL_PASS
    as_float32 = struct.unpack("f", struct.pack("f", BELOW_FULL_PASS))[0]
    assert as_float32 < 1.0


@UNTIMED
@given(progresses, shapings)
def test_only_a_full_pass_earns_one(progress: TurnProgress, shaping: RewardShaping) -> None:
    assert shaped_reward(1.0, progress, shaping) == 1.0
    assert 0.0 <= shaped_reward(0.0, progress, shaping) < 1.0


@UNTIMED
@given(progresses, st.floats(0, 1))
def test_the_published_cap_is_the_binary_reward(progress: TurnProgress, weight: float) -> None:
    assert shaped_reward(0.0, progress, RewardShaping("capped", 0.0, weight)) == 0.0


@UNTIMED
@given(progresses, shapings)
def test_one_more_passed_turn_never_earns_less(
    progress: TurnProgress, shaping: RewardShaping
) -> None:
    before = shaped_reward(0.0, progress, shaping)
    if progress.scorable_passed < progress.scorable:
        more = replace(progress, scorable_passed=progress.scorable_passed + 1)
        assert shaped_reward(0.0, more, shaping) >= before
    if progress.abstention_passed < progress.abstention:
        more = replace(progress, abstention_passed=progress.abstention_passed + 1)
        assert shaped_reward(0.0, more, shaping) >= before


def test_without_turns_that_count_the_reward_stays() -> None:
    assert shaped_reward(0.0, TurnProgress(0, 0, 0, 0), T3RL) == 0.0
    abstentions = TurnProgress(scorable=0, scorable_passed=0, abstention=3, abstention_passed=3)
    assert shaped_reward(0.0, abstentions, replace(T3RL, abstention_weight=0.0)) == 0.0
    assert shaped_reward(0.0, abstentions, T3RL) == BELOW_FULL_PASS


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scorable_passed": 5}, "scorable_passed <= scorable=4, got 5"),
        ({"abstention_passed": -1}, "abstention_passed <= abstention=2, got -1"),
    ],
)
def test_counts_that_cannot_be_are_refused(change: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        shaped_reward(0.0, replace(PART, **change), T3RL)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mode": "dense"}, "mode must be one of binary, capped, t3rl, got 'dense'"),
        ({"cap": 1.0}, "cap must be in .0, 1., got 1.0"),
        ({"cap": -0.1}, "cap"),
        ({"cap": math.nan}, "cap"),
        ({"abstention_weight": 1.5}, "abstention_weight must be in .0, 1., got 1.5"),
        ({"abstention_weight": math.nan}, "abstention_weight"),
    ],
)
def test_a_bad_setting_is_refused_by_name(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RewardShaping(**change)
