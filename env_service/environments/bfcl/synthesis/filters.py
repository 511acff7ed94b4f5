"""What keeps the evaluation side out of a pool, and the same task from being in it twice.

In: the tasks of a split, then candidates that were verified. Out: seeds that may be used
(`usable_seeds`), and for each candidate the reason why it is refused, if any.

What is called the evaluation here is every side of the split but the one that lends the seeds. A
seed is used only if no class of it begins in a state from which an evaluation task begins: the
scenario split alone does not ensure that. A program is refused that is an evaluation program or
contains one of two or more calls in order, or a run of RUN calls of one. (Single calls are shared
by nature: many tools take no arguments.) A text is refused that has WORDS words in a row of an
evaluation message, or that names a tool by its identifier. Pools made before are compared more
loosely (`EarlierPools`).
"""

import contextlib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from env_service.environments.bfcl.demonstrations.variants import leaves
from env_service.environments.bfcl.synthesis.verification import Refused
from env_service.environments.bfcl.tasks import BfclTask, call_key, reference_calls
from env_service.environments.bfcl.tool_classes import tool_names
from seal.formats import ToolCall

RUN = 3
"""Calls in a row that a program may not share with an evaluation program."""
WORDS = 8
"""Words in a row that a message may not share with an evaluation message."""
SIMILAR = 0.8
"""Share of common words (Jaccard) from which two tasks with the same tools are one."""

Written: TypeAlias = str
"""A call as text: values of another type are another text."""


class EvaluationSide:
    """Programs and texts of the tasks of the other sides.

    Args:
        tasks: These tasks.
    """

    def __init__(self, tasks: Iterable[BfclTask]) -> None:
        self._programs: dict[Written, set[tuple[Written, ...]]] = {}
        self._runs: set[tuple[Written, ...]] = set()
        self._texts: set[tuple[str, ...]] = set()
        for task in tasks:
            program = program_of(task)
            if program:
                self._programs.setdefault(program[0], set()).add(program)
            self._runs.update(_in_a_row(program, RUN))
            for text in _messages(task):
                self._texts.update(_in_a_row(_words(text), WORDS))

    def check(self, task: BfclTask) -> None:
        """Compare a candidate with it.

        Raises:
            Refused: The candidate has something of an evaluation task.
        """
        program = program_of(task)
        for first in dict.fromkeys(program):
            for other in self._programs.get(first, ()):
                if program == other or (len(other) > 1 and _contains(program, other)):
                    raise Refused("it contains an evaluation program")
        if not self._runs.isdisjoint(_in_a_row(program, RUN)):
            raise Refused("it has a run of an evaluation program")
        for text in _messages(task):
            if not self._texts.isdisjoint(_in_a_row(_words(text), WORDS)):
                raise Refused("it has words of an evaluation message")


class Kept:
    """Tasks that are there already: those of the pool so far, or of another one."""

    def __init__(self) -> None:
        self._programs: set[tuple[Written, ...]] = set()
        self._texts: dict[tuple[str, ...], list[frozenset[str]]] = {}

    def add(self, task: BfclTask) -> None:
        """Take a task in.

        Raises:
            Refused: It is there already, or one that is nearly the same.
        """
        self.check(task)
        self._programs.add(program_of(task))
        self._texts.setdefault(_tools(task), []).append(_vocabulary(task))

    def check(self, task: BfclTask) -> None:
        """See whether a task is there.

        Raises:
            Refused: It is, or one that is nearly the same.
        """
        if program_of(task) in self._programs:
            raise Refused("its program is there already")
        words, alike = _vocabulary(task), self._texts.get(_tools(task), [])
        if any(len(words & other) >= SIMILAR * len(words | other) for other in alike):
            raise Refused("nearly the same task is there already")


class EarlierPools:
    """Pools that were made before, from which this one is kept apart.

    A task of theirs, or nearly one, is refused, and so is a run of RUN calls of one. Words are not
    compared one by one: pools are worded by the same sentences, so that nine of ten tasks have
    eight words in a row of a pool of 2,000.

    Args:
        tasks: Their tasks.
    """

    def __init__(self, tasks: Iterable[BfclTask]) -> None:
        self._kept = Kept()
        self._runs: set[tuple[Written, ...]] = set()
        for task in tasks:
            self._runs.update(_in_a_row(program_of(task), RUN))
            # Two pools may have the same task.
            with contextlib.suppress(Refused):
                self._kept.add(task)

    def check(self, task: BfclTask) -> None:
        """Compare a candidate with them.

        Raises:
            Refused: The candidate has too much of one of their tasks.
        """
        if not self._runs.isdisjoint(_in_a_row(program_of(task), RUN)):
            raise Refused("it has a run of an earlier pool's program")
        try:
            self._kept.check(task)
        except Refused as reason:
            raise Refused(f"in an earlier pool: {reason}") from None


def usable_seeds(lending: Iterable[BfclTask], others: Iterable[BfclTask]) -> list[BfclTask]:
    """Tasks of a side that begin in states from which no task of the other sides begins."""
    taken = {state for task in others for state in _states(task)}
    return [task for task in lending if taken.isdisjoint(_states(task))]


def check_words(task: BfclTask) -> None:
    """See that no message names a tool by its identifier, outside the values that it states.

    Raises:
        Refused: One does.
    """
    names = {name for owner in task.involved_classes for name in tool_names(owner)}
    values = [str(value) for call in _calls(task) for value in leaves(call.arguments)]
    for text in _messages(task):
        for value in sorted(values, key=len, reverse=True):
            text = text.replace(value, " ")
        if not names.isdisjoint(_identifiers(text)):
            raise Refused("a message names a tool by its identifier")


def program_of(task: BfclTask) -> tuple[Written, ...]:
    """The calls of a reference, whatever their turns."""
    return tuple(call_key(call) for call in _calls(task))


def _calls(task: BfclTask) -> list[ToolCall]:
    return [call for turn in reference_calls(task) for call in turn]


def _messages(task: BfclTask) -> Iterator[str]:
    return (message["content"] for turn in task.turns for message in turn)


def _tools(task: BfclTask) -> tuple[str, ...]:
    return tuple(call.name for call in _calls(task))


def _vocabulary(task: BfclTask) -> frozenset[str]:
    return frozenset(word for text in _messages(task) for word in _words(text))


def _words(text: str) -> tuple[str, ...]:
    return tuple(re.findall(r"\w+", text.lower()))


def _identifiers(text: str) -> set[str]:
    return {*re.findall(r"\w+", text)}


def _in_a_row(items: Sequence[str], count: int) -> Iterator[tuple[str, ...]]:
    return (tuple(items[at : at + count]) for at in range(len(items) - count + 1))


def _contains(program: Sequence[Written], other: Sequence[Written]) -> bool:
    """Whether the calls of another program stand in this one, in order."""
    rest = iter(program)
    return all(call in rest for call in other)


def _states(task: BfclTask) -> set[str]:
    """The initial state of each class that has one."""
    states = task.initial_config.items()
    return {json.dumps([name, state], sort_keys=True) for name, state in states if state}
