"""Tool execution of one episode: instances of the task's tool classes, and calls on them.

In: a task, then calls one by one. Out: the text that bfcl-eval's own execution would return for
each. Called by the live episode and, on instances of its own, by the verifier.

bfcl-eval pastes a call into `eval`; here a method is looked up among the public methods of the
task's tool classes and called with the parsed arguments, so no text of the model is ever code. Two
official quirks are therefore not reproduced: text inside an argument that looks like a call of a
tool is not rewritten, and a name of Python itself (print, open) is not callable.
"""

import copy
import functools
import inspect
import json
from collections.abc import Mapping, Set
from typing import Any

from env_service.environments.bfcl.tasks import BfclTask
from env_service.environments.bfcl.tool_classes import is_stateless, tool_class, tool_names
from seal.formats import ToolCall

EXCEPTION_PREFIX = "Error during execution: "
"""How bfcl-eval begins the result of a call that raised."""

_LONGEST_NAME_SHOWN = 80


class ToolExecutor:
    """The tool instances of one episode, in the task's initial state."""

    def __init__(self, task: BfclTask) -> None:
        self._instances = {name: _new_instance(task, name) for name in task.involved_classes}
        self._owner = {
            tool: class_name
            for class_name in task.involved_classes
            for tool in tool_names(class_name)
        }

    @property
    def instances(self) -> dict[str, Any]:
        """The live instances by class name; for the state check, which only reads them."""
        return self._instances

    def execute(self, call: ToolCall, available: Set[str]) -> str:
        """Run one call and return its result as bfcl-eval would write it.

        Args:
            call: Name and arguments, already parsed.
            available: Names of the tools that may be called now.
        """
        if call.name not in available or call.name not in self._owner:
            return _unavailable(call.name)
        owner = self._owner[call.name]
        method = getattr(self._instances[owner], call.name)
        arguments = {**_mutable_defaults(owner, call.name), **call.arguments}
        try:
            # A copy, as a tool may keep an argument as part of its state and change it later.
            return _result_text(method(**copy.deepcopy(arguments)))
        except MemoryError:
            raise  # the service's limit, not the tool's answer
        except RecursionError:
            # Python adds words that depend on how deep the caller is; a replay must give the same.
            return f"{EXCEPTION_PREFIX}maximum recursion depth exceeded"
        except Exception as error:  # the named border: whatever a tool raises is its result
            return f"{EXCEPTION_PREFIX}{error}"


def error_of(result: str) -> str | None:
    """The result itself if it reports an error by BFCL's convention, else None.

    >>> error_of('{"error": "cd: x: No such directory."}')
    '{"error": "cd: x: No such directory."}'
    >>> error_of('{"current_directory": "error"}') is None
    True
    """
    if result.startswith(EXCEPTION_PREFIX):
        return result
    if not result.startswith('{"error"'):
        return None
    try:
        parsed = json.loads(result)
    except ValueError:
        return None
    return result if isinstance(parsed, dict) and next(iter(parsed), None) == "error" else None


def _new_instance(task: BfclTask, class_name: str) -> Any:
    instance: Any = tool_class(class_name)()
    if is_stateless(class_name):
        return instance
    scenario = copy.deepcopy(task.initial_config.get(class_name, {}))
    instance._load_scenario(scenario, long_context=task.long_context)
    if task.long_context:
        # TravelAPI puts module-level credit cards into its state and charges them: without a copy
        # one episode's bookings would change every other's.
        instance = copy.deepcopy(instance)
    return instance


@functools.cache
def _mutable_defaults(class_name: str, tool: str) -> Mapping[str, Any]:
    """Lists and dicts that parameters have by default, to be given to each call as copies.

    Python keeps one such object for all calls: a tweet posted without mentions would share its list
    of them with every other such tweet, of this episode and of all others.
    """
    parameters = inspect.signature(vars(tool_class(class_name))[tool]).parameters.values()
    return {one.name: one.default for one in parameters if isinstance(one.default, list | dict)}


def _result_text(result: object) -> str:
    if isinstance(result, str):
        return result
    if isinstance(result, dict):
        try:
            return json.dumps(result)
        except (TypeError, ValueError):
            return str(result)
    return str(result)


def _unavailable(name: str) -> str:
    """What bfcl-eval's execution answers for a name that does not exist."""
    head = name.split(".")[0]
    if head.isidentifier():
        return f"{EXCEPTION_PREFIX}name '{head[:_LONGEST_NAME_SHOWN]}' is not defined"
    shown = name[:_LONGEST_NAME_SHOWN]
    return f"{EXCEPTION_PREFIX}there is no tool of the name {shown!r}"
