"""The environments this service can serve, by name.

A new environment is a folder here and one entry in ENVIRONMENTS. Each is imported when it is asked
for, so that a broken or missing installation of one does not stop the others.
"""

from collections.abc import Callable, Mapping

from env_service.environments.base import Environment, SelfCheckFailed


def _bfcl() -> Environment:
    try:
        from env_service.environments.bfcl.environment import BfclEnvironment
    except ImportError as error:
        raise SelfCheckFailed(
            f"bfcl does not import ({error}); install the service's requirements with install.sh"
        ) from error
    return BfclEnvironment()


def _toy() -> Environment:
    from env_service.environments.toy.environment import ToyEnvironment

    return ToyEnvironment()


ENVIRONMENTS: Mapping[str, Callable[[], Environment]] = {"bfcl": _bfcl, "toy": _toy}
"""Environment name (`env_type` of the wire) -> function that loads it."""
