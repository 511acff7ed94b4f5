"""Labels to the failure profile."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seal.coevolution.labels import EXCLUDED, Label
from seal.coevolution.profile import (
    EMPTY,
    FailureProfile,
    LabeledTrajectory,
    LabelStatistic,
    merge,
    profile_of,
)

# Run times on a shared machine say nothing; what is slow is tested by itself.
UNTIMED = settings(deadline=None)

trajectories = st.lists(
    st.builds(
        LabeledTrajectory,
        st.lists(st.sampled_from(Label), max_size=5).map(tuple),
        st.sampled_from([0.0, 1.0]),
        st.sampled_from(["base", "miss_func"]),
    ),
    max_size=6,
)
profiles = st.builds(profile_of, st.integers(0, 50), trajectories)


def test_a_trajectory_counts_once_for_a_label_and_its_turns_each() -> None:
    profile = profile_of(
        4,
        [
            LabeledTrajectory((Label.STATE_MISMATCH, Label.STATE_MISMATCH), 0.0, "base"),
            LabeledTrajectory((Label.STATE_MISMATCH, Label.PASS), 1.0, "miss_func"),
        ],
    )
    assert profile.version == 4
    assert profile.by_label[Label.STATE_MISMATCH] == LabelStatistic(3, 2, 1.0)
    assert profile.by_label[Label.STATE_MISMATCH].mean_reward == 0.5
    assert profile.by_category["base"] == {Label.STATE_MISMATCH: LabelStatistic(2, 1, 0.0)}


def test_prevalence_is_the_share_among_failed_turns() -> None:
    labels = (Label.PASS, Label.STATE_MISMATCH, Label.STATE_MISMATCH, Label.MISSING_TOOL_CALL)
    profile = profile_of(1, [LabeledTrajectory(labels, 0.0, "base")])
    assert profile.prevalence(Label.STATE_MISMATCH) == 2 / 3
    assert profile.prevalence(Label.PASS) == 0.0
    assert profile.prevalence(Label.RESPONSE_MISMATCH) == 0.0
    assert EMPTY.prevalence(Label.STATE_MISMATCH) == 0.0


def test_excluded_labels_are_not_counted() -> None:
    profile = profile_of(1, [LabeledTrajectory(tuple(EXCLUDED), 0.0, "base")])
    assert profile.by_label == {}


@UNTIMED
@given(profiles, profiles, profiles)
def test_merge_is_associative_and_commutative(
    a: FailureProfile, b: FailureProfile, c: FailureProfile
) -> None:
    assert merge(merge(a, b), c) == merge(a, merge(b, c))
    assert merge(a, b) == merge(b, a)
    assert merge(a, EMPTY) == a
    assert merge(a, b).version == max(a.version, b.version)


@UNTIMED
@given(trajectories, trajectories)
def test_merging_rounds_is_counting_them_together(
    first: list[LabeledTrajectory], second: list[LabeledTrajectory]
) -> None:
    assert merge(profile_of(1, first), profile_of(2, second)) == profile_of(2, first + second)


@UNTIMED
@given(profiles)
def test_json_round_trip(profile: FailureProfile) -> None:
    assert FailureProfile.from_json(json.loads(json.dumps(profile.to_json()))) == profile


def statistic(**changes: object) -> dict[str, Any]:
    table = {"pass": {"turns": 2, "trajectories": 1, "reward_sum": 1.0, **changes}}
    return {"version": 1, "by_label": table, "by_category": {}}


@pytest.mark.parametrize(
    ("data", "where"),
    [
        ([], "profile: expected an object"),
        ({"version": 1, "by_label": {}}, "missing fields .'by_category'"),
        ({**statistic(), "more": 1}, "unknown fields .'more'"),
        ({**statistic(), "version": "1"}, "profile.version: expected an integer"),
        ({**statistic(), "version": True}, "profile.version"),
        ({**statistic(), "by_label": []}, "profile.by_label: expected an object"),
        ({**statistic(), "by_label": {"nonsense": {}}}, "profile.by_label.nonsense: unknown label"),
        ({**statistic(), "by_category": {"base": {"pass": 1}}}, "profile.by_category.base.pass"),
        (statistic(turns=-1), "profile.by_label.pass.turns"),
        (statistic(turns=0), "1 <= trajectories <= turns"),
        (statistic(trajectories=1.5), "profile.by_label.pass.trajectories"),
        (statistic(reward_sum="1"), "profile.by_label.pass.reward_sum"),
        (statistic(reward_sum=float("nan")), "0 <= reward_sum <= trajectories"),
        (statistic(reward_sum=10**400), "profile.by_label.pass"),
    ],
)
def test_a_bad_profile_is_refused_by_field(data: Any, where: str) -> None:
    with pytest.raises(ValueError, match=where):
        FailureProfile.from_json(data)
