"""Advantages that are balanced within their group."""

from itertools import groupby
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from verl.trainer.ppo.core_algos import agg_loss

from seal.train.advantages import PER_DIALOGUE, balanced

# Rollouts: group, weighted advantage, tokens that the policy wrote, tokens of the environment.
SIZES = st.floats(0.01, 5.0)
ROLLOUTS = st.lists(
    st.tuples(
        st.sampled_from("abc"),
        st.one_of(SIZES, SIZES.map(lambda size: -size), st.just(0.0)),
        st.integers(1, 30),
        st.integers(0, 30),
    ),
    max_size=20,
)


@given(ROLLOUTS, st.sampled_from(["token-mean", PER_DIALOGUE]))
def test_a_group_with_both_signs_adds_up_to_nothing_and_keeps_its_signs(
    rollouts: Any, aggregation: str
) -> None:
    rollouts = sorted(rollouts, key=lambda one: one[0])
    before = [
        torch.tensor([size] * own + [0.0] * others, dtype=torch.float64)
        for _, size, own, others in rollouts
    ]
    groups = [group for group, *_ in rollouts]
    masks = [torch.tensor([1] * own + [0] * others) for _, _, own, others in rollouts]
    after, weights = balanced(before, [(1.0, 2.0)] * len(rollouts), groups, masks, aggregation)
    for old, new, (first, second) in zip(before, after, weights, strict=True):
        assert torch.equal(old.sign(), new.sign())
        assert torch.allclose(new, old * first) and second == 2 * first
        # What passed stays as it is.
        assert torch.equal(old, new) or float(old.sum()) < 0
    for _, numbers in groupby(range(len(rollouts)), key=groups.__getitem__):
        ours = list(numbers)
        sums = [float(before[number].sum()) for number in ours]
        if min(sums) < 0 < max(sums):
            # verl's own loss of advantages, at a ratio of 1.
            loss = sum(
                agg_loss(after[number][None], masks[number][None], aggregation, 1, 1, 1)
                for number in ours
            )
            assert float(loss) == pytest.approx(0, abs=1e-6)
        else:
            assert all(torch.equal(before[number], after[number]) for number in ours)
