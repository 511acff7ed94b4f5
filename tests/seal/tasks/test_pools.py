"""Pools of synthetic tasks: what is read, and what is refused with what to do."""

import json
from pathlib import Path
from typing import Any

import pytest
from pool_files import pool_rows, write_pool

from seal.labels import Label
from seal.tasks.pools import pool_of, read_pool, report_file, table_file
from seal.tasks.splits import BadData

NAME = "first_try-2"


def test_a_pool_is_read_in_order(tmp_path: Path) -> None:
    rows = pool_rows(NAME, 5)
    write_pool(tmp_path, NAME, rows)
    pool = read_pool(NAME, tmp_path)
    assert [task.task_id for task in pool.rows] == [row["task_id"] for row in rows]
    assert pool.rows[0].targets == (Label.STATE_MISMATCH,)
    assert pool.rows[3].targets == ()
    assert pool.rows[1].prompt == ({"role": "user", "content": "do 1"},)
    assert pool.scenarios == {7, 17}
    facts = json.loads(report_file(tmp_path, NAME).read_text())
    assert pool.tasks_sha256 == facts["tasks_sha256"]


@pytest.mark.parametrize(
    ("task_id", "pool"),
    [
        ("synthetic_a_000123_17", "a"),
        ("synthetic_a_b-2_1234567_0", "a_b-2"),
        ("synthetic_a_000001_2_000123_17", "a_000001_2"),
        ("synthetic_000123_17", None),
        ("multi_turn_base_17", None),
    ],
)
def test_a_task_names_its_pool(task_id: str, pool: str | None) -> None:
    assert pool_of(task_id) == pool


def test_a_missing_pool_names_the_command_that_makes_it(tmp_path: Path) -> None:
    with pytest.raises(BadData, match=f"no pool '{NAME}'.*synthesis make {NAME} --split"):
        read_pool(NAME, tmp_path)
    write_pool(tmp_path, NAME, pool_rows(NAME, 1))
    report_file(tmp_path, NAME).unlink()
    with pytest.raises(BadData, match="report.json is missing"):
        read_pool(NAME, tmp_path)


def test_a_table_and_its_report_belong_together(tmp_path: Path) -> None:
    write_pool(tmp_path, NAME, pool_rows(NAME, 3))
    with table_file(tmp_path, NAME).open("a") as table:
        table.write(json.dumps(pool_rows(NAME, 4)[-1]) + "\n")
    with pytest.raises(BadData, match="is not the report of"):
        read_pool(NAME, tmp_path)
    report_file(tmp_path, NAME).write_text("[]")
    with pytest.raises(BadData, match="is not the report of"):
        read_pool(NAME, tmp_path)
    report_file(tmp_path, NAME).write_text("{")
    with pytest.raises(BadData, match="cannot read the pool"):
        read_pool(NAME, tmp_path)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"targets": ["laziness"]}, "line 2.*unknown diagnostic label"),
        ({"targets": None}, "line 2.*not a task"),
        ({"task_id": "synthetic_other_000001_17"}, "no task of the pool"),
        ({"task_id": "multi_turn_base_17"}, "no task of the pool"),
        ({"seed_task": "multi_turn_base"}, "no task of the pool"),
        ({"prompt": ["do it"]}, "not a task"),
        ({"task_id": pool_rows(NAME, 1)[0]["task_id"]}, "has no task, or one twice"),
    ],
)
def test_a_line_that_is_no_task_is_refused(
    tmp_path: Path, changes: dict[str, Any], reason: str
) -> None:
    rows = pool_rows(NAME, 3)
    write_pool(tmp_path, NAME, [rows[0], {**rows[1], **changes}, rows[2]])
    with pytest.raises(BadData, match=reason):
        read_pool(NAME, tmp_path)


def test_an_empty_pool_is_refused(tmp_path: Path) -> None:
    write_pool(tmp_path, NAME, [])
    with pytest.raises(BadData, match="has no task"):
        read_pool(NAME, tmp_path)
