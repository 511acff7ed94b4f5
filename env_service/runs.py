"""Learning interfaces of training runs: snapshots by run id and version.

In: a failure profile of a run (the back edge, once a round). Out: the interface that new episodes
of the run show. A snapshot never changes, and an episode holds its own, so nothing in this module
changes a running episode. Snapshots are kept in memory. A restarted service knows a run again after
its next profile, because the trainer sends the shown interface with it.

A repeated version is answered from the record. If it is not the newest, the run has gone back to a
checkpoint: the version becomes the newest again, and later versions are forgotten.
"""

import hashlib
import json
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from typing import Any

from pydantic import TypeAdapter, ValidationError

from env_service.errors import ServiceError
from seal.coevolution.evolution import InterfaceConfig, evolve
from seal.coevolution.interface import INITIAL, Interface
from seal.coevolution.profile import FailureProfile
from seal.wire import ProfileUpdate

_CONFIG = TypeAdapter(InterfaceConfig)
MOST_RUNS = 256
"""Runs that the service knows at once."""
RECENT_S = 3600.0
"""Seconds after its last request in which a run is not forgotten."""
_MOST_VERSIONS = 64
"""Versions of one run; beyond that the oldest are forgotten."""
_MOST_FORGOTTEN = 10_000


@dataclass(frozen=True)
class _Snapshot:
    sent: str
    """Hash of what it was made from: profile, configuration and the shown interface."""
    interface: Interface


@dataclass
class _Run:
    snapshots: dict[int, _Snapshot]
    used: float
    """Time of the last request for it, in seconds of the clock."""


class Runs:
    """All runs that the service knows.

    Args:
        busy: Returns the runs that have live episodes; these are not forgotten.
        clock: Returns seconds.
    """

    def __init__(
        self,
        busy: Callable[[], Set[str]] = frozenset,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._busy = busy
        self._clock = clock
        self._runs: dict[str, _Run] = {}
        self._forgotten: OrderedDict[str, None] = OrderedDict()

    def newest(self, run_id: str) -> Interface:
        """The interface that new episodes of a run show; INITIAL for an unknown run.

        Raises:
            ServiceError: 409, the service has forgotten the run to make room for others.
        """
        run = self._runs.get(run_id)
        if run is not None:
            run.used = self._clock()
            return run.snapshots[max(run.snapshots)].interface
        if run_id in self._forgotten:
            raise ServiceError(
                409,
                "unknown_interface",
                f"run {run_id!r} was idle for long and was forgotten to make room for others; send "
                "its profile again (PUT /runs/{run_id}/profile)",
            )
        return INITIAL

    def pinned(self, run_id: str, version: int | None) -> Interface:
        """The interface of a run by its version; None means the newest.

        Raises:
            ServiceError: 409, the service does not know that version: it was restarted, or a
                profile did not reach it.
        """
        if version is None:
            return self.newest(run_id)
        run = self._runs.get(run_id)
        if run is None or version not in run.snapshots:
            known = "none"
            if run is not None:
                known = f"versions {min(run.snapshots)} to {max(run.snapshots)}"
            raise ServiceError(
                409,
                "unknown_interface",
                f"run {run_id!r} has no interface version {version} here, known: {known}; send its "
                "profile again (PUT /runs/{run_id}/profile)",
            )
        run.used = self._clock()
        return run.snapshots[version].interface

    def update(
        self,
        run_id: str,
        profile: FailureProfile,
        config: InterfaceConfig,
        shown: Interface | None = None,
    ) -> Interface:
        """Evolve a run's interface from the profile C_t and from Omega_t, the one that was shown.

        Without `shown` it is the newest one that the service knows. The configuration says which
        components may act, and when.

        Raises:
            ServiceError: 409, the version is known with other content; 429, MOST_RUNS other runs
                are active.
        """
        run = self._runs.get(run_id)
        snapshots = run.snapshots if run is not None else {}
        version = profile.version
        known = snapshots.get(version)
        sent = _digest(profile, config, shown)
        if known is not None and known.sent != sent:
            raise ServiceError(
                409,
                "version_exists",
                f"run {run_id!r} has version {version} with another profile or configuration; "
                "snapshots never change, so use a new run_id or a higher version",
            )
        if run is None and len(self._runs) >= MOST_RUNS:
            self._make_room()
        earlier = {number: kept for number, kept in snapshots.items() if number < version}
        if known is None:
            newest = earlier[max(earlier)].interface if earlier else INITIAL
            known = _Snapshot(sent, evolve(shown or newest, profile, config))
        kept = sorted(earlier)[-_MOST_VERSIONS:]
        self._runs[run_id] = _Run(
            {**{number: earlier[number] for number in kept}, version: known}, self._clock()
        )
        self._forgotten.pop(run_id, None)
        return known.interface

    def _make_room(self) -> None:
        """Forget the run that has been idle for longest.

        Raises:
            ServiceError: 429, all of them are active.
        """
        busy, oldest = self._busy(), self._clock() - RECENT_S
        idle = [name for name, run in self._runs.items() if run.used <= oldest and name not in busy]
        if not idle:
            raise ServiceError(
                429,
                "too_many_runs",
                f"{len(self._runs)} runs are active, the most that this service knows at once; "
                "try again later, or use another service",
            )
        name = min(idle, key=lambda run_id: self._runs[run_id].used)
        del self._runs[name]
        self._forgotten[name] = None
        if len(self._forgotten) > _MOST_FORGOTTEN:
            self._forgotten.popitem(last=False)


def _digest(profile: FailureProfile, config: InterfaceConfig, shown: Interface | None) -> str:
    parts = [profile.to_json(), asdict(config), None if shown is None else shown.to_json()]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def read_update(
    update: ProfileUpdate,
) -> tuple[FailureProfile, InterfaceConfig, Interface | None]:
    """The profile, the configuration and the shown interface in a profile's request.

    Raises:
        ServiceError: 422, naming the field that is unknown or wrong.
    """
    with _invalid("profile"):
        profile = FailureProfile.from_json(dict(update.profile))
    config = _interface_config(update.config)
    with _invalid("interface"):
        shown = None if update.interface is None else Interface.from_json(dict(update.interface))
    return profile, config, shown


def _interface_config(values: Mapping[str, Any]) -> InterfaceConfig:
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


@contextmanager
def _invalid(field: str) -> Iterator[None]:
    """Turn a ValueError into a refusal of the request."""
    try:
        yield
    except ValueError as error:
        raise ServiceError(422, "invalid_request", f"{field}: {error}") from error
