"""Labels to the weight of a trajectory."""

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seal.coevolution.labels import EXCLUDED, Label
from seal.coevolution.weights import UTILITIES, WeightConfig, trajectory_weight

# Run times on a shared machine say nothing; what is slow is tested by itself.
UNTIMED = settings(deadline=None)

label_lists = st.lists(st.sampled_from(Label), max_size=30)


def test_the_weight_is_the_expected_utility() -> None:
    labels = [Label.PASS] * 3 + [Label.INVALID_TOOL_CALL]
    assert trajectory_weight(labels, WeightConfig()) == pytest.approx((3 * 1.0 + 2.0) / 4)


def test_the_weight_is_clipped() -> None:
    config = WeightConfig(w_min=0.9, w_max=1.5)
    assert trajectory_weight([Label.INVALID_TOOL_CALL], config) == 1.5
    assert trajectory_weight([Label.INSTANCE_MISMATCH], config) == 0.9


def test_without_labels_that_count_the_weight_is_exactly_one() -> None:
    config = WeightConfig(w_min=1.5, w_max=2.0)
    assert trajectory_weight([], config) == 1.0
    assert trajectory_weight(sorted(EXCLUDED), config) == 1.0


def test_excluded_labels_do_not_dilute() -> None:
    counted = [Label.MISSING_TOOL_CALL]
    config = WeightConfig()
    assert trajectory_weight([*counted, *EXCLUDED], config) == trajectory_weight(counted, config)


@UNTIMED
@given(label_lists)
def test_the_weight_is_positive_and_within_bounds(labels: list[Label]) -> None:
    config = WeightConfig()
    weight = trajectory_weight(labels, config)
    assert 0 < config.w_min <= weight <= config.w_max


@UNTIMED
@given(label_lists, st.randoms(use_true_random=False))
def test_the_order_of_turns_does_not_matter(labels: list[Label], rng: random.Random) -> None:
    shuffled = list(labels)
    rng.shuffle(shuffled)
    assert trajectory_weight(labels, WeightConfig()) == trajectory_weight(shuffled, WeightConfig())


def test_every_label_that_counts_has_a_utility() -> None:
    assert set(UTILITIES) == set(Label) - EXCLUDED


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"w_min": 0.0}, "w_min=0.0"),
        ({"w_min": 3.0}, "w_min=3.0"),
        ({"w_max": math.inf}, "w_max=inf"),
        ({"w_min": math.nan}, "w_min=nan"),
        ({"utilities": {**UTILITIES, Label.PASS: 0.0}}, "utility of pass .* got 0.0"),
        ({"utilities": {**UTILITIES, Label.PASS: math.inf}}, "utility of pass"),
        ({"utilities": {**UTILITIES, Label.CHECKER_ERROR: 1.0}}, "checker_error carries no weight"),
        ({"utilities": {Label.PASS: 1.0}}, "no utility for invalid_tool_call"),
    ],
)
def test_a_bad_configuration_is_refused_by_name(change: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        WeightConfig(**change)  # type: ignore[arg-type]
