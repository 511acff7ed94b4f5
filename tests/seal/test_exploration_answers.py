"""Candidates in what a model writes: whole, in prose, cut off, or not at all."""

import json
from collections import Counter
from typing import Any

import pytest

from seal.exploration.answers import (
    LONGEST_ANSWER,
    NO_JSON,
    NO_PARAGRAPH,
    NO_TASKS,
    TOO_LONG,
    message_in,
    tasks_in,
)

TASK: dict[str, Any] = {"turns": [{"text": "List it.", "calls": [{"name": "ls"}]}]}
TEXT = json.dumps(TASK)
MANY = 10_000


@pytest.mark.parametrize(
    ("answer", "count", "unreadable"),
    [
        (json.dumps({"tasks": [TASK, TASK]}), 2, {}),
        (json.dumps([TASK]), 1, {}),
        (TEXT, 1, {}),
        (json.dumps({"title": "x", **TASK}), 1, {}),
        (f"Of course [1]:\n```json\n[{TEXT}]\n```\nGood luck!", 1, {}),
        (f'{{"tasks": [{TEXT}, {TEXT}, {{"turns": [{{"text": "Cut', 2, {}),
        (f'{{"tasks": [{TEXT},]}}', 1, {}),
        (f"<think>{TEXT}</think>I cannot.", 0, {NO_JSON: 1}),
        (f"{TEXT}<think>", 1, {}),
        ("I am sorry, but I cannot help with that.", 0, {NO_JSON: 1}),
        ("", 0, {NO_JSON: 1}),
        ('{"answer": 42}', 0, {NO_TASKS: 1}),
        ('{"tasks": []}', 0, {NO_TASKS: 1}),
        (json.dumps({"tasks": [TASK, {"turns": 3}, "x"]}), 1, {"a task has no turns": 2}),
        ("[" * MANY, 0, {NO_JSON: 1}),
        ('{"turns": ' * MANY, 0, {NO_JSON: 1}),
        ("x" * (LONGEST_ANSWER + 1), 0, {TOO_LONG: 1}),
        (json.dumps({"tasks": [TASK] * 9}), 4, {}),
    ],
)
def test_tasks(answer: str, count: int, unreadable: dict[str, int]) -> None:
    read = tasks_in(answer, 4)
    assert (len(read.values), read.unreadable) == (count, Counter(unreadable))


@pytest.mark.parametrize(
    ("answer", "said", "unreadable"),
    [
        ("Do a.\n", ["Do a."], {}),
        ('"Do a."', ["Do a."], {}),
        ("'a' and 'b'", ["'a' and 'b'"], {}),
        ("<think>Hm.</think>\n\nDo a.", ["Do a."], {}),
        ("Sure, here it is:\n\nDo a.", [], {NO_PARAGRAPH: 1}),
        ("", [], {NO_PARAGRAPH: 1}),
        ("x" * 5000, [], {"a turn's text has more than 4000 characters": 1}),
        ("\ud83d", [], {"a text has half of a surrogate pair": 1}),
        ("x" * (LONGEST_ANSWER + 1), [], {TOO_LONG: 1}),
    ],
)
def test_messages(answer: str, said: list[str], unreadable: dict[str, int]) -> None:
    read = message_in(answer)
    assert (read.values, read.unreadable) == (said, Counter(unreadable))
