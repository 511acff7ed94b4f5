"""Labels to the failure profile."""

import json
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from labelled import rollout, turn

from seal.coevolution.profile import (
    EMPTY,
    FailureProfile,
    LabelStatistic,
    ProfileHistory,
    ProfileWindow,
    merge,
    profile_of,
)
from seal.coevolution.rollout import Rollout
from seal.labels import EXCLUDED, FAILURES, Label
from seal.wire import TurnDiagnosis

# Run times on a shared machine say nothing; what is slow is tested by itself.
UNTIMED = settings(deadline=None)

trajectories = st.lists(
    st.builds(
        rollout,
        st.lists(st.builds(turn, st.sampled_from(Label), st.booleans()), max_size=5),
        st.sampled_from([0.0, 0.5, 1.0]),
        st.sampled_from(["base", "miss_func"]),
        st.booleans(),
    ),
    max_size=6,
)
# Sums of quarters and of their halves are exact.
exact_shares = st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0])
profiles = st.builds(
    profile_of, st.integers(0, 50), trajectories, exact_shares, interface_active=st.booleans()
)

WRONG = turn(Label.STATE_MISMATCH)
FOLLOWS = turn(Label.STATE_MISMATCH, cascade=True)
PASSED = turn(Label.PASS)


def trajectory(*turns: TurnDiagnosis, reward: float = 0.0, category: str = "a") -> Rollout:
    return rollout(turns, reward, category)


# ---- counting ----------------------------------------------------------------------------


def test_a_trajectory_counts_once_for_a_label_and_its_turns_each() -> None:
    profile = profile_of(
        4,
        [
            trajectory(WRONG, WRONG),
            trajectory(WRONG, PASSED, reward=1.0, category="b"),
        ],
    )
    assert profile.version == 4
    assert profile.by_label[Label.STATE_MISMATCH] == LabelStatistic(3, 2, 1.0, 1)
    assert profile.by_label[Label.STATE_MISMATCH].mean_reward == 0.5
    assert profile.by_category["a"] == {Label.STATE_MISMATCH: LabelStatistic(2, 1, 0.0, 0)}


def test_a_cascade_turn_counts_with_its_share() -> None:
    batch = [trajectory(WRONG, FOLLOWS, FOLLOWS), trajectory(PASSED, FOLLOWS, reward=0.5)]
    counted = {
        share: profile_of(1, batch, share).by_label[Label.STATE_MISMATCH] for share in (0.0, 0.25)
    }
    assert counted[0.25] == LabelStatistic(1.75, 1.25, 0.125, 0)
    assert counted[0.0] == LabelStatistic(1, 1, 0.0, 0)  # the second trajectory is not counted


def test_the_paper_counts_every_turn() -> None:
    assert profile_of(1, [trajectory(WRONG, FOLLOWS)]) == profile_of(1, [trajectory(WRONG, WRONG)])


def test_only_a_reward_of_exactly_one_is_a_success() -> None:
    batch = [trajectory(PASSED, reward=reward) for reward in (0.0, 0.99, 1.0)]
    assert profile_of(1, batch).by_label[Label.PASS] == LabelStatistic(3, 3, 1.99, 1)


def test_turns_are_counted_by_their_position() -> None:
    excluded = turn(Label.CHECKER_ERROR)
    profile = profile_of(1, [trajectory(PASSED, WRONG), trajectory(PASSED, excluded, WRONG)])
    assert profile.by_position == {
        0: {Label.PASS: LabelStatistic(2, 2, 0.0, 0)},
        1: {Label.STATE_MISMATCH: LabelStatistic(1, 1, 0.0, 0)},
        2: {Label.STATE_MISMATCH: LabelStatistic(1, 1, 0.0, 0)},
    }


def test_prevalence_is_the_share_among_failed_turns() -> None:
    turns = (PASSED, WRONG, FOLLOWS, turn(Label.MISSING_TOOL_CALL))
    profile = profile_of(1, [trajectory(*turns)])
    assert profile.prevalence(Label.STATE_MISMATCH) == 2 / 3
    assert profile.prevalence(Label.PASS) == 0.0
    assert profile.prevalence(Label.RESPONSE_MISMATCH) == 0.0
    assert EMPTY.prevalence(Label.STATE_MISMATCH) == 0.0
    halved = profile_of(1, [trajectory(*turns)], cascade_share=0.5)
    assert halved.prevalence(Label.STATE_MISMATCH) == 1.5 / 2.5


def test_excluded_labels_are_not_counted() -> None:
    profile = profile_of(1, [rollout(EXCLUDED)])
    assert profile.by_label == {}


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan")])
def test_a_share_out_of_range_is_refused(share: float) -> None:
    with pytest.raises(ValueError, match=f"cascade_share must be in .0, 1., got {share}"):
        profile_of(1, [], share)


@pytest.mark.parametrize("reward", [-1.0, 1.5, float("nan")])
def test_a_reward_out_of_range_is_refused(reward: float) -> None:
    with pytest.raises(ValueError, match="reward_sum <= trajectories"):
        profile_of(1, [trajectory(PASSED, reward=reward)])


@UNTIMED
@given(trajectories, st.floats(0, 1), st.randoms(use_true_random=False))
def test_the_order_of_trajectories_does_not_matter(
    batch: list[Rollout], share: float, rng: random.Random
) -> None:
    shuffled = list(batch)
    rng.shuffle(shuffled)
    profile = profile_of(1, batch, share, interface_active=True)
    assert profile == profile_of(1, shuffled, share, interface_active=True)


# ---- merging -----------------------------------------------------------------------------


@UNTIMED
@given(profiles, profiles, profiles)
def test_merge_is_associative_and_commutative(
    a: FailureProfile, b: FailureProfile, c: FailureProfile
) -> None:
    assert merge(merge(a, b), c) == merge(a, merge(b, c)) == merge(a, b, c)
    assert merge(a, b) == merge(b, a)
    assert merge(a, EMPTY) == a == merge(a)
    assert merge(a, b).version == max(a.version, b.version)
    assert merge() == EMPTY


@UNTIMED
@given(trajectories, trajectories, exact_shares)
def test_merging_rounds_is_counting_them_together(
    first: list[Rollout], second: list[Rollout], share: float
) -> None:
    merged = merge(profile_of(1, first, share), profile_of(2, second, share))
    assert merged == profile_of(2, first + second, share)


# ---- history -----------------------------------------------------------------------------


@UNTIMED
@given(st.lists(profiles, max_size=6), st.integers(1, 4))
def test_a_history_keeps_the_window_and_the_total(
    rounds: list[FailureProfile], window_rounds: int
) -> None:
    history = ProfileHistory()
    for profile in rounds:
        history = history.after(profile, ProfileWindow(window_rounds=window_rounds))
    assert history.rounds == tuple(rounds[-window_rounds:])
    assert history.window == merge(*rounds[-window_rounds:])
    assert history.total == merge(*rounds)
    assert ProfileHistory.from_json(json.loads(json.dumps(history.to_json()))) == history


def test_a_new_history_is_empty() -> None:
    assert ProfileHistory().window == ProfileHistory().total == EMPTY


def test_a_smaller_window_drops_the_oldest_rounds() -> None:
    history = ProfileHistory()
    for version in (1, 2, 3):
        history = history.after(profile_of(version, []), ProfileWindow(window_rounds=3))
    fewer = history.after(profile_of(4, []), ProfileWindow(window_rounds=2))
    assert [one.version for one in fewer.rounds] == [3, 4]


def test_a_tumbling_window_is_emptied_every_epoch() -> None:
    """As in the published code, whose epoch has twelve rounds."""
    history, window = ProfileHistory(), ProfileWindow(window_rounds=12, window="tumbling")
    kept = []
    for version in range(1, 27):
        history = history.after(profile_of(version, []), window)
        kept.append([one.version for one in history.rounds])
    assert kept[:3] == [[1], [1, 2], [1, 2, 3]]
    assert (kept[11], kept[12], kept[25]) == ([*range(1, 13)], [13], [25, 26])


@pytest.mark.parametrize(
    ("data", "where"),
    [
        (None, "history: expected an object, got NoneType"),
        ({"rounds": []}, "history: missing fields .'total'"),
        ({"rounds": {}, "total": EMPTY.to_json()}, "history.rounds: expected a list, got dict"),
        ({"rounds": [EMPTY.to_json(), 1], "total": {}}, r"history.rounds\[1\]: expected an object"),
        ({"rounds": [], "total": {}}, "history.total: missing fields"),
        (
            {"rounds": [], "total": {**EMPTY.to_json(), "version": -1}},
            "history.total.version: expected an integer .* got -1",
        ),
    ],
)
def test_a_bad_history_is_refused_by_field(data: Any, where: str) -> None:
    with pytest.raises(ValueError, match=where):
        ProfileHistory.from_json(data)


# ---- rates -------------------------------------------------------------------------------


def some(label: Label, count: int, *, shown: bool = True) -> list[Rollout]:
    return [rollout([label], float(label is Label.PASS), shown=shown)] * count


def test_a_rate_falls_as_the_policy_improves_and_a_share_of_failures_does_not() -> None:
    found = []
    for failed in (16, 8, 2):
        both = some(Label.STATE_MISMATCH, failed) + some(Label.PASS, 32 - failed)
        profile = profile_of(1, both)
        found.append(
            (profile.prevalence(Label.STATE_MISMATCH), profile.rate(Label.STATE_MISMATCH, 8))
        )
    assert found == [(1.0, 0.5), (1.0, 0.25), (1.0, 2 / 32)]


def test_only_turns_of_its_kind_count_for_a_rate() -> None:
    abstention = some(Label.SPURIOUS_TOOL_CALL, 3) + some(Label.CORRECT_ABSTENTION, 1)
    others = some(Label.MISSING_TOOL_CALL, 2) + some(Label.PASS, 6)
    profile = profile_of(1, abstention + others)
    assert profile.rate(Label.SPURIOUS_TOOL_CALL, 1) == 3 / 4
    assert profile.rate(Label.MISSING_TOOL_CALL, 1) == 2 / 8
    assert profile.rate(Label.STATE_MISMATCH, 1) == 0.0
    assert profile.rate(Label.PASS, 1) == 0.0


def test_a_rate_is_measured_without_cues_where_there_are_enough_turns() -> None:
    shown = some(Label.MISSING_TOOL_CALL, 1) + some(Label.PASS, 19)
    plain = some(Label.MISSING_TOOL_CALL, 6, shown=False) + some(Label.PASS, 2, shown=False)
    profile = profile_of(1, shown + plain, interface_active=True)
    assert profile.rate(Label.MISSING_TOOL_CALL, least_turns=8) == 6 / 8
    assert profile.rate(Label.MISSING_TOOL_CALL, least_turns=9) == 7 / 28
    # The published rule does not look at who saw a cue.
    assert profile.prevalence(Label.MISSING_TOOL_CALL) == 1.0


def test_a_failure_that_cues_alone_suppress_is_still_one_without_them() -> None:
    plain = some(Label.MISSING_TOOL_CALL, 8, shown=False)
    both = some(Label.PASS, 8) + plain
    profile = profile_of(1, both, interface_active=True)
    assert profile.rate(Label.MISSING_TOOL_CALL, 8) == 1.0
    # An interface without an active part shows no cue to those that were shown it.
    assert profile_of(1, both).rate(Label.MISSING_TOOL_CALL, 8) == 0.5


@UNTIMED
@given(profiles)
def test_rates_are_shares(profile: FailureProfile) -> None:
    for label in Label:
        assert 0.0 <= profile.rate(label, 1) <= 1.0
    failures = [one for one in FAILURES if one is not Label.SPURIOUS_TOOL_CALL]
    assert sum(profile.rate(label, 1) for label in failures) <= 1.0 + 1e-9


# ---- JSON --------------------------------------------------------------------------------


@UNTIMED
@given(profiles)
def test_json_round_trip(profile: FailureProfile) -> None:
    assert FailureProfile.from_json(json.loads(json.dumps(profile.to_json()))) == profile


def statistic(**changes: object) -> dict[str, Any]:
    counts = {"turns": 2, "trajectories": 1, "reward_sum": 1.0, "successes": 1, **changes}
    return {"version": 1, "by_label": {"pass": counts}, "by_category": {}, "by_position": {}}


def test_a_profile_of_before_there_was_uncued_can_be_read() -> None:
    assert FailureProfile.from_json(statistic()).uncued == {}


def test_the_good_one_below_is_good() -> None:
    read = FailureProfile.from_json(statistic())
    assert read.by_label == {Label.PASS: LabelStatistic(2.0, 1.0, 1.0, 1.0)}


@pytest.mark.parametrize(
    ("data", "where"),
    [
        ([], "profile: expected an object"),
        ({"version": 1, "by_label": {}}, "missing fields .'by_category', 'by_position'"),
        ({**statistic(), "more": 1}, "unknown fields .'more'"),
        ({**statistic(), "version": "1"}, "profile.version: expected an integer"),
        ({**statistic(), "version": True}, "profile.version"),
        ({**statistic(), "version": 2**53}, "profile.version"),
        ({**statistic(), "by_label": []}, "profile.by_label: expected an object"),
        ({**statistic(), "by_label": {"nonsense": {}}}, "profile.by_label.nonsense: unknown label"),
        ({**statistic(), "uncued": {"pass": 1}}, "profile.uncued.pass"),
        ({**statistic(), "by_category": {"base": {"pass": 1}}}, "profile.by_category.base.pass"),
        ({**statistic(), "by_position": {"3": {"pass": 1}}}, "profile.by_position.3.pass"),
        ({**statistic(), "by_position": {"03": {}}}, "profile.by_position: .* got '03'"),
        ({**statistic(), "by_position": {"-1": {}}}, "profile.by_position: .* got '-1'"),
        ({**statistic(), "by_position": {"x": {}}}, "profile.by_position: .* got 'x'"),
        (statistic(turns=-1), "profile.by_label.pass.turns: .* got -1"),
        (statistic(turns=10**400), "profile.by_label.pass.turns"),
        (statistic(turns=float("inf")), "profile.by_label.pass.turns"),
        (statistic(turns=0), "0 < trajectories <= turns"),
        (statistic(trajectories=0), "0 < trajectories <= turns"),
        (statistic(trajectories=True), "profile.by_label.pass.trajectories"),
        (statistic(trajectories=2.5), "0 < trajectories <= turns"),
        (statistic(reward_sum="1"), "profile.by_label.pass.reward_sum"),
        (statistic(reward_sum=float("nan")), "profile.by_label.pass.reward_sum"),
        (statistic(reward_sum=1.5), "reward_sum <= trajectories"),
        (statistic(successes=1.5), "0 <= successes <= reward_sum"),
    ],
)
def test_a_bad_profile_is_refused_by_field(data: Any, where: str) -> None:
    with pytest.raises(ValueError, match=where):
        FailureProfile.from_json(data)
