"""A pool of synthetic tasks as files, without the service: the trainer's half."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from seal.tasks.pools import report_file, table_file

TARGETS = ("state_mismatch", "missing_tool_call", "spurious_tool_call")


def pool_rows(name: str, count: int, scenarios: Sequence[int] = (7, 17)) -> list[dict[str, Any]]:
    """Lines of a pool: task i invites the failure i % 4 of TARGETS, the fourth nothing."""
    return [
        {
            "task_id": f"synthetic_{name}_{number:06d}_{scenarios[number % len(scenarios)]}",
            "category": "multi_turn_base",
            "prompt": [{"role": "user", "content": f"do {number}"}],
            "targets": list(TARGETS[number % 4 : number % 4 + 1]),
            "seed_task": f"multi_turn_base_{scenarios[number % len(scenarios)]}",
        }
        for number in range(count)
    ]


def write_pool(root: Path, name: str, rows: Sequence[dict[str, Any]]) -> None:
    """Write the table and the report of a pool into a project's folder."""
    table = table_file(root, name)
    table.parent.mkdir(parents=True, exist_ok=True)
    table.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    hashes = {
        "table_sha256": hashlib.sha256(table.read_bytes()).hexdigest(),
        "tasks_sha256": hashlib.sha256(b"with references").hexdigest(),
    }
    report_file(root, name).write_text(json.dumps({"pool": name, **hashes}), "utf-8")
