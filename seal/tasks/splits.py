"""How tasks are divided into training and evaluation, and what the two sides share.

In: tasks, and a seed or somebody's split. Out: a Split, and what leaks from its training side to
its evaluation side. Nothing here reads or writes files.

The number at the end of a task's id is its scenario: multi_turn_base_17, multi_turn_miss_func_17,
multi_turn_miss_param_17 and multi_turn_long_context_17 are one dialogue in four variants, which
mostly have the same reference calls.
"""

import random
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

CATEGORIES = (
    "multi_turn_base",
    "multi_turn_miss_func",
    "multi_turn_miss_param",
    "multi_turn_long_context",
)
NAMED_AT_MOST = 5


class BadData(Exception):
    """Tasks or a split cannot be used; the message says what was found."""


@dataclass(frozen=True)
class Task:
    """What the data files need of a task."""

    task_id: str
    """For example multi_turn_base_17."""
    category: str
    """One of CATEGORIES."""
    question: list[list[dict[str, str]]]
    """User messages by turn."""
    involved_classes: list[str]
    """Tool classes."""
    reference: list[list[str]]
    """Reference calls by turn."""

    @property
    def length(self) -> int:
        """Characters of all user messages and reference calls."""
        return sum(map(len, (*self.messages, *self.program)))

    @property
    def scenario(self) -> int:
        """The number of this task, the same in every category."""
        return int(self.task_id.rpartition("_")[2])

    @property
    def messages(self) -> tuple[str, ...]:
        """User messages of all turns."""
        return tuple(message["content"] for turn in self.question for message in turn)

    @property
    def program(self) -> tuple[str, ...]:
        """Reference calls of all turns; variants of a scenario may have them in other turns."""
        return tuple(call for turn in self.reference for call in turn)


@dataclass(frozen=True)
class Split:
    """Tasks to train on, and tasks to evaluate on."""

    train: list[Task]
    val: list[Task]


def category_split(tasks: Sequence[Task], seed: int) -> Split:
    """Half of every category for training, half for evaluation, each in the files' order.

    This is the published protocol. It puts siblings of evaluation tasks into training.
    """
    training: set[str] = set()
    for category in CATEGORIES:
        ids = [task.task_id for task in tasks if task.category == category]
        training.update(random.Random(f"{seed}/{category}").sample(ids, k=len(ids) // 2))
    return _split(tasks, lambda task: task.task_id in training)


def scenario_split(tasks: Sequence[Task], seed: int) -> Split:
    """Half of the scenarios for training, half for evaluation, each in the files' order.

    Linked scenarios stay on one side, unless the halves cannot be equal otherwise.
    """
    groups = linked_scenarios(tasks)
    random.Random(f"{seed}/scenario").shuffle(groups)
    half = sum(len(group) for group in groups) // 2
    training: set[int] = set()
    for group in groups:
        if len(training) + len(group) <= half:
            training.update(group)
    left = [scenario for group in groups for scenario in group if scenario not in training]
    training.update(left[: half - len(training)])
    return _split(tasks, lambda task: task.scenario in training)


def development_scenarios(training: Iterable[Task], seed: int, count: int) -> set[int]:
    """Scenarios of a training side that are kept apart, to choose a checkpoint on.

    Linked scenarios stay together, so there may be fewer than `count`.
    """
    groups = linked_scenarios(training)
    random.Random(f"{seed}/development").shuffle(groups)
    chosen: set[int] = set()
    for group in groups:
        if len(chosen) + len(group) <= count:
            chosen.update(group)
    return chosen


def linked_scenarios(tasks: Iterable[Task]) -> list[list[int]]:
    """Groups of scenarios that share a reference program or a user message, by lowest number."""
    tasks = list(tasks)
    group_of = {task.scenario: {task.scenario} for task in tasks}
    first: dict[Hashable, int] = {}
    for task in tasks:
        for mark in (task.program, *task.messages):
            other = first.setdefault(mark, task.scenario)
            if other not in group_of[task.scenario]:
                merged = group_of[other] | group_of[task.scenario]
                group_of.update(dict.fromkeys(merged, merged))
    return [sorted(group) for number, group in sorted(group_of.items()) if number == min(group)]


def named_split(document: object, tasks: Iterable[Task]) -> Split:
    """The split that a document {"train": [id, ...], "val": [id, ...]} describes, in its order.

    Raises:
        BadData: It is no such document, it names a task that does not exist, or a task twice.
    """
    if not isinstance(document, Mapping) or not {"train", "val"} <= document.keys():
        raise BadData('expected an object with the lists "train" and "val" of task ids')
    known = {task.task_id: task for task in tasks}
    sides: list[list[str]] = []
    for side in ("train", "val"):
        ids = document[side]
        if not isinstance(ids, list) or not all(isinstance(task_id, str) for task_id in ids):
            raise BadData(f'"{side}" is not a list of task ids')
        if not ids:
            raise BadData(f'"{side}" names no task')
        unknown = [task_id for task_id in ids if task_id not in known]
        if unknown:
            raise BadData(f'"{side}" names tasks that bfcl-eval does not have: {_named(unknown)}')
        twice = [task_id for task_id, times in Counter(ids).items() if times > 1]
        if twice:
            raise BadData(f'"{side}" names tasks more than once: {_named(twice)}')
        sides.append(ids)
    train, val = sides
    both = [task_id for task_id in val if task_id in set(train)]
    if both:
        raise BadData(f'tasks are in both "train" and "val": {_named(both)}')
    return Split([known[task_id] for task_id in train], [known[task_id] for task_id in val])


MARKS: dict[str, tuple[str, Callable[[Task], Iterable[Hashable]]]] = {
    "scenario": ("of the same scenario", lambda task: [task.scenario]),
    "calls": ("with the identical list of reference calls", lambda task: [task.program]),
    "turns": (
        "with the identical reference calls in the same turns",
        lambda task: [tuple(map(tuple, task.reference))],
    ),
    "messages": ("with the identical user messages", lambda task: [task.messages]),
    "message": ("with at least one identical user message", lambda task: task.messages),
}
"""What an evaluation task can share with a training task: name, meaning, and values of a task."""


@dataclass(frozen=True)
class Leakage:
    """What one category's evaluation tasks share with training tasks of any category."""

    category: str
    """One of CATEGORIES, or "all"."""
    train: int
    """Number of training tasks of the category."""
    val: int
    """Number of evaluation tasks of the category."""
    shared: dict[str, int]
    """Evaluation tasks that share this with a training task, by its name in MARKS."""


def leakage(split: Split) -> list[Leakage]:
    """Leakage of each category, and of all together last."""
    leaking: dict[str, list[Task]] = {}
    for name, (_, marks) in MARKS.items():
        seen = {mark for task in split.train for mark in marks(task)}
        leaking[name] = [task for task in split.val if not seen.isdisjoint(marks(task))]
    return [
        Leakage(
            category=category,
            train=_count(split.train, category),
            val=_count(split.val, category),
            shared={name: _count(tasks, category) for name, tasks in leaking.items()},
        )
        for category in (*CATEGORIES, "all")
    ]


def leakage_report(split: Split) -> str:
    """The leakage of a split as a table, which `leakage_legend` explains."""
    both = {task.scenario for task in split.train} & {task.scenario for task in split.val}
    rows = [["category", "train", "eval", *MARKS]]
    for row in leakage(split):
        counts = (row.train, row.val, *row.shared.values())
        rows.append([row.category, *map(str, counts)])
    lines = [f"{row[0]:<24}" + "".join(f"{cell:>10}" for cell in row[1:]) for row in rows]
    return "\n".join([*lines, f"scenarios with tasks on both sides: {len(both)}"])


def leakage_legend() -> str:
    """What the columns of a leakage report count."""
    lines = [f"  {name:<9} {meaning}" for name, (meaning, _) in MARKS.items()]
    return "\n".join(["Evaluation tasks beside a training task, of any category,", *lines])


def _split(tasks: Sequence[Task], trains: Callable[[Task], bool]) -> Split:
    return Split(
        [task for task in tasks if trains(task)], [task for task in tasks if not trains(task)]
    )


def _count(tasks: Iterable[Task], category: str) -> int:
    return sum(category in (task.category, "all") for task in tasks)


def _named(ids: Sequence[str]) -> str:
    more = len(ids) - NAMED_AT_MOST
    return ", ".join(ids[:NAMED_AT_MOST]) + (f" and {more} more" if more > 0 else "")
