"""The file of candidates: what is written is read again, and what is none of it says why."""

import json
from pathlib import Path
from typing import Any

import pytest

from seal.records.candidates import (
    DEEPEST,
    LONGEST_TEXT,
    MOST_CALLS,
    MOST_TURNS,
    candidate_of,
    proposed_of,
    read_proposed,
)
from seal.records.json_lines import BadLine, append_json_lines

CALL: dict[str, Any] = {"name": "mkdir", "arguments": {"dir_name": "alpha"}}
TURN: dict[str, Any] = {"text": "Make alpha.", "calls": [CALL]}
LINE: dict[str, Any] = {
    "author": "a model",
    "seed_task": "multi_turn_base_17",
    "candidates": [{"turns": [TURN]}],
}
POOL_TASK = "synthetic_a_pool-2_000123_17"


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def test_a_line_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    line = {**LINE, "unreadable": {"a reason": 2}, "calls": 3, "tokens": 99, "settings": {"a": 1}}
    proposed = proposed_of(line)
    append_json_lines(path, proposed.to_json(), LINE)
    assert read_proposed(path) == [proposed, proposed_of(LINE)]
    assert json.loads(path.read_text("utf-8").splitlines()[0]) == line


def test_a_pools_task_is_reworded_without_calls() -> None:
    turns = [{"text": "Create alpha."}, {"text": ""}]
    line = proposed_of({**LINE, "seed_task": POOL_TASK, "candidates": [{"turns": turns}]})
    assert line.pool == "a_pool-2"
    assert [turn.text for turn in line.candidates[0].turns] == ["Create alpha.", ""]
    with pytest.raises(BadLine, match="a rewording has calls of its own"):
        proposed_of({**LINE, "seed_task": POOL_TASK})
    assert proposed_of(LINE).pool is None
    for name in ("synthetic_../x_000001_1", "synthetic__000001_1", "synthetic_a_1_1"):
        assert proposed_of({**LINE, "seed_task": name}).pool is None


def call(**changes: Any) -> dict[str, Any]:
    return {"turns": [{**TURN, "calls": [{**CALL, **changes}]}]}


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("text", "a task has no turns"),
        ({"turns": []}, "a task has no turns"),
        ({"turns": [TURN] * (MOST_TURNS + 1)}, "more than 20 turns"),
        ({"turns": ["text"]}, "a turn is no object"),
        ({"turns": [{**TURN, "text": " "}]}, "a turn has no text"),
        ({"turns": [{**TURN, "text": "x" * (LONGEST_TEXT + 1)}]}, "more than 4000 characters"),
        ({"turns": [{**TURN, "text": "\ud83d"}]}, "half of a surrogate pair"),
        ({"turns": [{**TURN, "calls": []}]}, "a turn has no calls"),
        ({"turns": [{**TURN, "calls": "ls()"}]}, "a turn has no calls"),
        ({"turns": [{**TURN, "calls": [CALL] * (MOST_CALLS + 1)}]}, "more than 20 calls"),
        ({"turns": [{**TURN, "calls": ["ls()"]}]}, "a call is no object"),
        (call(name="os.system"), "a call has no name of a tool"),
        (call(name="ls() or print"), "a call has no name of a tool"),
        (call(arguments=[1]), "arguments are no object with names"),
        (call(arguments={"a=1, b": 2}), "arguments are no object with names"),
        (call(arguments={"a": nested(DEEPEST)}), "nested too deeply"),
        (call(arguments={"a": float("nan")}), "a number that is not finite"),
        (call(arguments={"a": ["\udc00"]}), "half of a surrogate pair"),
        (call(arguments={"a": "x" * LONGEST_TEXT}), "more than 4000 characters"),
    ],
)
def test_what_is_no_candidate_says_why(value: Any, why: str) -> None:
    with pytest.raises(BadLine, match=why):
        candidate_of(value)


def test_the_limits_themselves_are_kept() -> None:
    assert candidate_of(call(arguments={"a": nested(DEEPEST - 1)}))
    assert candidate_of({"turns": [{**TURN, "calls": [CALL] * MOST_CALLS}] * MOST_TURNS})
    assert candidate_of({"turns": [{"message": "Go.", "calls": [{"name": "ls"}]}]})


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"author": ""}, "'author' and 'seed_task'"),
        ({"seed_task": 3}, "'author' and 'seed_task'"),
        ({"candidates": {}}, "the list 'candidates'"),
        ({"unreadable": {"a": -1}}, "for each reason how often"),
        ({"tokens": 1.5}, "whole numbers"),
        ({"settings": []}, "an object"),
    ],
)
def test_a_broken_line_is_named(tmp_path: Path, changes: dict[str, Any], why: str) -> None:
    path = tmp_path / "c.jsonl"
    append_json_lines(path, LINE, {**LINE, **changes})
    with pytest.raises(BadLine, match=f"line 2: .*{why}"):
        read_proposed(path)
