"""The quickstart's world: a few tool classes, and which of their tasks are seen in training.

In: BFCL's tasks, and the clean split. Out: the sides of data/quickstart_split.json, and the rows of
the quickstart's tables.

- train: the real training tasks that have such a class, and mixed tasks of training scenarios. They
  lend their worlds to the synthetic tasks that the policy sees.
- development: mixed tasks of the other scenarios, for the synthetic tasks that it never sees (suite
  unseen).
- val: all other real tasks whose classes are all in the world (suite benchmark).

A mixed task has a class in the world and another one outside; its world lends only the former. A
scenario is on one side only.
"""

from collections.abc import Iterable, Sequence

from seal.tasks.splits import Split, Task

CLASSES = frozenset({"GorillaFileSystem", "MathAPI", "TwitterAPI"})
"""Tool classes of the quickstart's world."""
TRAINED = 32
"""Real tasks that are trained on: the shortest ones of the published training side."""
SIDES = ("train", "development", "val")


def trained_tasks(published: Split) -> list[Task]:
    """The real tasks that are trained on, shortest first."""
    return sorted(base_tasks(published.train), key=lambda task: task.length)[:TRAINED]


def sides(
    tasks: Sequence[Task], trained: Iterable[Task], training: Iterable[Task]
) -> dict[str, list[Task]]:
    """The sides of the quickstart's split, in the order of the tasks.

    Args:
        tasks: All tasks.
        trained: Real tasks that are trained on.
        training: Training tasks of the clean split.
    """
    seen = {task.task_id for task in trained}
    training_scenarios = {task.scenario for task in training}
    by_side: dict[str, list[Task]] = {side: [] for side in SIDES}
    for task in base_tasks(tasks):
        classes = set(task.involved_classes)
        if not classes & CLASSES:
            continue
        if task.task_id in seen:
            by_side["train"].append(task)
        elif classes <= CLASSES:
            by_side["val"].append(task)
        else:
            of_training = task.scenario in training_scenarios
            by_side["train" if of_training else "development"].append(task)
    return by_side


def base_tasks(tasks: Iterable[Task]) -> list[Task]:
    """The tasks of category multi_turn_base, in order."""
    return [task for task in tasks if task.category == "multi_turn_base"]
