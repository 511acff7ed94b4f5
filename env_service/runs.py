"""Learning interfaces of training runs: snapshots by run id and version.

In: a failure profile of a run (the back edge, once a round). Out: the interface that new episodes
of the run are pinned to. Called by the routes. A snapshot never changes; episodes hold their own,
so nothing here touches an episode that is under way. Kept in memory: a service that was restarted
knows a run again after its next profile, with which the trainer sends the interface that was shown.

A version that was sent before is answered from the record. If it is not the newest, the run has
gone back to a checkpoint: it becomes the newest again, and later versions are forgotten.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from pydantic import TypeAdapter, ValidationError

from env_service.errors import ServiceError
from seal.coevolution.evolution import InterfaceConfig, evolve
from seal.coevolution.interface import INITIAL, Interface
from seal.coevolution.profile import FailureProfile

_CONFIG = TypeAdapter(InterfaceConfig)
_MOST_RUNS = 256
_MOST_VERSIONS = 64
"""Beyond these, the run heard of least lately goes, and a run's oldest versions."""


@dataclass(frozen=True)
class _Snapshot:
    profile: FailureProfile
    config: InterfaceConfig
    shown: Interface | None
    interface: Interface


class Runs:
    """Every run the service has heard of."""

    def __init__(self) -> None:
        self._runs: dict[str, dict[int, _Snapshot]] = {}

    def newest(self, run_id: str) -> Interface:
        """The interface new episodes of a run get; INITIAL for a run never heard of."""
        snapshots = self._runs.get(run_id)
        return snapshots[max(snapshots)].interface if snapshots else INITIAL

    def pinned(self, run_id: str, version: int | None) -> Interface:
        """The interface of a run by its version, the newest where none is asked for.

        Raises:
            ServiceError: 409, the run has no such version here: the service was restarted, or a
                profile did not reach it.
        """
        if version is None:
            return self.newest(run_id)
        snapshots = self._runs.get(run_id, {})
        if version not in snapshots:
            known = f"versions {min(snapshots)} to {max(snapshots)}" if snapshots else "none"
            raise ServiceError(
                409,
                "unknown_interface",
                f"run {run_id!r} has no interface version {version} here, known: {known}; send its "
                "profile again (PUT /runs/{run_id}/profile)",
            )
        return snapshots[version].interface

    def update(
        self,
        run_id: str,
        profile: FailureProfile,
        config: InterfaceConfig,
        shown: Interface | None = None,
    ) -> Interface:
        """Evolve a run's interface from a profile.

        Args:
            run_id: The run.
            profile: C_t.
            config: Which components may act, and when.
            shown: Omega_t, None for the newest one that is known here.

        Raises:
            ServiceError: 409, the version is known with another content.
        """
        snapshots = self._runs.get(run_id, {})
        version = profile.version
        known = snapshots.get(version)
        asked = (profile, config, shown)
        if known is not None and (known.profile, known.config, known.shown) != asked:
            raise ServiceError(
                409,
                "version_exists",
                f"run {run_id!r} has version {version} with another profile or configuration; "
                "snapshots never change, so use a new run_id or a higher version",
            )
        earlier = {number: kept for number, kept in snapshots.items() if number < version}
        if known is None:
            newest = earlier[max(earlier)].interface if earlier else INITIAL
            known = _Snapshot(profile, config, shown, evolve(shown or newest, profile, config))
        kept = sorted(earlier)[-_MOST_VERSIONS:]
        self._runs.pop(run_id, None)  # the run heard of last comes last
        self._runs[run_id] = {**{number: earlier[number] for number in kept}, version: known}
        if len(self._runs) > _MOST_RUNS:
            del self._runs[next(iter(self._runs))]
        return known.interface


def interface_config(values: Mapping[str, Any]) -> InterfaceConfig:
    """Read the configuration that comes with a profile.

    Raises:
        ServiceError: 422, a field is unknown or of the wrong type.
    """
    names = [field.name for field in fields(InterfaceConfig)]
    unknown = sorted(set(values) - set(names))
    if unknown:
        raise ServiceError(
            422,
            "invalid_request",
            f"unknown interface settings {unknown}; known settings: {', '.join(names)}",
        )
    try:
        return _CONFIG.validate_python(dict(values))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in ("config", *first["loc"]))
        raise ServiceError(422, "invalid_request", f"{place}: {first['msg']}") from error


def failure_profile(values: Mapping[str, Any]) -> FailureProfile:
    """Read a profile.

    Raises:
        ServiceError: 422, naming the field that is wrong.
    """
    try:
        return FailureProfile.from_json(dict(values))
    except ValueError as error:
        raise ServiceError(422, "invalid_request", f"profile: {error}") from error


def shown_interface(values: Mapping[str, Any] | None) -> Interface | None:
    """Read the interface that comes with a profile, if one does.

    Raises:
        ServiceError: 422, naming the field that is wrong.
    """
    try:
        return None if values is None else Interface.from_json(dict(values))
    except ValueError as error:
        raise ServiceError(422, "invalid_request", f"interface: {error}") from error
