from collections import Counter

import pytest

from seal.tasks import splits as bfcl_splits
from seal.tasks.splits import CATEGORIES, BadData, Split, Task


def task(
    scenario: int, category: str = "multi_turn_base", said: str = "", call: str = "", turn: int = 0
) -> Task:
    """A task of one message and one call, which are its scenario's own unless given."""
    calls: list[list[str]] = [[], []]
    calls[turn].append(call or f"call({scenario})")
    question = [[{"role": "user", "content": said or f"message {scenario}"}], []]
    return Task(f"{category}_{scenario}", category, question, [], calls)


def tasks(scenarios: int) -> list[Task]:
    return [task(number, category) for category in CATEGORIES for number in range(scenarios)]


def shared(split: Split) -> dict[str, int]:
    return bfcl_splits.leakage(split)[-1].shared


def test_the_category_split_halves_each_category_and_separates_siblings() -> None:
    split = bfcl_splits.category_split(tasks(20), seed=42)
    for side in (split.train, split.val):
        assert Counter(task.category for task in side) == dict.fromkeys(CATEGORIES, 10)
    assert {task.scenario for task in split.train} & {task.scenario for task in split.val}


@pytest.mark.parametrize("seed", range(20))
def test_the_scenario_split_keeps_scenarios_whole_and_linked_ones_together(seed: int) -> None:
    linked = [
        *(task(number, said="Go on.") for number in (3, 7)),
        *(task(number, call="pwd()") for number in (7, 11)),
    ]
    all_tasks = [*tasks(20), *linked]
    assert [3, 7, 11] in bfcl_splits.linked_scenarios(all_tasks)
    split = bfcl_splits.scenario_split(all_tasks, seed)
    sides = [{task.scenario for task in side} for side in (split.train, split.val)]
    assert not sides[0] & sides[1]
    assert len(sides[0]) == len(sides[1]) == 10
    assert any({3, 7, 11} <= side for side in sides)
    assert set(shared(split).values()) == {0}


def test_the_scenario_split_parts_linked_scenarios_where_it_has_to() -> None:
    split = bfcl_splits.scenario_split([task(number, said="Go on.") for number in range(6)], 42)
    assert len(split.train) == len(split.val) == 3


def test_the_scenario_split_follows_the_seed() -> None:
    first, again, other = (bfcl_splits.scenario_split(tasks(20), seed) for seed in (1, 1, 2))
    assert first == again != other


def test_each_mark_of_leakage() -> None:
    beside = task(1)
    for other, marks in (
        (task(2), set()),
        (task(1, CATEGORIES[1], said="x", call="y()"), {"scenario"}),
        (task(2, call="call(1)", turn=1), {"calls"}),
        (task(2, call="call(1)"), {"calls", "turns"}),
        (task(2, said="message 1"), {"messages", "message"}),
    ):
        split = Split([beside], [other])
        assert {name for name, count in shared(split).items() if count} == marks
    two = task(2).question + task(1).question
    split = Split([beside], [Task("multi_turn_base_2", CATEGORIES[0], two, [], [])])
    assert shared(split) | {"message": 0} == dict.fromkeys(bfcl_splits.MARKS, 0)
    assert shared(split)["message"] == 1


def test_leakage_counts_by_the_category_of_the_evaluation_task() -> None:
    base, miss_func = CATEGORIES[:2]
    split = Split([task(1, base), task(2, base)], [task(1, miss_func), task(3, miss_func)])
    rows = {row.category: row for row in bfcl_splits.leakage(split)}
    assert (rows[base].train, rows[base].val, rows[base].shared["calls"]) == (2, 0, 0)
    assert (rows[miss_func].train, rows[miss_func].val) == (0, 2)
    assert rows[miss_func].shared == rows["all"].shared == dict.fromkeys(bfcl_splits.MARKS, 1)


def test_the_report_is_a_table_that_its_legend_explains() -> None:
    lines = bfcl_splits.leakage_report(Split([task(1)], [task(1, CATEGORIES[1])])).splitlines()
    assert lines[0].split() == ["category", "train", "eval", *bfcl_splits.MARKS]
    assert lines[-2].split() == ["all", "1", "1", "1", "1", "1", "1", "1"]
    assert lines[-1].endswith("both sides: 1")
    legend = bfcl_splits.leakage_legend()
    assert all(f"  {name} " in legend for name in bfcl_splits.MARKS)


def test_a_named_split_keeps_its_order() -> None:
    document = {"train": ["multi_turn_base_2", "multi_turn_base_0"], "val": ["multi_turn_base_1"]}
    split = bfcl_splits.named_split({**document, "by": "someone"}, tasks(3))
    assert [task.task_id for task in split.train] == document["train"]
    assert [task.task_id for task in split.val] == document["val"]


A, B = "multi_turn_base_0", "multi_turn_base_1"


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ([A, B], 'expected an object with the lists "train" and "val" of task ids'),
        ({"train": [A]}, 'expected an object with the lists "train" and "val" of task ids'),
        ({"train": [A], "val": B}, '"val" is not a list of task ids'),
        ({"train": [0], "val": [B]}, '"train" is not a list of task ids'),
        ({"train": [], "val": [B]}, '"train" names no task'),
        ({"train": [A, A], "val": [B]}, f'"train" names tasks more than once: {A}'),
        ({"train": [A, B], "val": [B]}, f'tasks are in both "train" and "val": {B}'),
        (
            {"train": [A], "val": ["x", B, "y"]},
            '"val" names tasks that bfcl-eval does not have: x, y',
        ),
        (
            {"train": [A], "val": list("abcdefg")},
            '"val" names tasks that bfcl-eval does not have: a, b, c, d, e and 2 more',
        ),
    ],
)
def test_a_split_that_cannot_be_used_is_told_why(document: object, message: str) -> None:
    with pytest.raises(BadData) as error:
        bfcl_splits.named_split(document, tasks(3))
    assert str(error.value) == message
