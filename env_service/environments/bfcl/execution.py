"""Tool execution of one episode: instances of the task's tool classes, and calls on them.

In: a task, then calls one by one. Out: the text that bfcl-eval's own execution would return for
each.

bfcl-eval pastes a call into `eval`. This module looks a method up among the public methods of the
task's tool classes and calls it with the parsed arguments, so no text of the model is ever code. It
therefore does not reproduce two official quirks: it does not rewrite text inside an argument that
looks like a call of a tool, and a name of Python itself (print, open) cannot be called.
"""

import copy
import functools
import inspect
import json
from collections.abc import Mapping, Set
from typing import Any

from bfcl_eval.constants.executable_backend_config import STATELESS_CLASSES

from env_service.environments.bfcl.tasks import BfclTask
from env_service.environments.bfcl.tool_classes import tool_class, tool_names
from env_service.environments.dialogue import ToolResult
from seal.formats import ToolCall

EXCEPTION_PREFIX = "Error during execution: "
"""How bfcl-eval begins the result of a call that raised."""

_LONGEST_NAME_SHOWN = 80


class ToolExecutor:
    """The tool instances of one episode, in the task's initial state."""

    def __init__(self, task: BfclTask) -> None:
        self.instances = {name: _new_instance(task, name) for name in task.involved_classes}
        """The live instances by class name; the state check reads them."""
        self._owner = {
            tool: class_name
            for class_name in task.involved_classes
            for tool in tool_names(class_name)
        }

    def execute(self, call: ToolCall, available: Set[str]) -> str:
        """Run one call of an available tool and return its result as bfcl-eval writes it.

        Of any other tool the result is an error.
        """
        if call.name not in available or call.name not in self._owner:
            return _unavailable(call.name)
        owner = self._owner[call.name]
        method = getattr(self.instances[owner], call.name)
        arguments = {**_mutable_defaults(owner, call.name), **call.arguments}
        try:
            # A copy, because a tool may keep an argument in its state and change it later.
            return _result_text(method(**copy.deepcopy(arguments)))
        except MemoryError:
            raise  # the service's limit, not the tool's result
        except RecursionError:
            # Python's text depends on the caller's depth, but a replay must give the same text.
            return f"{EXCEPTION_PREFIX}maximum recursion depth exceeded"
        except Exception as error:  # the named border: whatever a tool raises is its result
            return f"{EXCEPTION_PREFIX}{error}"

    def result(self, call: ToolCall, available: Set[str]) -> ToolResult:
        """Run one call like `execute`, and say whether its result reports an error."""
        text = self.execute(call, available)
        return ToolResult(text, error_of(text))


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
    if class_name in STATELESS_CLASSES:  # MathAPI: it takes no scenario
        return instance
    scenario = copy.deepcopy(task.initial_config.get(class_name, {}))
    instance._load_scenario(scenario, long_context=task.long_context)
    if task.long_context:
        # TravelAPI puts module-level credit cards into its state and charges them. Without a copy,
        # one episode's bookings would change those of every other.
        instance = copy.deepcopy(instance)
    return instance


@functools.cache
def _mutable_defaults(class_name: str, tool: str) -> Mapping[str, Any]:
    """Lists and dicts that are defaults of parameters; each call gets copies of them.

    Python keeps one such object for all calls. A tweet posted without mentions would share its list
    of mentions with every other such tweet, also of other episodes.
    """
    parameters = inspect.signature(vars(tool_class(class_name))[tool]).parameters
    defaults = {name: parameter.default for name, parameter in parameters.items()}
    return {name: value for name, value in defaults.items() if isinstance(value, list | dict)}


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
    """What bfcl-eval's execution returns for a name that does not exist."""
    head = name.split(".")[0]
    if head.isidentifier():
        return f"{EXCEPTION_PREFIX}name '{head[:_LONGEST_NAME_SHOWN]}' is not defined"
    shown = name[:_LONGEST_NAME_SHOWN]
    return f"{EXCEPTION_PREFIX}there is no tool of the name {shown!r}"
