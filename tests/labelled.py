"""Turns and rollouts made up for tests: a label is all that matters of a turn."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from seal.coevolution.rollout import Rollout
from seal.labels import Label
from seal.wire import TurnDiagnosis


def turn(label: Label, cascade: bool = False) -> TurnDiagnosis:
    return TurnDiagnosis(0, label, "why", None, cascade)


def rollout(
    turns: Iterable[TurnDiagnosis | Label],
    reward: float = 0.0,
    category: str = "base",
    shown: bool = False,
    **fields: Any,
) -> Rollout:
    """A rollout whose turns have their places; `fields` are others of `Rollout`."""
    given = [one if isinstance(one, TurnDiagnosis) else turn(one) for one in turns]
    return Rollout(
        task_id=fields.pop("task_id", "task"),
        category=category,
        reward=reward,
        training_reward=reward,
        turns=tuple(replace(one, turn=place) for place, one in enumerate(given)),
        interface_shown=shown,
        **fields,
    )
