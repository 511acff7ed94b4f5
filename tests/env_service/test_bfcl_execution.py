"""Execution: official result texts, and nothing of the model is ever code."""

import os
from pathlib import Path
from typing import Any

import pytest
from bfcl_eval.eval_checker.multi_turn_eval.multi_turn_utils import execute_multi_turn_func_call

from env_service.environments.bfcl.execution import ToolExecutor, error_of
from env_service.environments.bfcl.tasks import BfclTask, load_tasks, reference_calls
from seal.formats import ToolCall

FILES = "multi_turn_base_0"  # GorillaFileSystem and TwitterAPI


def run(task: BfclTask, executor: ToolExecutor, name: str, **arguments: Any) -> str:
    return executor.execute(ToolCall(name, arguments), task.docs_at(0).keys())


def official(task: BfclTask, label: str, *calls: str) -> list[str]:
    results, _ = execute_multi_turn_func_call(
        list(calls),
        dict(task.initial_config),
        list(task.involved_classes),
        label,
        task.task_id,
        long_context=task.long_context,
        is_evaL_run=False,
    )
    return [str(result) for result in results]


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("cd", {"folder": "document"}),
        ("cd", {"folder": "nowhere"}),
        ("cd", {}),
        ("cd", {"folder": "document", "other": 1}),
        ("cd", {"dir": "document"}),
        ("cd", {"self": 1}),
        ("ls", {"a": True}),
        ("echo", {"content": 'it\'s "x"\n'}),
        ("sort", {"file_name": 3}),
        ("tail", {"file_name": "x", "lines": "many"}),
        ("post_tweet", {"content": "x", "tags": ["#a"], "mentions": []}),
        ("no_such_tool", {"x": 1}),
        ("GorillaFileSystem.cd", {"folder": "document"}),
    ],
)
def test_result_texts_equal_the_official_ones(name: str, arguments: dict[str, Any]) -> None:
    task = load_tasks()[FILES]
    text = f"{name}({','.join(f'{key}={value!r}' for key, value in arguments.items())})"
    label = "m" + text.encode().hex()
    assert [run(task, ToolExecutor(task), name, **arguments)] == official(task, label, text)


HOSTILE_NAMES = (
    "__import__('os').system('touch {mark}')",
    "__init__",
    "_load_scenario",
    "_current_dir",
    "__class__",
    "open",
    "print",
    "cd.__globals__",
    "cd(folder='document') or exec",
    "instances",
    "",
)


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_a_hostile_name_is_only_a_name(name: str, tmp_path: Path) -> None:
    mark = tmp_path / "executed"
    task = load_tasks()[FILES]
    executor = ToolExecutor(task)
    before = repr(executor.instances["GorillaFileSystem"].root)
    result = run(task, executor, name.format(mark=mark), scenario={}, folder="document")
    assert error_of(result) == result
    assert len(result) < 200
    assert not mark.exists()
    assert repr(executor.instances["GorillaFileSystem"].root) == before


@pytest.mark.parametrize(
    "key",
    ["folder=__import__('os').system('touch {mark}'), x", "**{{}}", "__class__", "folder)or(x"],
)
def test_a_hostile_argument_name_is_only_a_name(key: str, tmp_path: Path) -> None:
    mark = tmp_path / "executed"
    task = load_tasks()[FILES]
    result = run(task, ToolExecutor(task), "cd", **{key.format(mark=mark): "document"})
    assert result.startswith("Error during execution: ")
    assert not mark.exists()
    assert os.getcwd() not in result


def test_a_held_out_tool_cannot_be_called_before_its_turn() -> None:
    task = load_tasks()["multi_turn_miss_func_0"]
    executor = ToolExecutor(task)
    call = ToolCall("sort", {"file_name": "final_report.pdf"})
    early = executor.execute(call, task.docs_at(0).keys())
    assert early == "Error during execution: name 'sort' is not defined"
    assert executor.execute(call, task.docs_at(3).keys()) != early


def test_a_tool_cannot_change_the_call_that_was_recorded() -> None:
    task = load_tasks()[FILES]
    executor = ToolExecutor(task)
    tags = ["#a"]
    run(task, executor, "authenticate_twitter", username="tech_guru", password="securePass123")
    run(task, executor, "post_tweet", content="x", tags=tags)
    newest = max(executor.instances["TwitterAPI"].tweets)
    executor.instances["TwitterAPI"].tweets[newest]["tags"].append("#b")
    assert tags == ["#a"]


def test_arguments_nested_beyond_reason_are_an_error_result() -> None:
    task = load_tasks()[FILES]
    nested: list[Any] = []
    for _ in range(900):
        nested = [nested]
    result = run(task, ToolExecutor(task), "post_tweet", content="x", tags=nested)
    assert result.startswith("Error during execution: maximum recursion depth")


def test_long_context_episodes_share_no_state() -> None:
    task = next(
        task
        for task in load_tasks().values()
        if task.long_context and "TravelAPI" in task.involved_classes
    )
    one, other = ToolExecutor(task), ToolExecutor(task)
    cards = one.instances["TravelAPI"].credit_card_list
    untouched = {key: dict(card) for key, card in cards.items()}
    for card in cards.values():
        card["balance"] = -1
    assert other.instances["TravelAPI"].credit_card_list == untouched
    assert ToolExecutor(task).instances["TravelAPI"].credit_card_list == untouched


@pytest.mark.parametrize(
    ("text", "is_error"),
    [
        ("Error during execution: x", True),
        ('{"error": "x"}', True),
        ('{"error": "x", "hint": "y"}', True),
        ('{"result": "error"}', False),
        ('{"result": 1, "error": "x"}', False),
        ('{"error"', False),
        ('{"errors": 1}', False),
        ("error", False),
    ],
)
def test_error_results_by_bfcls_convention(text: str, is_error: bool) -> None:
    assert error_of(text) == (text if is_error else None)


def test_references_are_executed_as_officially() -> None:
    for task in [*load_tasks().values()][::20]:
        executor = ToolExecutor(task)
        every_tool = task.docs_at(len(task.turns)).keys()
        for texts, calls in zip(task.reference, reference_calls(task), strict=True):
            ours = [executor.execute(call, every_tool) for call in calls]
            assert ours == official(task, "references", *texts)
