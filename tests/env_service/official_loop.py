"""bfcl-eval's own inference loop and evaluation, driven by a scripted policy.

In: a task and a policy that says a text at each step of each turn. Out: a `Played`: the dialogue as
the loop led it, where it ended, and the verdict on what the loop wrote down. Called by
test_bfcl_official_loop.py, which plays the same texts in this project's live episode.

The model handler is bfcl-eval's QwenFCHandler. Only the request to a model server is replaced
(`_query_prompting`): the prompt's formatting, the reading of calls, their execution, held-out
functions, the step limit and the next turns are bfcl-eval's. So are the functions around the loop
that decide what stands in a result file and how such a line is judged. Their modules import the
packages of every model's vendor, so these two functions are read from the modules' own files.
"""

import ast
import contextlib
import copy
import importlib.util
import io
import json
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from bfcl_eval.eval_checker.multi_turn_eval import multi_turn_utils as execution
from bfcl_eval.eval_checker.multi_turn_eval.multi_turn_checker import multi_turn_checker
from snapshots import fresh_module_state

from env_service.environments.bfcl.tasks import BfclTask

Policy = Callable[[int, int], str]
"""What is said at a step of a turn; both count from 0."""

MODEL = "scripted_model"
"""Also the beginning of the names under which execution keeps this model's tool instances."""


@dataclass(frozen=True)
class Played:
    """One episode from its first user message to its verdict."""

    dialogue: tuple[tuple[str, str], ...]
    """(role, content) of users' messages and tool results; assistants' contents are left out."""
    asked: tuple[int, ...]
    """How many times the model was asked in each turn that was begun."""
    cut: bool
    """The step limit ended the episode."""
    valid: bool
    """The verdict."""


class OfficialLoop:
    """bfcl-eval, imported and with its data loaded.

    Args:
        handler_class: QwenFCHandler.
        entries: bfcl-eval's entry of each task, by id; the loop gets copies, as it changes them.
        references: Reference calls of each task, by id.
    """

    def __init__(
        self,
        handler_class: Any,
        entries: Mapping[str, dict[str, Any]],
        references: Mapping[str, list[list[str]]],
    ) -> None:
        self._handler = handler_class(MODEL, 0.0, MODEL, is_fc_model=True)
        self._handler._query_prompting = self._query
        self._policy: Policy = lambda turn, step: ""
        self._dialogue: list[dict[str, Any]] = []  # the loop's own list, which goes on growing
        self._entries = entries
        self._references = references
        self._inference = _function(
            "bfcl_eval._llm_response_generation", "multi_threaded_inference"
        )
        self._judge = _function(
            "bfcl_eval.eval_checker.eval_runner", "_evaluate_single_multi_turn_entry"
        )

    def play(self, task_id: str, policy: Policy, own_cards: bool = False) -> Played:
        """Lead the dialogue and judge it.

        Args:
            task_id: bfcl-eval's id of the task.
            policy: The assistant.
            own_cards: Each tool instance gets credit cards of its own (see `fresh_module_state`).
        """
        self._policy = policy
        line = self._in_own_process(own_cards, lambda: self._generate(task_id))
        turns = line["result"]
        assert isinstance(turns, list), (task_id, line["result"], line["traceback"])
        return Played(
            dialogue=tuple(
                (one["role"], "" if one["role"] == "assistant" else one["content"])
                for one in self._dialogue
            ),
            asked=tuple(map(len, turns)),
            cut="Model has been forced to quit" in json.dumps(line["inference_log"]),
            valid=self.valid(task_id, turns, own_cards),
        )

    def valid(self, task_id: str, turns: list[list[str]], own_cards: bool = False) -> bool:
        """The verdict on what a result file has of a task: the responses of each turn."""
        found = self._in_own_process(
            own_cards,
            lambda: self._judge(
                self._handler,
                task_id,
                turns,
                self._references[task_id],
                copy.deepcopy(self._entries[task_id]),
                MODEL,
                task_id.rsplit("_", 1)[0],
            ),
        )
        return bool(found["valid"])

    def _query(self, inference_data: dict[str, Any]) -> tuple[Any, float]:
        """The policy's answer, shaped as a model server's, and the seconds it took."""
        self._dialogue = inference_data["message"]
        self._handler._format_prompt(self._dialogue, inference_data["function"])  # it can raise
        roles = [one["role"] for one in self._dialogue]
        turn = roles.count("user") - 1  # a user says one message a turn
        step = roles[::-1][: roles[::-1].index("user")].count("assistant")
        reply = SimpleNamespace(
            choices=[SimpleNamespace(text=self._policy(turn, step))],
            usage=SimpleNamespace(prompt_tokens=0, completion_tokens=0),
        )
        return reply, 0.0

    def _generate(self, task_id: str) -> dict[str, Any]:
        """The task's line of a result file, read back from JSON."""
        entry = copy.deepcopy(self._entries[task_id])
        line = self._inference(self._handler, entry, False, True)
        read: dict[str, Any] = json.loads(json.dumps(line))
        return read

    def _in_own_process(self, own_cards: bool, run: Callable[[], Any]) -> Any:
        """Inference and evaluation are two programs: neither sees what the other left in memory."""
        try:
            with contextlib.redirect_stdout(io.StringIO()), fresh_module_state(own_cards):
                return run()
        finally:
            for name in [name for name in vars(execution) if name.startswith(MODEL)]:
                del vars(execution)[name]


@contextlib.contextmanager
def official_loop(scratch: Path, more: Sequence[BfclTask] = ()) -> Iterator[OfficialLoop]:
    """Import bfcl-eval's handler and load its data.

    Args:
        scratch: An empty folder; bfcl-eval makes folders for results in it.
        more: Tasks that are not bfcl-eval's own.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BFCL_PROJECT_ROOT", str(scratch))
        from bfcl_eval.model_handler.local_inference.qwen_fc import QwenFCHandler
        from bfcl_eval.utils import load_dataset_entry, load_ground_truth_entry

        categories = ("base", "miss_func", "miss_param", "long_context")
        names = [f"multi_turn_{name}" for name in categories]
        entries = {one["id"]: one for name in names for one in load_dataset_entry(name)}
        references = {
            one["id"]: one["ground_truth"]
            for name in names
            for one in load_ground_truth_entry(name)
        }
        entries |= {task.task_id: _entry(task) for task in more}
        references |= {task.task_id: [*map(list, task.reference)] for task in more}
        yield OfficialLoop(QwenFCHandler, entries, references)


def _entry(task: BfclTask) -> dict[str, Any]:
    """A task as load_dataset_entry gives one."""
    held_out = {
        str(turn): [doc["function"] for doc in docs] for turn, docs in task.held_out_docs.items()
    }
    entry = {
        "id": task.task_id,
        "question": [*map(list, task.turns)],
        "initial_config": task.initial_config,
        "involved_classes": list(task.involved_classes),
        "function": [doc["function"] for doc in task.tools],
    }
    return {**entry, "missed_function": held_out} if held_out else entry


def _function(module: str, name: str) -> Any:
    """A function of a module that cannot be imported without the packages of every vendor."""
    from bfcl_eval.model_handler.base_handler import BaseHandler
    from tqdm import tqdm

    found = importlib.util.find_spec(module)
    assert found is not None and found.origin is not None
    tree = ast.parse(Path(found.origin).read_text("utf-8"))
    (node,) = (one for one in tree.body if isinstance(one, ast.FunctionDef) and one.name == name)
    scope: dict[str, Any] = {
        "BaseHandler": BaseHandler,
        "is_empty_execute_response": execution.is_empty_execute_response,
        "multi_turn_checker": multi_turn_checker,
        "tqdm": tqdm,
        "traceback": traceback,
    }
    exec(compile(ast.Module([node], []), found.origin, "exec"), scope)
    return scope[name]
