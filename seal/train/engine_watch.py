"""Notices a rollout engine that has died, so that the run ends at once and says why.

In: the addresses of verl's vLLM servers. Out: one call with a sentence. Without the watch, a run
that waits for a dead engine would only end after launcher.stall_timeout_s, which is an hour.
"""

import contextlib
import http.client
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

EVERY_S = 5.0
"""Seconds between two checks. An engine is dead if two checks in a row find it so."""
PATIENCE_S = 30.0
"""Seconds to wait for an answer. A slow server is not dead; launcher.stall_timeout_s is for it."""


class EngineWatch:
    """Asks each server for its health, in its own thread, until one is dead or `stop` is called.

    `addresses` are host:port of each replica's server. `on_death` is called with a sentence: which
    engine is dead, and what shows it.
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
        """Begin to check."""
        self._thread.start()

    def stop(self) -> None:
        """Stop checking: the engines are about to end."""
        self._over.set()

    @contextlib.contextmanager
    def until_the_end(self) -> Iterator[None]:
        """Around the rest of the run: stop with it; if it fails, report the dead engines first."""
        try:
            yield
        except Exception:
            # A dead engine is the reason; lost rollouts, for example, only follow from it.
            for sentence in self.deaths().values():
                self._on_death(sentence)
            raise
        finally:
            self.stop()

    def deaths(self) -> dict[str, str]:
        """A sentence for each engine that is dead now, by its address."""
        # All at once: a server that is only slow takes PATIENCE_S.
        with ThreadPoolExecutor(len(self._addresses)) as pool:
            signs = list(pool.map(_death, self._addresses))
        return {
            address: f"rollout engine {number} of {len(signs)} ({address}) has died: {sign}"
            for number, (address, sign) in enumerate(zip(self._addresses, signs, strict=True), 1)
            if sign
        }

    def _watch(self) -> None:
        before: dict[str, str] = {}
        while not self._over.wait(self._every_s):
            dead = self.deaths()
            twice = [sentence for address, sentence in dead.items() if address in before]
            if twice and not self._over.is_set():
                self._on_death(twice[0])
                return
            before = dead


# An engine is never behind a proxy, so proxy variables of the environment are ignored.
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def _death(address: str) -> str:
    """What shows that a server's engine is dead; empty if nothing does."""
    try:
        with _DIRECT.open(f"http://{address}/health", timeout=PATIENCE_S):
            return ""
    except urllib.error.HTTPError as answer:
        # vLLM answers 503 once its engine process has ended.
        return "its engine process has ended" if answer.code == 503 else ""
    except urllib.error.URLError as error:
        refused = isinstance(error.reason, ConnectionRefusedError)
        return f"its server cannot be reached ({error.reason})" if refused else ""
    except (OSError, http.client.HTTPException):
        return ""
