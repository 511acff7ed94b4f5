"""The official execution and checker of bfcl-eval, observed, with the cases where ours must differ.

In: a task and a trajectory of calls. Out: an `Observation`: the official verdict and, for each
turn, every result string and every public attribute of every tool instance, of the model's side and
of the reference's. Called by tests, which observe this project's code in the same way (`ours`).
How bfcl_eval's functions are run and observed stands in snapshots.py.

bfcl_eval's functions run unmodified. Where they are at fault or this project differs on purpose,
`exceptions_of` says so from the task and the calls alone, never from what came out. The calls of
such a trajectory are written for the official path so that they do not meet the fault, and it is
compared in full as well; what each fault does is shown by a test of its own. One thing no writing
avoids: which words Python puts into a RecursionError. All others are written as they are.

The calls go straight to execution and to the checker, so nothing here sees bfcl-eval's inference
loop, its reading of texts or its step limit: official_loop.py drives those. As in an evaluation, a
step without calls does not reach the checker, and an episode with fewer turns than its task fails.
"""

import builtins
import json
import keyword
import re
import unicodedata
from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum

from bfcl_eval.eval_checker.multi_turn_eval import multi_turn_utils as execution
from material import held_out
from mutations import Trajectory
from snapshots import (
    SHARED_CARD_IDS,
    Observation,
    Turn,
    fresh_module_state,
    frozen,
    observed,
    states,
)

from env_service.environments.bfcl.execution import ToolExecutor
from env_service.environments.bfcl.tasks import BfclTask, reference_calls, tool_owner
from env_service.environments.bfcl.tool_classes import parameter_names
from env_service.environments.bfcl.verifier import verify
from env_service.environments.dialogue import StepRecord
from seal.formats import ToolCall

__all__ = [  # with what its tests take from snapshots.py
    "SHARED_CARD_IDS",
    "Difference",
    "Observation",
    "exceptions_of",
    "fresh_module_state",
    "frozen",
    "observed",
    "official",
    "official_results",
    "ours",
    "text_of",
]


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


def official(
    task: BfclTask, trajectory: Trajectory, differences: frozenset[Difference]
) -> Observation:
    """The official path's observation, fed with text that avoids these of its faults."""
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
        turns = tuple(_reworded(turn, with_name_restored) for turn in turns)
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


def official_results(task: BfclTask, *calls: str) -> list[str]:
    """Results of calls as they are written, made in one step on fresh instances."""
    with fresh_module_state():
        steps = [[list(calls)]]
        return list(observed(task, steps, [[]]).turns[0].model_results)


# ---- what is written for the official path -----------------------------------------------------


def text_of(task: BfclTask, call: ToolCall, positional: bool = False) -> str:
    """A call as official decoding writes it; positional: as far as the signature's order goes."""
    return _call_text(task, call, positional, repr, lambda key, text: f"{key}={text}")


def _fed(task: BfclTask, call: ToolCall, turn: int, positional: bool, mentions: bool) -> str:
    """A call, written so that none of the official path's faults touches it."""
    if is_held_out(task, call, turn):
        return call.name  # without a bracket: not rewritten, so an unknown name
    if is_python_name(call.name) or is_long_name(call.name):
        return f"{stand_in(call.name)}()"
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
_READABLE_DEPTH = 50


def stand_in(name: str) -> str:
    """What is written in place of a name that official execution knows, refuses or cannot read."""
    return _STAND_IN + name.encode().hex()


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


def with_name_restored(result: str) -> str:
    """The result of a call of a stand-in, as this project answers the name it stands for."""
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
        if any(is_held_out(task, call, turn) for calls in steps for call in calls):
            found.add(Difference.HELD_OUT_TOOL)
    for call in said:
        if is_python_name(call.name):
            found.add(Difference.PYTHON_NAME)
        if is_long_name(call.name):
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


def is_held_out(task: BfclTask, call: ToolCall, turn: int) -> bool:
    return any(turn < reveal and call.name in names for reveal, names in held_out(task).items())


_REFUSED = frozenset({"kill", "exit", "quit", "remove", "unlink", "popen", "Popen", "run"})
_IN_SCOPE = frozenset(
    {*dir(builtins), *vars(execution), *execution.execute_multi_turn_func_call.__code__.co_varnames}
)


def is_python_name(name: str) -> bool:
    parts = name.split(".")
    return (
        parts[0] in _IN_SCOPE
        or parts[min(1, len(parts) - 1)] in _REFUSED
        or any(not part.isidentifier() or keyword.iskeyword(part) for part in parts)
        or unicodedata.normalize("NFKC", name) != name
    )


def is_long_name(name: str) -> bool:
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
