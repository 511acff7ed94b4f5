"""The 800 multi-turn tasks of BFCL, read from bfcl-eval's own files.

In: the JSON lines inside the installed bfcl_eval package. Out: `BfclTask` values, tool docs exactly
as `bfcl_eval.utils.load_dataset_entry` gives them to a model at inference, and references as parsed
calls.

Two details of the official loading are easy to get wrong, and tests cover them. Docs carry a
sentence on Python 3 syntax, except those that are held out until a later turn. Nothing in bfcl_eval
reads the field `excluded_function`, which 72 tasks have, so no doc is removed.
"""

import ast
import functools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

from bfcl_eval.constants.category_mapping import VERSION_PREFIX
from bfcl_eval.constants.executable_backend_config import MULTI_TURN_FUNC_DOC_FILE_MAPPING

from env_service.environments.bfcl.tool_classes import TOOL_CLASSES, parameter_names, tool_names
from seal.formats import ToolCall
from seal.wire import Message, ToolDoc

CATEGORIES: tuple[str, ...] = (
    "multi_turn_base",
    "multi_turn_miss_func",
    "multi_turn_miss_param",
    "multi_turn_long_context",
)
"""Categories of BFCL V3 multi-turn, 200 tasks each."""

_SYNTAX_SENTENCE = " Note that the provided function is in Python 3 syntax."
"""What load_dataset_entry adds to a doc's description; a test compares it with bfcl_eval."""


@dataclass(frozen=True)
class BfclTask:
    """One multi-turn task. Docs and configuration are shared between tasks: never change them."""

    task_id: str
    """bfcl-eval's id, e.g. multi_turn_base_0."""
    category: str
    """One of CATEGORIES."""
    turns: tuple[tuple[Message, ...], ...]
    """User messages of each turn; empty if the turn reveals held-out tools instead."""
    involved_classes: tuple[str, ...]
    """Tool classes of which the task gets an instance, in bfcl-eval's order."""
    initial_config: Mapping[str, Any]
    """Scenario of each tool class; every instance gets a deep copy."""
    tools: tuple[ToolDoc, ...]
    """Docs that the policy sees from the start."""
    held_out_docs: Mapping[int, tuple[ToolDoc, ...]]
    """Docs of the tools that become available at a turn (multi_turn_miss_func).

    They are without the sentence on syntax, as the benchmark reveals them.
    """
    reference: tuple[tuple[str, ...], ...]
    """Reference calls of each turn as bfcl-eval writes them; never leaves the service."""

    @property
    def long_context(self) -> bool:
        """Whether the tool classes load their long-context extensions."""
        return "long_context" in self.category

    def docs_at(self, turn: int) -> dict[str, ToolDoc]:
        """Docs, by name, of the tools that may be called in a turn."""
        docs = [*self.tools]
        for reveal, revealed in self.held_out_docs.items():
            docs += revealed if reveal <= turn else ()
        return {doc["function"]["name"]: doc for doc in docs}


@functools.cache
def load_tasks() -> Mapping[str, BfclTask]:
    """All 800 tasks by id, in the order of CATEGORIES and of bfcl-eval's files."""
    docs = {name: class_docs(name) for name in TOOL_CLASSES}
    return {task.task_id: task for name in CATEGORIES for task in _category(name, docs)}


def tool_owner(task: BfclTask, tool: str) -> str | None:
    """The involved class that owns a tool, or None. Tool names are unique within a task."""
    return _owner(task.involved_classes, tool)


def reference_calls(task: BfclTask) -> tuple[tuple[ToolCall, ...], ...]:
    """The task's reference as calls, one tuple for each turn; all arguments have names.

    Raises:
        ValueError: A reference is not a plain call, with literal arguments, of a tool of the task.
    """
    return _parsed(task.task_id, task.involved_classes, task.reference)


def call_key(call: ToolCall) -> str:
    """A call as text to compare: as values, True, 1 and 1.0 are equal in Python."""
    return json.dumps([call.name, call.arguments], sort_keys=True)


def call_text(call: ToolCall) -> str:
    """A call as references are written, which `reference_calls` reads.

    >>> call_text(ToolCall("cd", {"folder": "notes"}))
    "cd(folder='notes')"
    """
    arguments = ", ".join(f"{name}={value!r}" for name, value in call.arguments.items())
    return f"{call.name}({arguments})"


def class_docs(class_name: str) -> tuple[ToolDoc, ...]:
    """Docs of every tool of a class, as bfcl-eval shows them."""
    folder = files("bfcl_eval") / "data" / "multi_turn_func_doc"
    rows = _rows(folder / MULTI_TURN_FUNC_DOC_FILE_MAPPING[class_name])
    return tuple(
        {
            "type": "function",
            "function": {**row, "description": row["description"] + _SYNTAX_SENTENCE},
        }
        for row in rows
    )


def take_doc(docs: list[ToolDoc], name: str) -> ToolDoc:
    """Hold a tool out: remove its doc from the list, and return it without the syntax sentence."""
    for index, doc in enumerate(docs):
        if doc["function"]["name"] == name:
            function = docs.pop(index)["function"]
            description = function["description"].removesuffix(_SYNTAX_SENTENCE)
            return {"type": "function", "function": {**function, "description": description}}
    raise ValueError(f"held-out function {name!r} has no doc among the task's tool classes")


def _owner(involved_classes: tuple[str, ...], tool: str) -> str | None:
    return next((name for name in involved_classes if tool in tool_names(name)), None)


@functools.lru_cache(maxsize=2048)
def _parsed(
    task_id: str, involved_classes: tuple[str, ...], reference: tuple[tuple[str, ...], ...]
) -> tuple[tuple[ToolCall, ...], ...]:
    """Cached, because every verification asks: parsing takes as long as running the calls."""
    return tuple(
        tuple(_reference_call(task_id, involved_classes, text) for text in turn)
        for turn in reference
    )


def _reference_call(task_id: str, involved_classes: tuple[str, ...], text: str) -> ToolCall:
    node = ast.parse(text, mode="eval").body
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        raise ValueError(f"{task_id}: reference {text!r} is not a plain call name(...)")
    owner = _owner(involved_classes, node.func.id)
    if owner is None:
        raise ValueError(f"{task_id}: reference {text!r} calls no tool of the task")
    positional = zip(parameter_names(owner, node.func.id), node.args, strict=False)
    arguments = {name: ast.literal_eval(value) for name, value in positional}
    for keyword in node.keywords:
        if keyword.arg is None or keyword.arg in arguments:
            raise ValueError(f"{task_id}: reference {text!r} has no plain keyword arguments")
        arguments[keyword.arg] = ast.literal_eval(keyword.value)
    return ToolCall(node.func.id, arguments)


def _category(category: str, docs: Mapping[str, tuple[ToolDoc, ...]]) -> Iterator[BfclTask]:
    data = files("bfcl_eval") / "data"
    file_name = f"{VERSION_PREFIX}_{category}.json"
    references = {row["id"]: row for row in _rows(data / "possible_answer" / file_name)}
    for row in _rows(data / file_name):
        reference = references[row["id"]]["ground_truth"]
        if len(reference) != len(row["question"]):
            raise ValueError(
                f"{row['id']}: {len(row['question'])} turns but {len(reference)} reference turns"
            )
        shown = [doc for name in row["involved_classes"] for doc in docs[name]]
        # Before `tools`: this takes the held-out docs away from those that are shown.
        held_out_docs = {
            int(turn): tuple(take_doc(shown, name) for name in names)
            for turn, names in row.get("missed_function", {}).items()
        }
        yield BfclTask(
            task_id=row["id"],
            category=category,
            turns=tuple(tuple(turn) for turn in row["question"]),
            involved_classes=tuple(row["involved_classes"]),
            initial_config=row["initial_config"],
            tools=tuple(shown),
            held_out_docs=held_out_docs,
            reference=tuple(tuple(turn) for turn in reference),
        )


def _rows(path: Traversable) -> list[dict[str, Any]]:
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]
