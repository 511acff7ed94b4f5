"""Candidates in the text that a model wrote.

In: an answer. Out: the candidates that it holds, and why the rest of it is none, by reason. Nothing
here raises on text, and nothing of the text is executed.
"""

import json
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from seal.formats.message import THINK_CLOSE, THINK_OPEN
from seal.records.candidates import Candidate, candidate_of
from seal.records.json_lines import BadLine

Read = TypeVar("Read")

LONGEST_ANSWER = 200_000
"""Characters of an answer that is read."""
NO_JSON = "the answer holds no JSON"
NO_TASKS = "the answer holds no tasks"
TOO_LONG = f"the answer has more than {LONGEST_ANSWER} characters"
NO_PARAGRAPH = "the answer is not one paragraph"
_STARTS = re.compile(r"[\[{]")
_TASK = re.compile(r'\{\s*"turns"')
_MOST_STARTS = 20
"""Places from which JSON is tried to be read: each costs time."""


@dataclass
class Reading(Generic[Read]):
    """What could be read."""

    values: list[Read] = field(default_factory=list)
    """Candidates, or messages, in the answer's order."""
    unreadable: Counter[str] = field(default_factory=Counter)
    """Reason -> how often."""


def tasks_in(text: str, most: int) -> Reading[Candidate]:
    """New tasks: {"tasks": [{"turns": ...}, ...]}, such a list, or one task.

    If the JSON as a whole is broken, for instance cut off, its complete tasks are still read. Tasks
    beyond `most` are left out.

    >>> tasks_in("I am sorry, I cannot do that.", 4).unreadable
    Counter({'the answer holds no JSON': 1})
    """
    reading = Reading[Candidate]()
    if len(text) > LONGEST_ANSWER:
        reading.unreadable[TOO_LONG] += 1
        return reading
    text = _without_thinking(text)
    value = _first_json(text)
    tasks = _tasks_of(value) or _whole_tasks(text)
    if not tasks and isinstance(value, dict) and "turns" in value:
        tasks = [value]
    if not tasks:
        reading.unreadable[NO_JSON if value is None else NO_TASKS] += 1
    for task in tasks[:most]:
        try:
            reading.values.append(candidate_of(task))
        except BadLine as reason:
            reading.unreadable[str(reason)] += 1
    return reading


def message_in(text: str) -> Reading[str]:
    """Other words for one message: an answer of one paragraph, without quotes around it.

    >>> message_in('"Please make the folder alpha."').values
    ['Please make the folder alpha.']
    """
    reading = Reading[str]()
    said = _without_thinking(text[: LONGEST_ANSWER + 1]).strip()
    for quote in "\"'":
        if len(said) > 1 and said[0] == said[-1] == quote and said.count(quote) == 2:
            said = said[1:-1].strip()
    if len(text) > LONGEST_ANSWER:
        reading.unreadable[TOO_LONG] += 1
    elif not said or "\n" in said:
        reading.unreadable[NO_PARAGRAPH] += 1
    else:
        try:
            checked = candidate_of({"turns": [{"text": said}]}, rewords=True)
        except BadLine as reason:
            reading.unreadable[str(reason)] += 1
        else:
            reading.values.append(checked.turns[0].text)
    return reading


def _without_thinking(text: str) -> str:
    """The text after the last thinking block; the prompt may have opened it."""
    return text.rpartition(THINK_CLOSE)[2].partition(THINK_OPEN)[0]


def _first_json(text: str) -> Any:
    """The first list or object in a text; None if there is none."""
    for number, match in enumerate(_STARTS.finditer(text)):
        if number == _MOST_STARTS:
            break
        try:
            return json.JSONDecoder().raw_decode(text, match.start())[0]
        except (ValueError, RecursionError):
            continue
    return None


def _tasks_of(value: Any) -> list[Any]:
    """The tasks of an answer that could be read as a whole; none if it is something else."""
    if isinstance(value, dict):
        tasks = value.get("tasks")
        return tasks if isinstance(tasks, list) else []
    is_list = isinstance(value, list) and any(
        isinstance(item, dict) and "turns" in item for item in value
    )
    return value if is_list else []


def _whole_tasks(text: str) -> list[Any]:
    """The tasks that are complete in an answer that is not."""
    tasks: list[Any] = []
    end = 0
    for number, match in enumerate(_TASK.finditer(text)):
        if number == _MOST_STARTS:
            break
        if match.start() < end:
            continue
        try:
            task, end = json.JSONDecoder().raw_decode(text, match.start())
        except (ValueError, RecursionError):
            continue
        tasks.append(task)
    return tasks
