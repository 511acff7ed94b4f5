"""How many rollouts of a group are shown the interface."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seal.coevolution.exposure import Exposure


@given(st.floats(0, 1), st.integers(2, 100), st.integers(1, 64))
def test_it_falls_from_its_share_to_none(share: float, gone_at: int, rollouts: int) -> None:
    exposure = Exposure(share, gone_at)
    shown = [exposure.shown(step, rollouts) for step in range(1, gone_at + 3)]
    assert shown[0] == round(share * rollouts)
    assert shown == sorted(shown, reverse=True)
    assert set(shown[gone_at - 1 :]) == {0}


@pytest.mark.parametrize(
    "setting", [{"share": -0.1}, {"share": 1.1}, {"share": float("nan")}, {"gone_at": 1}]
)
def test_a_setting_out_of_range_is_refused_by_name(setting: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"seal.exposure.{next(iter(setting))}"):
        Exposure(**setting)
