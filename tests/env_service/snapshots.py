"""bfcl_eval's unmodified checker and execution at work, with a snapshot after every turn.

In: a task and its calls, written as official execution reads them. Out: an `Observation`: the
checker's verdict and, for each turn, every result string and every public attribute of every tool
instance, of the model's side and of the reference's, frozen so that later calls do not reach them.
Called by official.py, which decides how the calls are written. What execution leaves behind in
bfcl_eval's modules is undone here as well (`fresh_module_state`).
"""

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from bfcl_eval.eval_checker.multi_turn_eval import multi_turn_checker as checker
from bfcl_eval.eval_checker.multi_turn_eval import multi_turn_utils as execution
from bfcl_eval.eval_checker.multi_turn_eval.func_source_code import posting_api, travel_booking
from bfcl_eval.eval_checker.multi_turn_eval.func_source_code.gorilla_file_system import (
    Directory,
    File,
)

from env_service.environments.bfcl.tasks import BfclTask


@dataclass(frozen=True)
class Turn:
    """What one turn did, on both sides."""

    model_results: tuple[str, ...]
    reference_results: tuple[str, ...]
    model_state: Mapping[str, object]
    """Frozen public attributes after the turn, by Class.attribute."""
    reference_state: Mapping[str, object]


@dataclass(frozen=True)
class Observation:
    """What a whole trajectory did."""

    valid: bool
    turns: tuple[Turn, ...]


def observed(
    task: BfclTask, steps: Sequence[Sequence[list[str]]], reference: Sequence[list[str]]
) -> Observation:
    """Run bfcl_eval's checker and execution on texts, and leave nothing behind in its module."""
    run = _Run(task)
    try:
        valid = len(steps) == len(reference) and run.check(steps, reference)
        # The checker stops at the first turn that fails: go on where it left off.
        for index in range(len(run.turns), len(steps)):
            for calls in steps[index]:
                run.execute(calls, _MODEL)
            run.execute(reference[index], _REFERENCE)
        return Observation(valid, tuple(run.turns))
    finally:
        for name in [name for name in vars(execution) if name.startswith(_MODEL)]:
            del vars(execution)[name]


_MODEL = "observed_model"
_REFERENCE = _MODEL + "_ground_truth"  # as the checker names the reference's instances


@dataclass
class _Run:
    """Collects what goes through execute_multi_turn_func_call, turn by turn."""

    task: BfclTask
    turns: list[Turn] = field(default_factory=list)
    results: list[str] = field(default_factory=list)
    """Of the model, in the turn that is going on."""

    def check(self, steps: Sequence[Sequence[list[str]]], reference: Sequence[list[str]]) -> bool:
        """The unmodified checker, with this object listening to its execution."""
        unmodified = checker.execute_multi_turn_func_call
        checker.execute_multi_turn_func_call = self._listen
        try:
            verdict = checker.multi_turn_checker(
                steps, reference, _entry(self.task), self.task.category, _MODEL
            )
        finally:
            checker.execute_multi_turn_func_call = unmodified
        return bool(verdict["valid"])

    def execute(self, calls: list[str], side: str) -> None:
        """The checker's own call of execution, without the checker."""
        entry = _entry(self.task)
        self._listen(
            func_call_list=calls,
            initial_config=entry["initial_config"],
            involved_classes=entry["involved_classes"],
            model_name=side,
            test_entry_id=entry["id"],
            long_context=self.task.long_context,
            is_evaL_run=True,
        )

    def _listen(self, **call: Any) -> tuple[list[str], dict[str, Any]]:
        results, instances = execution.execute_multi_turn_func_call(**call)
        if call["model_name"] == _MODEL:
            self.results += results
        else:  # the reference comes last in a turn
            nothing = {**call, "func_call_list": [], "model_name": _MODEL}
            _, model_instances = execution.execute_multi_turn_func_call(**nothing)
            turn = Turn(
                tuple(self.results), tuple(results), states(model_instances), states(instances)
            )
            self.turns.append(turn)
            self.results = []
        return results, instances


def _entry(task: BfclTask) -> dict[str, Any]:
    return {
        "id": task.task_id,
        "initial_config": task.initial_config,
        "involved_classes": list(task.involved_classes),
    }


# ---- states ----------------------------------------------------------------------------------


def states(instances: Mapping[str, Any]) -> dict[str, object]:
    """Public attributes of tool instances, frozen, by Class.attribute."""
    return {
        f"{class_name}.{attribute}": frozen(value)
        for class_name, instance in instances.items()
        for attribute, value in vars(instance).items()
        if not attribute.startswith("_")
    }


def frozen(value: object, above: tuple[int, ...] = ()) -> object:
    """A value that later changes do not reach, equal to another only if types agree as well.

    >>> frozen({"a": [1, 1.0, True]}) == frozen({"a": [1, 1, True]})
    False
    """
    if isinstance(value, str) or value is None:
        return value
    if isinstance(value, bool | int | float):
        return (type(value), repr(value))  # repr: equal for two nans, and 0.0 is not -0.0
    if id(value) in above:
        return "<contains itself>"  # a directory can be copied into itself
    inside = (*above, id(value))
    if isinstance(value, list | tuple):
        return (type(value), tuple(frozen(item, inside) for item in value))
    if isinstance(value, dict):
        items = tuple((frozen(key, inside), frozen(item, inside)) for key, item in value.items())
        return (dict, items)
    if isinstance(value, set):
        return (set, frozenset(frozen(item, inside) for item in value))
    if isinstance(value, File):
        return (File, value.name, value.content)
    if isinstance(value, Directory):
        return (Directory, value.name, frozen(value.contents, inside))
    raise TypeError(f"a tool's state holds a {type(value).__name__}, which frozen does not know")


# ---- the state of bfcl_eval's modules ----------------------------------------------------------


@contextmanager
def fresh_module_state(own_cards: bool = False) -> Iterator[None]:
    """The modules' shared records as they are after import, before and afterwards.

    With `own_cards` each instance gets copies of the credit cards.
    """
    reset_module_state()
    if own_cards:
        travel_booking.CREDIT_CARD_EXTENSION = _CopiedCards(_CARDS)
    try:
        yield
    finally:
        travel_booking.CREDIT_CARD_EXTENSION = _CARDS
        reset_module_state()


def reset_module_state() -> None:
    """Undo what official execution leaves behind in bfcl_eval's modules."""
    for card_id, card in _UNTOUCHED_CARDS.items():
        _CARDS[card_id].clear()
        _CARDS[card_id].update(copy.deepcopy(card))
    posting_api.TwitterAPI.post_tweet.__defaults__ = ([], [])


class _CopiedCards(dict[str, Any]):
    def items(self) -> Any:
        return copy.deepcopy(dict(self)).items()


_CARDS: dict[str, dict[str, Any]] = travel_booking.CREDIT_CARD_EXTENSION
_UNTOUCHED_CARDS = copy.deepcopy(_CARDS)
SHARED_CARD_IDS = tuple(_UNTOUCHED_CARDS)
"""Ids of the credit cards that every long-context TravelAPI has."""
