"""The official execution and checker of bfcl-eval, observed, with the cases where ours must differ.

In: a task and a trajectory. Out: an `Observation`: the official verdict and, for each turn, every
result string and every public attribute of every tool instance, of the model's side and of the
reference's. Called by tests, which make the same observation of this project's code (`ours`).

bfcl_eval's functions run unmodified. Where they are at fault or this project differs on purpose,
`exceptions_of` says so from the task and the calls alone, never from what came out. The calls of
such a trajectory are written for the official path so that they do not meet the fault, and it is
compared in full as well; what each fault does is shown by a test of its own. One thing no writing
avoids: which words Python puts into a RecursionError. All others are written as they are.

The steps that official inference takes are those with calls (eval_runner drops the others before
the check), and an episode with fewer turns than the task has "was force-terminated" and fails.
"""

import builtins
import copy
import json
import keyword
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from bfcl_eval.eval_checker.multi_turn_eval import multi_turn_checker as checker
from bfcl_eval.eval_checker.multi_turn_eval import multi_turn_utils as execution
from bfcl_eval.eval_checker.multi_turn_eval.func_source_code import posting_api, travel_booking
from bfcl_eval.eval_checker.multi_turn_eval.func_source_code.gorilla_file_system import (
    Directory,
    File,
)
from mutations import Trajectory

from env_service.environments.bfcl.execution import ToolExecutor
from env_service.environments.bfcl.tasks import BfclTask, reference_calls, tool_owner
from env_service.environments.bfcl.tool_classes import parameter_names
from env_service.environments.bfcl.verifier import verify
from env_service.environments.dialogue import StepRecord
from seal.formats import ToolCall


class Difference(StrEnum):
    """Where the official path is at fault, or this project differs from it on purpose."""

    REWRITTEN_TEXT = "rewritten_text"
    """Official execution puts the instance's name before `tool(` and takes the space out of
    `word (`, inside string arguments too; here a string reaches the tool as it is."""
    HELD_OUT_TOOL = "held_out_tool"
    """Official execution runs tools that the model has not been shown yet (miss_func tasks); here
    they do not exist before their turn."""
    PYTHON_NAME = "python_name"
    """Official execution calls names of Python and of its own module and function, refuses eight
    names, and a name that is no identifier is a syntax error; here each is an unknown tool."""
    ODD_KEYWORD = "odd_keyword"
    """Official execution writes argument names as keywords: names that Python does not take are
    syntax errors and ligatures become other letters; here a name is only compared."""
    LONG_NAME = "long_name"
    """Official execution repeats a name that it does not know in full; here 80 characters of it."""
    DEEP_VALUE = "deep_value"
    """Official execution cannot read values in more than some 200 brackets."""
    SHARED_CARDS = "shared_cards"
    """In long-context tasks all TravelAPI instances hold the same 22 credit card records of the
    module: the model's booking charges the reference's card and every later episode's. Here every
    instance has its own."""
    SHARED_MENTIONS = "shared_mentions"
    """A tweet posted without mentions holds the list that is the parameter's default: a mention
    of it appears in every later tweet posted without mentions, the reference's and other episodes'
    too. Here every call gets lists of its own."""
    ENDLESS_DIRECTORY = "endless_directory"
    """A directory copied to its own name contains itself, and Python words the RecursionError of
    walking through it by how deep the caller is; here the text is always the same."""


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


def official(task: BfclTask, trajectory: Trajectory) -> Observation:
    """The official path's observation, fed with text that avoids its faults."""
    differences = exceptions_of(task, trajectory)
    mentions = Difference.SHARED_MENTIONS in differences

    def written(call: ToolCall, turn: int) -> str:
        if not differences:
            return text_of(task, call, trajectory.positional)
        return _fed(task, call, turn, trajectory.positional, mentions)

    steps = [
        [[written(call, turn) for call in calls] for calls in turn_steps if calls]
        for turn, turn_steps in enumerate(trajectory.turns)
    ]
    reference = [list(texts) for texts in task.reference]
    if differences & {Difference.REWRITTEN_TEXT, Difference.SHARED_MENTIONS}:
        every = len(task.turns)
        reference = [
            [_fed(task, call, every, False, mentions) for call in calls]
            for calls in reference_calls(task)
        ]
    with fresh_module_state(own_cards=Difference.SHARED_CARDS in differences):
        seen = observed(task, steps, reference)
    turns = seen.turns
    if differences & {Difference.PYTHON_NAME, Difference.LONG_NAME}:
        turns = tuple(_reworded(turn, _with_name_restored) for turn in turns)
    if Difference.ENDLESS_DIRECTORY in differences:
        turns = tuple(_reworded(turn, _without_depth) for turn in turns)
    return Observation(seen.valid, turns)


def ours(task: BfclTask, trajectory: Trajectory) -> Observation:
    """The same observation of this project's verifier and execution."""
    records = [[StepRecord(calls, ()) for calls in steps] for steps in trajectory.turns]
    accuracy = verify(task, records, truncated=False).accuracy
    model, reference = ToolExecutor(task), ToolExecutor(task)
    every_tool = task.docs_at(len(task.turns)).keys()
    turns = []
    for index, (steps, wanted) in enumerate(
        zip(trajectory.turns, reference_calls(task), strict=False)
    ):
        shown = task.docs_at(index).keys()
        results = tuple(model.execute(call, shown) for calls in steps for call in calls)
        expected = tuple(reference.execute(call, every_tool) for call in wanted)
        turns.append(Turn(results, expected, states(model.instances), states(reference.instances)))
    return Observation(accuracy == 1.0, tuple(turns))


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


def official_results(task: BfclTask, *calls: str) -> list[str]:
    """Results of calls as they are written, made in one step on fresh instances."""
    with fresh_module_state():
        steps = [[list(calls)]]
        return list(observed(task, steps, [[]]).turns[0].model_results)


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


# ---- what is written for the official path -----------------------------------------------------


def text_of(task: BfclTask, call: ToolCall, positional: bool = False) -> str:
    """A call as official decoding writes it; positional: as far as the signature's order goes."""
    return _call_text(task, call, positional, repr, lambda key, text: f"{key}={text}")


def _fed(task: BfclTask, call: ToolCall, turn: int, positional: bool, mentions: bool) -> str:
    """A call, written so that none of the official path's faults touches it."""
    if _held_out(task, call, turn):
        return call.name  # without a bracket: not rewritten, so an unknown name
    if _python_name(call.name) or _long_name(call.name):
        return f"{_STAND_IN}{call.name.encode().hex()}()"
    if mentions and call.name == "post_tweet":
        call = ToolCall(call.name, {"mentions": [], **call.arguments})
        positional = False  # what was put in is first

    def value_text(value: object) -> str:
        if _depth(value) > _READABLE_DEPTH:
            return f"json.loads({_unrewritten(repr(json.dumps(value)))})"
        return _unrewritten(repr(value))

    def named(key: str, text: str) -> str:
        return f"**{{{_unrewritten(repr(key))}: {text}}}" if _odd(key) else f"{key}={text}"

    return _call_text(task, call, positional, value_text, named)


_STAND_IN = "no_such_name_"
"""Begins the name that is written in place of one that Python knows, refuses or cannot read."""
_READABLE_DEPTH = 50


def _call_text(
    task: BfclTask,
    call: ToolCall,
    positional: bool,
    value_text: Callable[[object], str],
    named: Callable[[str, str], str],
) -> str:
    owner = tool_owner(task, call.name)
    left = dict(call.arguments)
    written = []
    for key in parameter_names(owner, call.name) if positional and owner is not None else ():
        if key not in left:
            break
        written.append(value_text(left.pop(key)))
    written += [named(key, value_text(value)) for key, value in left.items()]
    return f"{call.name}({','.join(written)})"


def _unrewritten(literal: str) -> str:
    """The same literal without the brackets that official execution looks for."""
    return re.sub(r"(\w\s*)\(", r"\1\\x28", literal)  # the brackets of tuples stay


def _reworded(turn: Turn, reword: Callable[[str], str]) -> Turn:
    return replace(turn, model_results=tuple(map(reword, turn.model_results)))


def _with_name_restored(result: str) -> str:
    match = re.fullmatch(rf"Error during execution: name '{_STAND_IN}(\w+)' is not .*", result)
    if match is None:
        return result
    name = bytes.fromhex(match[1]).decode()
    head = name.split(".")[0]
    if head.isidentifier():
        return f"Error during execution: name '{head[:80]}' is not defined"
    return f"Error during execution: there is no tool of the name {name[:80]!r}"


def _without_depth(result: str) -> str:
    common = "Error during execution: maximum recursion depth exceeded"
    return common if result.startswith(common) else result


# ---- when the official path is at fault --------------------------------------------------------


def exceptions_of(task: BfclTask, trajectory: Trajectory) -> frozenset[Difference]:
    """The differences that a trajectory can meet, judged by its calls and the reference's."""
    found: set[Difference] = set()
    said = [call for steps in trajectory.turns for calls in steps for call in calls]
    every_call = [*said, *(call for calls in reference_calls(task) for call in calls)]
    for turn, steps in enumerate(trajectory.turns):
        if any(_held_out(task, call, turn) for calls in steps for call in calls):
            found.add(Difference.HELD_OUT_TOOL)
    for call in said:
        if _python_name(call.name):
            found.add(Difference.PYTHON_NAME)
        if _long_name(call.name):
            found.add(Difference.LONG_NAME)
        if any(map(_odd, call.arguments)):
            found.add(Difference.ODD_KEYWORD)
        if _depth(call.arguments) > _READABLE_DEPTH:
            found.add(Difference.DEEP_VALUE)
        if call.name == "cp" and call.arguments.get("source") == call.arguments.get("destination"):
            found.add(Difference.ENDLESS_DIRECTORY)
    if any(_looks_like_a_call(task, call.arguments) for call in every_call):
        found.add(Difference.REWRITTEN_TEXT)
    if task.long_context and any(map(_charges_a_card, every_call)):
        found.add(Difference.SHARED_CARDS)
    names = {call.name for call in every_call}
    silent = (call.name == "post_tweet" and "mentions" not in call.arguments for call in every_call)
    if "mention" in names and any(silent):
        found.add(Difference.SHARED_MENTIONS)
    return frozenset(found)


def _held_out(task: BfclTask, call: ToolCall, turn: int) -> bool:
    return any(turn < reveal and call.name in names for reveal, names in task.held_out.items())


_REFUSED = frozenset({"kill", "exit", "quit", "remove", "unlink", "popen", "Popen", "run"})
_IN_SCOPE = frozenset(
    {*dir(builtins), *vars(execution), *execution.execute_multi_turn_func_call.__code__.co_varnames}
)


def _python_name(name: str) -> bool:
    parts = name.split(".")
    return (
        parts[0] in _IN_SCOPE
        or parts[min(1, len(parts) - 1)] in _REFUSED
        or any(not part.isidentifier() or keyword.iskeyword(part) for part in parts)
        or unicodedata.normalize("NFKC", name) != name
    )


def _long_name(name: str) -> bool:
    return len(name) > 80


def _odd(key: str) -> bool:
    plain = key.isidentifier() and not keyword.iskeyword(key)
    return not plain or unicodedata.normalize("NFKC", key) != key


def _looks_like_a_call(task: BfclTask, value: object) -> bool:
    if isinstance(value, str):
        # In the literal, escapes stand before the words: a line break makes one of "\\nls(".
        return any(
            space or tool_owner(task, word) is not None
            for word, space in re.findall(r"\b([a-zA-Z_]\w*)(\s*)(?=\()", repr(value))
        )
    if isinstance(value, dict):
        return any(
            _looks_like_a_call(task, key) or _looks_like_a_call(task, item)
            for key, item in value.items()
        )
    if isinstance(value, list | tuple):
        return any(_looks_like_a_call(task, item) for item in value)
    return False


def _depth(value: object) -> int:
    deepest, level = 0, [value]
    while level:
        deepest += 1
        containers = [item for item in level if isinstance(item, list | tuple | dict)]
        level = [
            item
            for container in containers
            for item in (container.values() if isinstance(container, dict) else container)
        ]
    return deepest


def _charges_a_card(call: ToolCall) -> bool:
    """A booking may be charged to one of the shared cards, or refunded to it."""
    if call.name == "cancel_booking":
        return True
    card = call.arguments.get("card_id")
    return call.name in ("book_flight", "purchase_insurance") and card in SHARED_CARD_IDS


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
