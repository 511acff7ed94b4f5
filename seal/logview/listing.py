"""Lists of rollouts: filters, pages, and what can be chosen.

In: the rollouts of a step and what the address asks for. Out: the values that the template of a
list writes down. Pure functions. Called by `seal.logview.views`.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from seal.coevolution.labels import Label
from seal.logview.records import Turn

PAGE_ROWS = 200
"""Rollouts that one page lists."""


@dataclass(frozen=True)
class Filters:
    """Which rollouts of a list are shown; an empty text asks for all."""

    task: str = ""
    """Part of the task id."""
    category: str = ""
    label: str = ""
    """Of any turn."""
    reward: str = ""
    """As `number` writes it."""
    suite: str = ""
    page: int = 1

    @classmethod
    def of(cls, query: Mapping[str, str]) -> "Filters":
        """Read an address; what is no filter is ignored, and so is a page that is no number."""
        texts = {f.name: query.get(f.name, "").strip()[:200] for f in fields(cls)}
        page = texts.pop("page")
        return cls(**texts, page=max(1, int(page)) if page.isdecimal() and len(page) < 9 else 1)

    def match(
        self, task: str, category: str, labels: Iterable[str], reward: float, suite: str = ""
    ) -> bool:
        """Whether a rollout is to be shown."""
        return (
            self.task in task
            and self.category in ("", category)
            and (not self.label or self.label in labels)
            and self.reward in ("", number(reward))
            and self.suite in ("", suite)
        )


@dataclass(frozen=True)
class Listed:
    """A rollout in a list."""

    line: int | None
    """Line of its dialogue, None where there is none."""
    task: str
    category: str
    suite: str
    reward: float
    weight: float | None
    """None of a rollout that was not trained on, or of which the loop log says nothing."""
    turns: Sequence[Turn]
    version: int | None
    truncated: bool


def listing(listed: list[Listed], filters: Filters) -> dict[str, Any]:
    """The part of a list that the filters leave, a page of it, and what can be chosen."""
    left = [
        row
        for row in listed
        if filters.match(
            row.task, row.category, [turn.label for turn in row.turns], row.reward, row.suite
        )
    ]
    pages = max(1, math.ceil(len(left) / PAGE_ROWS))
    page = min(filters.page, pages)
    return {
        "filters": filters,
        "listed": left[(page - 1) * PAGE_ROWS : page * PAGE_ROWS],
        "page": page,
        "pages": pages,
        "left": len(left),
        "total": len(listed),
        "choices": {
            "task": sorted({row.task for row in listed} - {""}),
            "suite": sorted({row.suite for row in listed} - {""}),
            "category": sorted({row.category for row in listed} - {""}),
            "label": ordered({turn.label for row in listed for turn in row.turns}),
            "reward": [number(reward) for reward in sorted({row.reward for row in listed})],
        },
    }


def ordered(labels: Iterable[str]) -> list[str]:
    """Labels in the order of their vocabulary, others behind them."""
    places = {label.value: place for place, label in enumerate(Label)}
    return sorted(labels, key=lambda label: (places.get(label, len(places)), label))


def number(value: float) -> str:
    """At most four significant digits."""
    return f"{value:.4g}"
