"""The environments that this service can serve, by name.

A new environment is a folder here and one entry in ENVIRONMENTS. Only the worker processes import
environments; the service's own process knows their names alone.
"""

import importlib
from collections.abc import Mapping, Sequence

from env_service.environments.base import Environment, SelfCheckFailed, TaskFile

ENVIRONMENTS: Mapping[str, str] = {
    "bfcl": "env_service.environments.bfcl.environment:BfclEnvironment",
    "toy": "env_service.environments.toy.environment:ToyEnvironment",
}
"""Environment name (`env_type` of a request) -> "module:class"."""


def load(name: str, place: str, tasks: Sequence[TaskFile] = ()) -> Environment:
    """Import an environment and make it.

    Args:
        name: Its name.
        place: "module:class".
        tasks: Pools of tasks; the class gets those that are for this environment.

    Raises:
        SelfCheckFailed: It does not import, there is no such class, or a pool cannot be played.
    """
    module, _, class_name = place.partition(":")
    try:
        environment_class = vars(importlib.import_module(module)).get(class_name)
    except ImportError as error:
        raise SelfCheckFailed(
            f"{name} does not import ({error}); install the service's requirements with install.sh"
        ) from error
    if environment_class is None:
        raise SelfCheckFailed(f"{name}: module {module} has no class {class_name!r}")
    own = tuple(pool for pool in tasks if pool.environment == name)
    environment: Environment = environment_class(own) if own else environment_class()
    return environment
