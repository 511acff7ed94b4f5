"""Pools of synthetic tasks for tests: made once a session, from the clean split."""

import functools
import json
from pathlib import Path

from env_service.environments.bfcl.synthesis import making
from env_service.environments.bfcl.synthesis.proposals import Knobs, Proposer
from env_service.environments.bfcl.tasks import BfclTask, load_tasks

ROOT = Path(__file__).resolve().parents[2]
SPLIT = ROOT / "data" / "bfcl_clean_split.json"


@functools.cache
def sides() -> tuple[tuple[BfclTask, ...], tuple[BfclTask, ...]]:
    """Training tasks; evaluation and development tasks."""
    split = json.loads(SPLIT.read_text("utf-8"))
    known = load_tasks()
    training = tuple(known[one] for one in split["train"])
    return training, tuple(known[one] for side in ("val", "development") for one in split[side])


def proposer(knobs: Knobs) -> Proposer:
    """Of the clean split."""
    return Proposer(*sides(), knobs, "a hash")


@functools.cache
def made(count: int, knobs: Knobs = Knobs()) -> making.Draft:  # noqa: B008, it is frozen
    """A pool in memory."""
    return making.make(proposer(knobs), "tests", count, processes=1)


def tasks(count: int, knobs: Knobs = Knobs()) -> list[BfclTask]:  # noqa: B008
    """Its tasks."""
    return [one.task for one in made(count, knobs).candidates]
