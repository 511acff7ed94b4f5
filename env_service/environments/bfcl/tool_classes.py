"""The benchmark's tool classes, by name.

In: the name of a tool class, as in a task's `involved_classes`. Out: the class and the names of its
public methods, which are the tools. This module holds classes only, never an instance.
"""

import functools
import importlib
import inspect

from bfcl_eval.constants.executable_backend_config import CLASS_FILE_PATH_MAPPING

from env_service.environments.base import SelfCheckFailed

TOOL_CLASSES: tuple[str, ...] = (
    "GorillaFileSystem",
    "MathAPI",
    "MessageAPI",
    "TicketAPI",
    "TradingBot",
    "TravelAPI",
    "TwitterAPI",
    "VehicleControlAPI",
)
"""Classes of multi-turn tasks; bfcl_eval has more, which belong to other categories."""


@functools.cache
def tool_class(class_name: str) -> type:
    """Import one tool class.

    Raises:
        SelfCheckFailed: The name is not a multi-turn tool class, or its module does not import.
    """
    if class_name not in TOOL_CLASSES:
        known = ", ".join(TOOL_CLASSES)
        raise SelfCheckFailed(f"bfcl: unknown tool class {class_name!r}; known classes: {known}")
    try:
        module = importlib.import_module(CLASS_FILE_PATH_MAPPING[class_name])
    except ImportError as error:
        raise SelfCheckFailed(
            f"bfcl: tool class {class_name} does not import ({error}); install the service's "
            "requirements"
        ) from error
    loaded = vars(module)[class_name]
    if not isinstance(loaded, type):
        raise SelfCheckFailed(
            f"bfcl: {class_name} of bfcl_eval is {type(loaded).__name__}, not a class"
        )
    return loaded


@functools.cache
def tool_names(class_name: str) -> frozenset[str]:
    """Names of the tools of a class: its public methods, as bfcl_eval's execution finds them."""
    methods = inspect.getmembers(tool_class(class_name), inspect.isfunction)
    return frozenset(name for name, _ in methods if not name.startswith("_"))


@functools.cache
def parameter_names(class_name: str, tool: str) -> tuple[str, ...]:
    """Argument names of a tool in the order of its signature, without self."""
    signature = inspect.signature(vars(tool_class(class_name))[tool])
    return tuple(signature.parameters)[1:]
