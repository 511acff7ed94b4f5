"""Lists of rollouts: filters, pages, and what can be chosen.

In: the rollouts of a step and what the address asks for. Out: the values for the template of a
list. Pure functions.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from seal.labels import Label
from seal.logview.lines import Turn

PAGE_ROWS = 200
"""Rollouts that one page lists."""


@dataclass(frozen=True)
class Filters:
    """Which rollouts of a list are shown; an empty text means all."""

    task: str = ""
    """Part of the task id."""
    category: str = ""
    label: str = ""
    """Of at least one turn."""
    reward: str = ""
    """As `number` writes it."""
    suite: str = ""
    page: int = 1

    @classmethod
    def of(cls, query: Mapping[str, str]) -> "Filters":
        """Read an address; ignores what is no filter, and a page that is no number."""
        texts = {f.name: query.get(f.name, "").strip()[:200] for f in fields(cls)}
        page = texts.pop("page")
        return cls(**texts, page=max(1, int(page)) if page.isdecimal() and len(page) < 9 else 1)

    def match(self, row: "Listed") -> bool:
        """Whether a rollout is to be shown."""
        return (
            self.task in row.task
            and self.category in ("", row.category)
            and (not self.label or any(turn.label == self.label for turn in row.turns))
            and self.reward in ("", number(row.reward))
            and self.suite in ("", row.suite)
        )


@dataclass(frozen=True)
class Listed:
    """A rollout in a list."""

    line: int | None
    """Line of its dialogue; None if it has none."""
    task: str
    category: str
    suite: str
    reward: float
    weight: float | None
    """None for a rollout that was not trained on or is not in the loop log."""
    turns: Sequence[Turn]
    limit: str
    """The limit that ended it; "" if none did. Older logs do not say which: "truncated"."""


def listing(listed: list[Listed], filters: Filters) -> dict[str, Any]:
    """The rows that the filters leave, one page of them, and the choices of each filter."""
    left = [row for row in listed if filters.match(row)]
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
    """Labels in the order of their vocabulary, then unknown ones."""
    places = {label.value: place for place, label in enumerate(Label)}
    return sorted(labels, key=lambda label: (places.get(label, len(places)), label))


def number(value: float) -> str:
    """At most four significant digits."""
    return f"{value:.4g}"
