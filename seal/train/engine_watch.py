"""Notices a rollout engine that has died, so that the run ends at once and says why.

In: the addresses of verl's vLLM servers. Out: a call with a sentence, once. Without it a run that
waits for a dead engine would end after launcher.stall_timeout_s, which is an hour.
"""

import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence

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

    def deaths(self) -> dict[str, str]:
        """A sentence on each engine that is dead at this moment, by its address."""
        signs = {one: _death(one) for one in self._addresses}
        return {
            one: f"rollout engine {number} of {len(signs)} ({one}) has died: {sign}"
            for number, (one, sign) in enumerate(signs.items(), 1)
            if sign
        }

    def _watch(self) -> None:
        before: dict[str, str] = {}
        while not self._over.wait(self._every_s):
            dead = self.deaths()
            twice = [said for one, said in dead.items() if one in before]
            if twice and not self._over.is_set():
                self._on_death(twice[0])
                return
            before = dead


# An engine is never behind a proxy, whatever the environment says.
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def _death(address: str) -> str:
    """How a server shows that its engine is dead; empty where it does not."""
    try:
        with _DIRECT.open(f"http://{address}/health", timeout=PATIENCE_S):
            return ""
    except urllib.error.HTTPError as answer:
        # vLLM's answer once its engine process has ended is 503.
        return "its engine process has ended" if answer.code == 503 else ""
    except urllib.error.URLError as error:
        refused = isinstance(error.reason, ConnectionRefusedError)
        return f"its server cannot be reached ({error.reason})" if refused else ""
    except OSError:
        return ""
