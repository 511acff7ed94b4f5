"""What is in a pool: counts and shares, as JSON and as lines to read.

In: the lines of a pool, and what it was made from. Out: the report, which depends on nothing else,
and its text.
"""

import ast
import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from env_service.environments.bfcl.synthesis.tools import every_tool

Report: TypeAlias = dict[str, Any]

PLACES = 3
"""Decimals of shares and means."""


@dataclass(frozen=True)
class Origin:
    """What a pool was made from, besides what each task says of itself."""

    side: str
    """Side of the split that lends the seeds."""
    apart_from: Mapping[str, str]
    """Pools made before from which it is kept apart, with the hashes of their tasks."""


def report_on(
    name: str, lines: str, table: str, origin: Origin, refused: Mapping[tuple[str, str], int]
) -> Report:
    """The report of a pool.

    Args:
        name: The pool.
        lines: Content of its file of tasks; at least one line.
        table: Content of the trainer's table.
        origin: What it was made from.
        refused: Author and reason -> attempts.
    """
    by_author: dict[str, Counter[str]] = {}
    for (author, reason), times in refused.items():
        by_author.setdefault(author, Counter())[reason] += times
    rows = [json.loads(line) for line in lines.splitlines()]
    count = len(rows)
    sources = [row["provenance"] for row in rows]
    turns = [turn for row in rows for turn in row["reference"] if turn]
    calls = [_tool_of(call) for turn in turns for call in turn]
    first = sources[0]
    return {
        "pool": name,
        "tasks": count,
        "attempts": count + sum(refused.values()),
        "refused": _by_size(sum(by_author.values(), Counter())),
        "categories": _counts(row["category"] for row in rows),
        "seed_tasks": len({source["seed_task"] for source in sources}),
        "tools": _counts(calls),
        "tools_not_used": sorted(every_tool().keys() - set(calls)),
        "turns_with_calls_mean": _share(len(turns), count),
        "calls_of_a_turn_mean": _share(len(calls), len(turns)),
        "changing_calls_share": _share(_sum(sources, "changing_calls"), len(calls)),
        "calls_with_an_earlier_result_share": _share(_sum(sources, "result_calls"), len(calls)),
        "values_said_indirectly": _sum(sources, "indirect_values"),
        "targets_share": {
            label: _share(times, count)
            for label, times in _counts(t for source in sources for t in source["targets"]).items()
        },
        "authors": _counts(source["author"] for source in sources),
        "refused_by_author": {name: _by_size(by_author[name]) for name in sorted(by_author)},
        "side": origin.side,
        "apart_from": dict(sorted(origin.apart_from.items())),
        "split_sha256": first["split_sha256"],
        "wording_sha256": first["wording_sha256"],
        "bfcl_eval": first["bfcl_eval"],
        "tasks_sha256": _sha256(lines),
        "table_sha256": _sha256(table),
    }


def text_of(report: Report) -> str:
    """The report as lines to read."""
    kept = _share(report["tasks"], report["attempts"])
    rows = [
        ("tasks", f"{report['tasks']} of {report['attempts']} attempts ({kept:.0%})"),
        *_of_authors(report),
        *((f"  refused: {reason}", times) for reason, times in report["refused"].items()),
        *((f"  {category}", times) for category, times in report["categories"].items()),
        ("seed tasks", f"{report['seed_tasks']} of side {report['side']}"),
        *(("kept apart from pool", name) for name in report["apart_from"]),
        ("tools", f"{len(report['tools'])}, not used: {len(report['tools_not_used'])}"),
        ("turns with calls, mean", report["turns_with_calls_mean"]),
        ("calls of a turn, mean", report["calls_of_a_turn_mean"]),
        ("calls that change the state", f"{report['changing_calls_share']:.0%}"),
        ("calls with an earlier result", f"{report['calls_with_an_earlier_result_share']:.0%}"),
        ("values said indirectly", report["values_said_indirectly"]),
        *((f"  can go wrong: {label}", f"{s:.0%}") for label, s in report["targets_share"].items()),
        ("hash of the tasks", report["tasks_sha256"]),
    ]
    width = max(len(head) for head, _ in rows)
    return "".join(f"{head:<{width}}  {value}\n" for head, value in rows)


def _by_size(counts: Mapping[str, int]) -> dict[str, int]:
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def _of_authors(report: Report) -> list[tuple[str, str]]:
    """What each author has proposed and how much of it was kept."""
    refused = {name: sum(reasons.values()) for name, reasons in report["refused_by_author"].items()}
    names = sorted({*report["authors"], *refused})
    kept = {name: report["authors"].get(name, 0) for name in names}
    return [
        (f"  of {name}", f"{kept[name]} of {kept[name] + refused.get(name, 0)}") for name in names
    ]


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _tool_of(call: str) -> str:
    node = ast.parse(call, mode="eval").body
    assert isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    return node.func.id


def _counts(values: Any) -> dict[str, int]:
    return dict(sorted(Counter(values).items()))


def _sum(sources: list[Mapping[str, Any]], key: str) -> int:
    return sum(source[key] for source in sources)


def _share(part: float, whole: float) -> float:
    return round(part / whole, PLACES)
