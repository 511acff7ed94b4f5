"""Notices a rollout engine that has died, which verl may wait for without end.

In: the addresses of verl's vLLM servers. Out: a call with a sentence, once. A request to a dead
engine fails by itself; a transfer of weights to one, and one that waits for its turn, do not.
"""

import threading
from collections.abc import Callable, Sequence

import httpx

EVERY_S = 5.0
"""Between two looks; two in a row have to find an engine dead."""
PATIENCE_S = 30.0
"""For an answer. A server that is slow is not dead: launcher.stall_timeout_s is for that."""


class EngineWatch:
    """Asks each server for its health, in a thread of its own, until one is dead or `stop`.

    Args:
        addresses: host:port of each replica's server.
        on_death: Given a sentence on which one it is and how that shows.
        every_s: Seconds between two looks.
    """

    def __init__(
        self, addresses: Sequence[str], on_death: Callable[[str], None], every_s: float = EVERY_S
    ) -> None:
        self._addresses = tuple(addresses)
        self._on_death = on_death
        self._every_s = every_s
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="engine watch", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """Look no more: the engines are about to end."""
        self._over.set()

    def _watch(self) -> None:
        seen: dict[str, str] = {}
        # An engine is never behind a proxy, whatever the environment says.
        with httpx.Client(timeout=PATIENCE_S, trust_env=False) as client:
            while not self._over.wait(self._every_s):
                found = {one: _death(client, one) for one in self._addresses}
                dead = [one for one, sign in found.items() if sign and one in seen]
                if dead and not self._over.is_set():
                    number = self._addresses.index(dead[0]) + 1
                    self._on_death(
                        f"rollout engine {number} of {len(self._addresses)} ({dead[0]}) has died: "
                        f"{found[dead[0]]}"
                    )
                    return
                seen = {one: sign for one, sign in found.items() if sign}


def _death(client: httpx.Client, address: str) -> str:
    """How a server shows that its engine is dead; empty where it does not."""
    try:
        answer = client.get(f"http://{address}/health")
    except httpx.ConnectError as error:
        return f"its server cannot be reached ({error})"
    except httpx.HTTPError:
        return ""
    # vLLM's answer once its engine process has ended.
    return "its engine process has ended" if answer.status_code == 503 else ""
