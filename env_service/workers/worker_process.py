"""A worker process: python -m env_service.workers.worker_process SOCKET PROGRESS.

SOCKET and PROGRESS are file descriptors. In: a `Setup` frame, then requests of the service, one at
a time. Out: one answer for each. `worker_handle` starts the process, and it ends when the socket
closes. Tools run here, and here is the named border where an exception of an environment becomes an
answer.

The kernel enforces the limits, because a tool may be deep in C code. If a call takes too long, an
alarm that nobody catches ends the process. Memory beyond the limit is refused. The service reads
from a shared word which call it was. A spoilt episode is rebuilt from its journal.
"""

import ctypes
import gc
import json
import logging
import mmap
import resource
import signal
import socket
import sys
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from io import BufferedRWPair
from typing import Any

from env_service.environments import load
from env_service.environments.base import (
    CallStopped,
    Environment,
    Episode,
    Refused,
    SelfCheckFailed,
)
from env_service.log import log_to_stderr
from env_service.workers.frames import (
    IDLE,
    LENGTHS,
    PROGRESS,
    Answer,
    Entry,
    Setup,
    Spec,
    message_limit_s,
    pack,
    replay_limit_s,
)
from seal.wire import CreateReply, from_json, json_bytes

logger = logging.getLogger(__name__)

_PR_SET_PDEATHSIG = 1


class Alarm:
    """The time limit: when it is over, the kernel ends the process.

    Args:
        call_time_s: Seconds that one call may take.
        progress: Shared word for the index of the running call.
    """

    def __init__(self, call_time_s: float, progress: mmap.mmap) -> None:
        self._call_time_s = call_time_s
        self._progress = progress
        self._deadline = 0.0

    def replay(self, seconds: float) -> None:
        """Calls that took so many seconds at first are about to run again."""
        signal.setitimer(signal.ITIMER_REAL, replay_limit_s(self._call_time_s, seconds))

    def message(self) -> None:
        """A message is about to be decoded and its calls to run, for the first time."""
        limit = message_limit_s(self._call_time_s)
        self._deadline = time.monotonic() + limit
        signal.setitimer(signal.ITIMER_REAL, limit)

    def call(self, index: int) -> None:
        """A call is about to run."""
        left = min(self._call_time_s, self._deadline - time.monotonic())
        self._mark(index)
        signal.setitimer(signal.ITIMER_REAL, max(left, 1e-6))

    def off(self) -> None:
        """Nothing runs."""
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        self._mark(IDLE)

    def _mark(self, index: int) -> None:
        PROGRESS.pack_into(self._progress, 0, index)


@dataclass
class Held:
    """An episode in this worker's memory."""

    episode: Episode
    steps: int
    """Steps that it has taken."""
    seconds: float
    """Seconds that they took when they were taken first."""


class ReplayStopped(Exception):
    """Calls that ran before exceeded a limit when they ran again."""


class Missing(Exception):
    """This worker does not hold the episode of the request in the state that the service knows."""


class WorkerProcess:
    """Everything a worker process knows.

    Args:
        environments: Environments by name; each has passed its self check.
        alarm: The time limit.
        resident_episodes: See `Setup`.
    """

    def __init__(
        self, environments: Mapping[str, Environment], alarm: Alarm, resident_episodes: int
    ) -> None:
        self._environments = environments
        self._alarm = alarm
        self._resident_episodes = resident_episodes
        self._held: OrderedDict[int, Held] = OrderedDict()
        self._relieved: object = None
        self._do: Mapping[str, Callable[[Mapping[str, Any]], bytes]] = {
            "open": self._open,
            "step": self._step,
            "evaluate": self._evaluate,
            "task_ids": self._task_ids,
        }

    def answer(self, request: Mapping[str, Any]) -> Answer:
        """Answer one request, whatever happens."""
        for key in request["forget"]:
            self._held.pop(key, None)
        started = time.monotonic()
        try:
            body = self._do[request["do"]](request)
            return Answer({"status": "ok", "seconds": time.monotonic() - started}, body)
        except Refused as mistake:
            refusal = {"http": mistake.status, "code": mistake.code, "message": str(mistake)}
            return Answer({"status": "refused", **refusal})
        except Missing:
            return Answer({"status": "missing"})
        except CallStopped as stopped:
            self._held.pop(request["key"], None)
            if stopped.of_memory and self._relieve(request):
                return Answer({"status": "missing"})
            return Answer({"status": "stopped", "stop": stopped.stop})
        except Exception as error:  # the named border: an environment's fault is no observation
            self._held.pop(request.get("key", -1), None)
            if isinstance(error, MemoryError | ReplayStopped) and self._relieve(request):
                return Answer({"status": "missing"})
            logger.exception("environment failed", extra={"do": request["do"]})
            return Answer({"status": "failed", "error": type(error).__name__})
        finally:
            self._alarm.off()

    def _relieve(self, request: Mapping[str, Any]) -> bool:
        """Free memory for a request that ran out of it, once: other episodes may have used it."""
        this = (request.get("key"), request.get("taken"), request["do"])
        if "key" not in request or self._relieved == this:
            return False
        self._relieved = this
        self._held.clear()
        gc.collect()
        return True

    def _task_ids(self, request: Mapping[str, Any]) -> bytes:
        return json_bytes(self._environments[request["env_type"]].task_ids(request["split"]))

    def _open(self, request: Mapping[str, Any]) -> bytes:
        episode, opened = self._new(from_json(Spec, request["spec"]))
        self._keep(request["key"], Held(episode, 0, 0.0))
        return json_bytes(opened)

    def _step(self, request: Mapping[str, Any]) -> bytes:
        held = self._find(request)
        entry = from_json(Entry, request["entry"])
        started = time.monotonic()
        self._alarm.message()
        reply = held.episode.step(json.loads(entry.message), entry.stop, self._alarm.call)
        self._alarm.off()
        held.steps += 1
        held.seconds += time.monotonic() - started
        return json_bytes(reply)

    def _evaluate(self, request: Mapping[str, Any]) -> bytes:
        held = self._find(request)
        self._alarm.replay(held.seconds)
        try:
            reply = held.episode.evaluate(request["exit_status"])
        except CallStopped as error:
            raise ReplayStopped from error
        return json_bytes(reply.accuracy if request["sparse"] else reply)

    def _new(self, spec: Spec) -> tuple[Episode, CreateReply]:
        episode = self._environments[spec.env_type].create(spec.task_id, spec.options)
        return episode, episode.open(spec.instance_id)

    def _find(self, request: Mapping[str, Any]) -> Held:
        """The episode with all steps that the service knows of, rebuilt if necessary."""
        key = request["key"]
        held = self._held.get(key)
        if held is None or held.steps != request["taken"]:
            if "journal" not in request:
                raise Missing
            journal = [from_json(Entry, values) for values in request["journal"]]
            held = self._rebuilt(from_json(Spec, request["spec"]), journal)
        self._keep(key, held)
        return held

    def _rebuilt(self, spec: Spec, journal: Sequence[Entry]) -> Held:
        seconds = sum(entry.seconds for entry in journal)
        self._alarm.replay(seconds)
        episode, _ = self._new(spec)
        try:
            for entry in journal:
                episode.step(json.loads(entry.message), entry.stop)
        except CallStopped as error:
            raise ReplayStopped from error
        return Held(episode, len(journal), seconds)

    def _keep(self, key: int, held: Held) -> None:
        self._held[key] = held
        self._held.move_to_end(key)
        if len(self._held) > self._resident_episodes:
            self._held.popitem(last=False)


def main() -> None:
    """Serve until the service closes the socket."""
    # The service handles Ctrl-C and a stop of the whole process group: it drains first.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    # Otherwise a call deep in C outlives the service.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    connection = socket.socket(fileno=int(sys.argv[1]))
    progress = mmap.mmap(int(sys.argv[2]), PROGRESS.size)
    with connection, connection.makefile("rwb") as stream:
        first = _read(stream)
        if first is None:
            return
        setup = from_json(Setup, first)
        log_to_stderr(setup.log_level)
        try:
            environments = {
                name: load(name, at, setup.tasks) for name, at in setup.environments.items()
            }
            for environment in environments.values():
                environment.self_check()
        except SelfCheckFailed as error:
            _write(stream, Answer({"status": "broken", "message": str(error)}))
            return
        # What exists now stays, so it is left out of every later garbage collection.
        gc.collect()
        gc.freeze()
        _limit_memory(setup.memory_bytes)
        _write(stream, Answer({"status": "ready"}))
        alarm = Alarm(setup.call_time_s, progress)
        worker = WorkerProcess(environments, alarm, setup.resident_episodes)
        while (request := _read(stream)) is not None:
            _write(stream, worker.answer(request))


def _limit_memory(beyond_now: int) -> None:
    with open("/proc/self/statm", encoding="ascii") as statm:
        now = int(statm.read().split()[0]) * resource.getpagesize()
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = now + beyond_now
    if hard != resource.RLIM_INFINITY:
        limit = min(limit, hard)
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))


def _read(stream: BufferedRWPair) -> dict[str, Any] | None:
    """The next request, or None if the service has closed the socket."""
    lengths = stream.read(LENGTHS.size)
    if len(lengths) < LENGTHS.size:
        return None
    header_length, _ = LENGTHS.unpack(lengths)
    text = stream.read(header_length)
    if len(text) < header_length:
        return None
    request: dict[str, Any] = json.loads(text)
    return request


def _write(stream: BufferedRWPair, answer: Answer) -> None:
    stream.write(pack(answer.header, answer.body))
    stream.flush()


if __name__ == "__main__":
    main()
