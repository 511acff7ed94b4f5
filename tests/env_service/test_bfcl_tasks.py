"""Tasks and docs are bfcl-eval's own, references are plain data."""

import ast
import contextlib
import importlib
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from env_service.environments.bfcl.tasks import CATEGORIES, load_tasks, reference_calls, tool_owner


@pytest.fixture(scope="module")
def official(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """bfcl_eval.utils, which wants a scratch folder and a package the service does not need."""
    patch = pytest.MonkeyPatch()
    scratch: Path = tmp_path_factory.mktemp("bfcl_project_root")
    patch.setenv("BFCL_PROJECT_ROOT", str(scratch))
    filelock = types.ModuleType("filelock")
    vars(filelock)["FileLock"] = contextlib.nullcontext
    patch.setitem(sys.modules, "filelock", filelock)
    yield importlib.import_module("bfcl_eval.utils")
    for name in ("bfcl_eval.utils", "bfcl_eval.constants.eval_config"):
        del sys.modules[name]
    patch.undo()


@pytest.mark.parametrize("category", CATEGORIES)
def test_tasks_and_docs_equal_the_official_loading(official: Any, category: str) -> None:
    ours = {task.task_id: task for task in load_tasks().values() if task.category == category}
    entries = official.load_dataset_entry(category)
    answers = {row["id"]: row for row in official.load_ground_truth_entry(category)}
    assert [entry["id"] for entry in entries] == list(ours)
    for entry in entries:
        task = ours[entry["id"]]
        assert [list(turn) for turn in task.turns] == entry["question"]
        assert list(task.involved_classes) == entry["involved_classes"]
        assert task.initial_config == entry["initial_config"]
        assert [doc["function"] for doc in task.tools] == entry["function"]
        revealed = {
            str(turn): [doc["function"] for doc in docs]
            for turn, docs in task.held_out_docs.items()
        }
        assert revealed == entry.get("missed_function", {})
        assert [list(turn) for turn in task.reference] == answers[entry["id"]]["ground_truth"]


def test_figures_of_the_benchmark() -> None:
    tasks = load_tasks().values()
    turns = [turn for task in tasks for turn in task.reference]
    assert len(tasks) == 800
    assert len(turns) == 3336
    assert sum(not turn for turn in turns) == 412
    assert sum(len(turn) for turn in turns) == 4625


def test_every_reference_is_read_without_loss() -> None:
    positional = 0
    for task in load_tasks().values():
        for texts, calls in zip(task.reference, reference_calls(task), strict=True):
            for text, call in zip(texts, calls, strict=True):
                node = ast.parse(text, mode="eval").body
                assert isinstance(node, ast.Call)
                values = [*node.args, *(keyword.value for keyword in node.keywords)]
                assert [ast.literal_eval(value) for value in values] == [*call.arguments.values()]
                owner = tool_owner(task, call.name)
                assert owner in task.involved_classes
                positional += bool(node.args)
    assert positional == 160


def test_a_positional_argument_gets_its_name() -> None:
    calls = reference_calls(load_tasks()["multi_turn_base_0"])
    assert calls[2][0].name == "sort"
    assert calls[2][0].arguments == {"file_name": "final_report.pdf"}


def test_held_out_tools_appear_at_their_turn() -> None:
    task = load_tasks()["multi_turn_miss_func_0"]
    assert list(task.held_out_docs) == [3]
    assert "sort" not in task.docs_at(2)
    assert "sort" in task.docs_at(3)
