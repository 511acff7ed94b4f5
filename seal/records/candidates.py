"""Candidates: tasks that a model proposes, in the file that explorer and synthesiser share.

In: JSON that a model or a person wrote. Out: typed candidates, or `BadLine` with a reason that can
be counted. scripts/explore.py writes the file, and the synthesiser (env_service) reads it. Nothing
here knows whether a tool exists or what a call does: only the synthesiser finds out.

A line is what one author made of one seed, so a seed is finished as soon as its line is there:

    {"author": "qwen-plus", "seed_task": "multi_turn_base_17", "candidates": [{"turns": [
        {"text": "Make the folder alpha.", "calls": [{"name": "mkdir", "arguments":
            {"dir_name": "alpha"}}]}]}]}

A seed is a training task, whose world the candidates have. If it is the task of a pool
(synthetic_...), the candidates reword it: they have the same turns, and no calls of their own.
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from seal.formats import ToolCall
from seal.records.json_lines import BadLine, read_json_lines

MOST_TURNS = 20
MOST_CALLS = 20
"""Calls of a turn."""
LONGEST_TEXT = 4000
"""Characters of a turn's text, and of a call's arguments as JSON."""
DEEPEST = 8
"""Lists and objects within each other in a call's arguments."""
POOL_TASK = re.compile(r"synthetic_([A-Za-z0-9][A-Za-z0-9_-]*)_\d{6,}_\d+")
"""Id of a pool's task; the group is the pool's name."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,79}")


@dataclass(frozen=True)
class CandidateTurn:
    """One turn of a candidate."""

    text: str
    """What the user says; empty only where a reworded turn has no message."""
    calls: tuple[ToolCall, ...]
    """What is to be called; empty in a rewording."""


@dataclass(frozen=True)
class Candidate:
    """A task that is proposed, and that nobody has checked yet."""

    turns: tuple[CandidateTurn, ...]
    """At least one."""


@dataclass(frozen=True)
class Proposed:
    """What one author made of one seed."""

    author: str
    """Name of the model."""
    seed_task: str
    """The training task whose world it is, or the pool's task that is reworded."""
    candidates: tuple[Candidate, ...]
    """In the order of the answer."""
    unreadable: Mapping[str, int] = field(default_factory=dict)
    """Why something in the answer is no candidate -> how often."""
    calls: int = 0
    """Calls that were made to explore."""
    tokens: int = 0
    """Tokens of prompts and answers, as the endpoint has counted them."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """What it was asked with."""

    @property
    def pool(self) -> str | None:
        """Name of the pool whose task is reworded; None for new tasks."""
        match = POOL_TASK.fullmatch(self.seed_task)
        return match and match[1]

    def to_json(self) -> dict[str, Any]:
        """The line of the file; `proposed_of` reads it."""
        return {**vars(self), "candidates": [_candidate_json(one) for one in self.candidates]}


def read_proposed(path: Path) -> list[Proposed]:
    """The lines of a file.

    Raises:
        BadLine: A line is none of this format; the message names it.
        OSError: The file cannot be read.
    """
    return list(read_json_lines(path, lambda _, line: proposed_of(line)))


def proposed_of(line: Mapping[str, Any]) -> Proposed:
    """What a line says.

    Raises:
        BadLine: It is none of this format.
    """
    author, seed = line.get("author"), line.get("seed_task")
    if not (isinstance(author, str) and author and isinstance(seed, str) and seed):
        raise BadLine("expected the texts 'author' and 'seed_task'")
    candidates, unreadable = line.get("candidates"), line.get("unreadable", {})
    if not isinstance(candidates, list):
        raise BadLine("expected the list 'candidates'")
    if not (isinstance(unreadable, dict) and all(map(_is_count, unreadable.values()))):
        raise BadLine("'unreadable' has to say for each reason how often")
    calls, tokens, settings = line.get("calls", 0), line.get("tokens", 0), line.get("settings", {})
    if not (_is_count(calls) and _is_count(tokens) and isinstance(settings, dict)):
        raise BadLine("'calls' and 'tokens' have to be whole numbers, 'settings' an object")
    rewords = POOL_TASK.fullmatch(seed) is not None
    read = tuple(candidate_of(value, rewords=rewords) for value in candidates)
    return Proposed(author, seed, read, unreadable, calls, tokens, settings)


def candidate_of(value: object, *, rewords: bool = False) -> Candidate:
    """A candidate as a model wrote it; a turn's text may be called message, too.

    Raises:
        BadLine: It is none. The message names a rule and no value, so it can be counted.

    >>> candidate_of({"turns": [{"text": "List it.", "calls": [{"name": "ls"}]}]}).turns[0].calls
    (ToolCall(name='ls', arguments={}),)
    """
    turns = value.get("turns") if isinstance(value, dict) else None
    if not (isinstance(turns, list) and turns):
        raise BadLine("a task has no turns")
    if len(turns) > MOST_TURNS:
        raise BadLine(f"a task has more than {MOST_TURNS} turns")
    return Candidate(tuple(_turn(turn, rewords) for turn in turns))


def _turn(value: object, rewords: bool) -> CandidateTurn:
    if not isinstance(value, dict):
        raise BadLine("a turn is no object")
    text, calls = value.get("text", value.get("message")), value.get("calls", [])
    if not isinstance(text, str) or not (text.strip() or rewords):
        raise BadLine("a turn has no text")
    if len(text) > LONGEST_TEXT:
        raise BadLine(f"a turn's text has more than {LONGEST_TEXT} characters")
    _check_unicode(text)
    if not isinstance(calls, list) or not (calls or rewords):
        raise BadLine("a turn has no calls")
    if calls and rewords:
        raise BadLine("a rewording has calls of its own")
    if len(calls) > MOST_CALLS:
        raise BadLine(f"a turn has more than {MOST_CALLS} calls")
    return CandidateTurn(text.strip(), tuple(map(_call, calls)))


def _call(value: object) -> ToolCall:
    if not isinstance(value, dict):
        raise BadLine("a call is no object")
    name, arguments = value.get("name"), value.get("arguments", {})
    if not (isinstance(name, str) and _NAME.fullmatch(name)):
        raise BadLine("a call has no name of a tool")
    if not isinstance(arguments, dict) or not all(map(_NAME.fullmatch, arguments)):
        raise BadLine("a call's arguments are no object with names")
    _check_value(arguments, DEEPEST)
    if len(json.dumps(arguments)) > LONGEST_TEXT:
        raise BadLine(f"a call's arguments have more than {LONGEST_TEXT} characters")
    return ToolCall(name, arguments)


def _check_value(value: object, depth: int) -> None:
    """A value that JSON can hold, and that Python can write and read as a literal."""
    if isinstance(value, list | dict):
        if not depth:
            raise BadLine("a call's arguments are nested too deeply")
        for item in (*value, *value.values()) if isinstance(value, dict) else value:
            _check_value(item, depth - 1)
    elif isinstance(value, str):
        _check_unicode(value)
    elif isinstance(value, float) and not math.isfinite(value):
        raise BadLine("a call has a number that is not finite")


def _check_unicode(text: str) -> None:
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise BadLine("a text has half of a surrogate pair")


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _candidate_json(candidate: Candidate) -> dict[str, Any]:
    return {
        "turns": [
            {"text": turn.text, "calls": [vars(call) for call in turn.calls]}
            for turn in candidate.turns
        ]
    }
