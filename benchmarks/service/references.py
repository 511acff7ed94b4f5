"""BFCL's references as scripts for clients, and bfcl-eval's own verdict on calls.

In: ids of tasks; calls. Out: what an assistant says to follow the references; the verdict of the
unmodified multi_turn_checker. Needs bfcl-eval, so it runs in the service's environment only.
"""

from collections.abc import Sequence
from typing import Any

from bfcl_eval.eval_checker.multi_turn_eval import multi_turn_checker, multi_turn_utils

from benchmarks.service.job import Script
from env_service.environments.bfcl.tasks import BfclTask, load_tasks, reference_calls
from seal.formats import render_calls

BEFORE_ITS_REVEAL = "multi_turn_miss_func_49"
"""Its reference calls a tool before that is revealed, so no episode can follow it: accuracy 0."""
MODEL = "bench"
"""The name of the model for bfcl-eval; its instances of tools are kept under it."""


def scripts_of(task_ids: Sequence[str], one_call: bool = False) -> list[Script]:
    """References as messages: one message for all calls of a turn, or one for each call."""
    scripts = []
    for task_id in task_ids:
        messages = []
        for calls in reference_calls(load_tasks()[task_id]):
            groups = [[call] for call in calls] if one_call else [calls] if calls else []
            messages += [*(render_calls(group, "hermes") for group in groups), "Done."]
        expected = 0.0 if task_id == BEFORE_ITS_REVEAL else 1.0
        scripts.append(Script(task_id, tuple(messages), expected))
    return scripts


def execute(task: BfclTask, calls: Sequence[str]) -> None:
    """Have bfcl-eval execute the calls of a turn, after those of earlier turns."""
    config, classes = dict(task.initial_config), list(task.involved_classes)
    multi_turn_utils.execute_multi_turn_func_call(
        list(calls), config, classes, MODEL, task.task_id, task.long_context
    )


def verdict(task: BfclTask, turns: Sequence[Sequence[Sequence[str]]]) -> dict[str, Any]:
    """The verdict of bfcl-eval's own checker.

    `turns` holds the texts of the calls of each step of each turn.
    """
    entry = {
        "id": task.task_id,
        "initial_config": dict(task.initial_config),
        "involved_classes": list(task.involved_classes),
    }
    steps = [[list(step) for step in turn] for turn in turns]
    reference = [list(calls) for calls in task.reference]
    try:
        return dict(
            multi_turn_checker.multi_turn_checker(steps, reference, entry, task.category, MODEL)
        )
    finally:
        # bfcl-eval keeps every instance, and the next check of the task would go on with it.
        kept = vars(multi_turn_utils)
        for name in [name for name in kept if name.endswith("_instance")]:
            del kept[name]


def in_one_step(turns: Sequence[Sequence[str]]) -> list[list[Sequence[str]]]:
    """The calls of each turn as one step, and no step where a turn has no calls."""
    return [[calls] if calls else [] for calls in turns]
