"""Failure profile to learning interface: which parts come, which of those before it stay."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from labelled import rollout

from seal.coevolution.evolution import InterfaceConfig, evolve
from seal.coevolution.interface import INITIAL, Interface
from seal.coevolution.profile import (
    EMPTY,
    FailureProfile,
    LabelStatistic,
    profile_of,
)
from seal.coevolution.rollout import Rollout
from seal.labels import FAILURES, Label

# Run times on a shared machine say nothing; what is slow is tested by itself.
UNTIMED = settings(deadline=None)

CONFIG = InterfaceConfig(hysteresis=0.2)
ALL_ON = Interface(3, True, True, True, (Label.STATE_MISMATCH, Label.MISSING_TOOL_CALL))


def turns_of(label: Label, count: int, reward: float = 0.0) -> list[Rollout]:
    return [rollout([label], reward)] * count


def after(
    *groups: list[Rollout],
    config: InterfaceConfig = CONFIG,
    before: Interface = INITIAL,
) -> Interface:
    rollouts = [one for group in groups for one in group]
    return evolve(before, profile_of(7, rollouts, interface_active=True), config)


def shares(**turns: float) -> FailureProfile:
    """A profile of never solved failures; each label's turns of 100 are its prevalence in %."""
    assert sum(turns.values()) == 100
    table = {Label(name): LabelStatistic(count, count, 0.0, 0) for name, count in turns.items()}
    return FailureProfile(8, table, {}, {})


# ---- by rates ----------------------------------------------------------------------------


def test_by_rates_a_part_goes_off_when_its_failure_is_mastered() -> None:
    """By the published rule it stays on: what is left of the failures are these."""
    published, rates = InterfaceConfig(), InterfaceConfig(prevalence_over="turns")
    begun = [turns_of(Label.MISSING_TOOL_CALL, 40), turns_of(Label.PASS, 60, 1.0)]
    mastered = [turns_of(Label.MISSING_TOOL_CALL, 9), turns_of(Label.PASS, 91, 1.0)]
    for config, left in ((published, True), (rates, False)):
        shown = after(*begun, config=config)
        assert shown.affordance_cues and shown.guidelines == (Label.MISSING_TOOL_CALL,)
        later = after(*mastered, config=config, before=shown)
        assert later.affordance_cues == left
        assert later.guidelines == ((Label.MISSING_TOOL_CALL,) if left else ())


def test_by_rates_a_part_stays_while_the_failure_is_there_without_it() -> None:
    config = InterfaceConfig(prevalence_over="turns")
    plain = turns_of(Label.MISSING_TOOL_CALL, 10) + turns_of(Label.PASS, 10, 1.0)
    cued = [replace(one, interface_shown=True) for one in turns_of(Label.PASS, 200, 1.0)]
    assert after(plain, cued, config=config).affordance_cues
    unseen = [replace(one, interface_shown=True) for one in plain]
    assert not after(unseen, cued, config=config).affordance_cues


# ---- controls ----------------------------------------------------------------------------


def test_with_choice_all_every_part_is_on_before_the_first_failure() -> None:
    everything = InterfaceConfig(choice="all", max_guidelines=2)
    shown = evolve(INITIAL, EMPTY, everything)
    assert shown.active()[:3] == ("schema_cues", "affordance_cues", "recovery_feedback")
    assert shown.guidelines == FAILURES[:2]
    assert after(turns_of(Label.PASS, 20), config=everything).active() == shown.active()


@UNTIMED
@given(
    failed=st.lists(st.sampled_from(FAILURES), max_size=5, unique=True),
    version=st.integers(1, 1000),
    most=st.integers(0, 4),
    switches=st.tuples(st.booleans(), st.booleans(), st.booleans()),
)
def test_with_choice_random_as_many_parts_are_on_as_the_failures_would_have(
    failed: list[Label], version: int, most: int, switches: tuple[bool, bool, bool]
) -> None:
    trajectories = [one for label in failed for one in turns_of(label, 20)]
    profile = profile_of(version, trajectories)
    schema, recovery, guidelines = switches
    config = InterfaceConfig(
        schema_cues=schema,
        recovery_feedback=recovery,
        guidelines=guidelines,
        max_guidelines=most,
        choice="random",
        seed=3,
    )
    drawn = evolve(INITIAL, profile, config)
    by_failures = evolve(INITIAL, profile, replace(config, choice="failures"))
    assert len(drawn.active()) == len(by_failures.active())
    assert len(drawn.guidelines) <= most
    cues, recovery, guidelines = switches
    assert cues or not (drawn.schema_cues or drawn.affordance_cues)
    assert recovery or not drawn.recovery_feedback
    assert guidelines or not drawn.guidelines
    assert evolve(drawn, profile, config) == drawn


def test_draws_differ_by_round_and_seed() -> None:
    failures = turns_of(Label.ARGUMENT_MISMATCH, 20)

    def drawn(version: int, seed: int) -> Interface:
        config = InterfaceConfig(choice="random", seed=seed)
        return replace(evolve(INITIAL, profile_of(version, failures), config), version=0)

    assert len({drawn(version, seed=1) for version in range(1, 20)}) > 5
    assert len({drawn(1, seed) for seed in range(20)}) > 5


# ---- evolution ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("label", "parts"),
    [
        (Label.ARGUMENT_MISMATCH, {"schema_cues", "recovery_feedback"}),
        (Label.INVALID_TOOL_CALL, {"schema_cues", "recovery_feedback"}),
        (Label.MISSING_TOOL_CALL, {"affordance_cues"}),
        (Label.RECOVERY_FAILURE, {"recovery_feedback"}),
        (Label.STATE_MISMATCH, set()),
        (Label.SPURIOUS_TOOL_CALL, set()),
        (Label.INSTANCE_MISMATCH, set()),
        (Label.RESPONSE_MISMATCH, set()),
    ],
)
def test_the_failure_decides_which_part_is_active(label: Label, parts: set[str]) -> None:
    interface = after(turns_of(label, 8))
    assert interface.version == 7
    assert set(interface.active()) == parts | {f"guideline:{label.value}"}


def test_too_few_observations_activate_nothing() -> None:
    assert after(turns_of(Label.ARGUMENT_MISMATCH, 7)).active() == ()


def test_a_rare_failure_activates_nothing() -> None:
    rare = turns_of(Label.ARGUMENT_MISMATCH, 9)
    assert "schema_cues" not in after(rare, turns_of(Label.STATE_MISMATCH, 82)).active()
    assert "schema_cues" in after(rare, turns_of(Label.STATE_MISMATCH, 81)).active()


def test_a_mastered_failure_loses_its_parts() -> None:
    unsolved = turns_of(Label.ARGUMENT_MISMATCH, 5)
    solved = turns_of(Label.ARGUMENT_MISMATCH, 5, reward=1.0)
    active = after(unsolved, solved)
    assert active.schema_cues
    published = replace(CONFIG, hysteresis=0.0)
    mastered = profile_of(8, unsolved[:4] + solved + solved[:1])  # mean reward exactly 0.6
    assert evolve(active, mastered, published).active() == ()
    assert evolve(INITIAL, mastered, CONFIG).active() == ()


def test_a_round_without_failures_switches_all_off() -> None:
    passes = profile_of(9, turns_of(Label.PASS, 20, reward=1.0))
    assert evolve(ALL_ON, passes, CONFIG) == replace(INITIAL, version=9)


def test_an_empty_profile_leaves_all_as_it_is() -> None:
    assert evolve(ALL_ON, replace(EMPTY, version=9), CONFIG) == replace(ALL_ON, version=9)


def test_guidelines_are_ordered_by_prevalence_times_what_is_left_to_earn() -> None:
    half_solved = turns_of(Label.STATE_MISMATCH, 10) + turns_of(Label.STATE_MISMATCH, 10, 1.0)
    interface = after(
        half_solved,  # 20 * 0.5
        turns_of(Label.MISSING_TOOL_CALL, 15),
        turns_of(Label.RESPONSE_MISMATCH, 12),
        turns_of(Label.SPURIOUS_TOOL_CALL, 12),
    )
    assert interface.guidelines == (
        Label.MISSING_TOOL_CALL,
        Label.SPURIOUS_TOOL_CALL,  # of equals the one of higher priority
        Label.RESPONSE_MISMATCH,
    )


@pytest.mark.parametrize(
    ("switch", "gone"),
    [
        ("schema_cues", {"schema_cues", "affordance_cues"}),
        ("recovery_feedback", {"recovery_feedback"}),
        ("guidelines", {"guideline:argument_mismatch", "guideline:missing_tool_call"}),
    ],
)
def test_each_component_can_be_switched_off(switch: str, gone: set[str]) -> None:
    rounds = (turns_of(Label.ARGUMENT_MISMATCH, 9), turns_of(Label.MISSING_TOOL_CALL, 9))
    change: dict[str, Any] = {switch: False}
    off = replace(CONFIG, **change)
    assert set(after(*rounds).active()) - set(after(*rounds, config=off).active()) == gone


statistics = st.tuples(st.integers(1, 40), st.floats(0, 1)).map(
    lambda pair: LabelStatistic(pair[0], pair[0], pair[0] * pair[1], 0)
)
profiles = st.dictionaries(st.sampled_from(Label), statistics, min_size=1).map(
    lambda table: FailureProfile(5, table, {}, {})
)
interfaces = st.builds(
    Interface,
    st.integers(0, 99),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.lists(st.sampled_from(FAILURES), unique=True).map(tuple),
)


@UNTIMED
@given(interfaces, profiles, st.integers(0, 3))
def test_evolution_is_deterministic_and_bounded(
    before: Interface, profile: FailureProfile, most: int
) -> None:
    config = replace(CONFIG, max_guidelines=most)
    interface = evolve(before, profile, config)
    turned = replace(profile, by_label=dict(list(profile.by_label.items())[::-1]))
    assert interface == evolve(before, turned, config)
    assert interface.version == 5
    assert len(interface.guidelines) == len(set(interface.guidelines)) <= most


# ---- hysteresis --------------------------------------------------------------------------


@UNTIMED
@given(interfaces, profiles)
def test_without_hysteresis_the_interface_before_counts_for_nothing(
    before: Interface, profile: FailureProfile
) -> None:
    published = replace(CONFIG, hysteresis=0.0, max_guidelines=len(FAILURES))
    free = evolve(INITIAL, profile, published)
    assert set(evolve(before, profile, published).active()) == set(free.active())


@UNTIMED
@given(interfaces, profiles, st.floats(0, 1, exclude_max=True))
def test_hysteresis_only_keeps_and_never_starts_anything(
    before: Interface, profile: FailureProfile, hysteresis: float
) -> None:
    config = replace(CONFIG, hysteresis=hysteresis, max_guidelines=len(FAILURES))
    fresh = set(evolve(INITIAL, profile, config).active())
    found = set(evolve(before, profile, config).active())
    assert fresh <= found <= fresh | set(before.active())


@pytest.mark.parametrize(
    ("label", "part"),
    [
        (Label.ARGUMENT_MISMATCH, "schema_cues"),
        (Label.INVALID_TOOL_CALL, "schema_cues"),
        (Label.MISSING_TOOL_CALL, "affordance_cues"),
        (Label.RECOVERY_FAILURE, "recovery_feedback"),
        (Label.STATE_MISMATCH, "guideline:state_mismatch"),
    ],
)
def test_a_part_goes_only_below_the_relaxed_prevalence(label: Label, part: str) -> None:
    active = after(turns_of(label, 8))
    assert part in active.active()
    for percent, stays, starts in ((10, True, True), (8, True, False), (7, False, False)):
        profile = shares(**{label.value: percent, "response_mismatch": 100 - percent})
        # Fewer than eight are too few; this is about prevalence alone.
        config = replace(CONFIG, min_observations=1)
        assert (part in evolve(active, profile, config).active()) == stays
        assert (part in evolve(INITIAL, profile, config).active()) == starts


def test_what_is_active_is_mastered_later() -> None:
    active = after(turns_of(Label.STATE_MISMATCH, 8))
    for solved, stays in ((60, True), (67, True), (68, False)):  # 0.6 + 0.2 * (1 - 0.6)
        rounds = [
            turns_of(Label.STATE_MISMATCH, 100 - solved),
            turns_of(Label.STATE_MISMATCH, solved, 1.0),
        ]
        assert (after(*rounds, before=active).guidelines != ()) == stays
        assert after(*rounds).guidelines == ()


def test_what_is_active_needs_fewer_observations() -> None:
    active = after(turns_of(Label.STATE_MISMATCH, 8))
    assert after(turns_of(Label.STATE_MISMATCH, 7), before=active).guidelines != ()
    assert after(turns_of(Label.STATE_MISMATCH, 6), before=active).guidelines == ()  # < 6.4


def test_a_part_that_is_on_relaxes_nothing_for_another() -> None:
    cued = replace(INITIAL, schema_cues=True)
    found = evolve(cued, shares(argument_mismatch=9, response_mismatch=91), CONFIG)
    assert found.active() == ("schema_cues", "guideline:response_mismatch")


def test_a_part_that_was_switched_off_by_configuration_goes_at_once() -> None:
    off = InterfaceConfig(schema_cues=False, recovery_feedback=False, guidelines=False)
    assert after(turns_of(Label.ARGUMENT_MISMATCH, 50), config=off, before=ALL_ON).active() == ()


def test_a_newcomer_displaces_a_guideline_only_by_a_clearly_higher_score() -> None:
    one = replace(CONFIG, max_guidelines=1)
    shown = replace(INITIAL, guidelines=(Label.STATE_MISMATCH,))
    about_equal = shares(state_mismatch=46, missing_tool_call=54)  # 54 < 1.2 * 46
    clearly_more = shares(state_mismatch=45, missing_tool_call=55)  # 55 > 1.2 * 45
    assert evolve(shown, about_equal, one).guidelines == (Label.STATE_MISMATCH,)
    assert evolve(INITIAL, about_equal, one).guidelines == (Label.MISSING_TOOL_CALL,)
    assert evolve(shown, clearly_more, one).guidelines == (Label.MISSING_TOOL_CALL,)


def test_of_equals_the_guideline_that_is_shown_stays() -> None:
    one = replace(CONFIG, max_guidelines=1, hysteresis=0.0)
    shown = replace(INITIAL, guidelines=(Label.RESPONSE_MISMATCH,))
    equal = shares(state_mismatch=50, response_mismatch=50)
    assert evolve(shown, equal, one).guidelines == (Label.RESPONSE_MISMATCH,)
    assert evolve(INITIAL, equal, one).guidelines == (Label.STATE_MISMATCH,)


def test_two_guidelines_of_about_equal_score_do_not_swap_places() -> None:
    shown = replace(INITIAL, guidelines=(Label.RESPONSE_MISMATCH, Label.STATE_MISMATCH))
    about_equal = shares(state_mismatch=54, response_mismatch=46)
    clearly_more = shares(state_mismatch=55, response_mismatch=45)
    assert evolve(shown, about_equal, CONFIG).guidelines == shown.guidelines
    assert evolve(shown, clearly_more, CONFIG).guidelines == shown.guidelines[::-1]


def test_a_far_higher_newcomer_comes_first_and_another_last() -> None:
    shown = replace(INITIAL, guidelines=(Label.STATE_MISMATCH,))
    profile = shares(state_mismatch=30, missing_tool_call=50, response_mismatch=20)
    assert evolve(shown, profile, CONFIG).guidelines == (
        Label.MISSING_TOOL_CALL,
        Label.STATE_MISMATCH,
        Label.RESPONSE_MISMATCH,
    )


@UNTIMED
@given(interfaces, profiles)
def test_the_same_profile_again_changes_nothing(before: Interface, profile: FailureProfile) -> None:
    settled = evolve(before, profile, CONFIG)
    assert evolve(settled, profile, CONFIG) == settled


@pytest.mark.parametrize(
    "change",
    [
        {"min_prevalence": -0.1},
        {"min_prevalence": 1.1},
        {"max_mean_reward": 2},
        {"min_observations": 0},
        {"max_guidelines": -1},
        {"hysteresis": -0.1},
        {"choice": "everything"},
        {"choice": "random", "hysteresis": 0.2},
        {"hysteresis": 1.0},
        {"hysteresis": float("nan")},
    ],
)
def test_a_threshold_out_of_range_is_refused_by_name(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(change))):
        replace(CONFIG, **change)
