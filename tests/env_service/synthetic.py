"""Pools of synthetic tasks for tests: made once a session, from the clean split."""

import functools
from pathlib import Path

from env_service.environments.bfcl.synthesis import making
from env_service.environments.bfcl.synthesis.proposals import Knobs, Proposer
from env_service.environments.bfcl.synthesis.sides import Sides, read_sides
from env_service.environments.bfcl.tasks import BfclTask

ROOT = Path(__file__).resolve().parents[2]
SPLIT = ROOT / "data" / "bfcl_clean_split.json"


@functools.cache
def sides(side: str = "train") -> Sides:
    """The clean split, as seen from a side."""
    return read_sides(SPLIT, side)


def proposer(knobs: Knobs) -> Proposer:
    """Of the clean split."""
    return Proposer(sides(), knobs)


@functools.cache
def made(count: int, knobs: Knobs = Knobs()) -> making.Draft:  # noqa: B008, it is frozen
    """A pool in memory."""
    return making.make(proposer(knobs), "tests", count, processes=1)


def tasks(count: int, knobs: Knobs = Knobs()) -> list[BfclTask]:  # noqa: B008
    """Its tasks."""
    return [one.task for one in made(count, knobs).candidates]
