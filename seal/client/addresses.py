"""Which service an episode lives at: the choice among several addresses, without any network.

In: addresses, which episodes begin and end, and which addresses answer. Out: the address of a new
or a running episode. Nothing here sends or sleeps, and tests replace the clock.
"""

import secrets
import time
from collections import Counter
from collections.abc import Callable, Container, Iterable
from urllib.parse import urlsplit

COOL_DOWN_S = 30.0
"""Seconds in which an address that did not answer gets no new episodes."""


def url_list(env_url: str | Iterable[str]) -> tuple[str, ...]:
    """The addresses of a recipe's `env_service.env_url` (one or a list), without duplicates.

    >>> url_list("http://a:1")
    ('http://a:1',)
    >>> url_list(["http://a:1", "http://b:2", "http://a:1"])
    ('http://a:1', 'http://b:2')
    """
    return tuple(dict.fromkeys([env_url] if isinstance(env_url, str) else env_url))


def host_and_port(url: str) -> tuple[str, int]:
    """Host and port of an address.

    Raises:
        ValueError: The address is malformed.

    >>> host_and_port("http://127.0.0.1:8082")
    ('127.0.0.1', 8082)
    """
    try:
        address = urlsplit(url)
        if address.scheme == "http" and address.hostname and address.port:
            return address.hostname, address.port
    except ValueError:
        pass  # The port is malformed, and so is the address.
    raise ValueError("expected an address like http://127.0.0.1:8082")


class Addresses:
    """Addresses of equal services, and one client's live episodes at each of them.

    Args:
        urls: The addresses, at least one.
        first: Index of the address that wins the first tie; None draws it, so that the many
            clients of a run do not all start with the same one.
        clock: Returns seconds from any fixed point.
    """

    def __init__(
        self,
        urls: Iterable[str],
        *,
        first: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.urls = tuple(urls)
        if not self.urls:
            raise ValueError("no address of an environment service (env_service.env_url)")
        # Not the random module: workers with equal seeds would all start with the same address.
        self._first = secrets.randbelow(len(self.urls)) if first is None else first
        self._clock = clock
        self._homes: dict[str, str] = {}
        self._left_out_until: dict[str, float] = {}

    def place(self, instance_id: str, refused: Container[str] = ()) -> str | None:
        """Choose the address of a new episode: the one with the fewest live ones.

        An address whose cool-down is over gets one episode first, and more only if that one
        succeeds. Addresses in their cool-down are chosen only if there are no others.

        Args:
            instance_id: The episode; it counts as live from now on. An episode that already has an
                address moves.
            refused: Addresses that have refused this episode.

        Returns:
            The address, or None if none is left; then the episode has no address.
        """
        self._homes.pop(instance_id, None)
        now = self._clock()
        order = self.urls[self._first :] + self.urls[: self._first]
        ready = [url for url in order if self._left_out_until.get(url, now) <= now]
        left = [url for url in ready or order if url not in refused]
        if not left:
            return None
        live = Counter(self._homes.values())
        url = min(left, key=lambda candidate: live[candidate])
        self._first = (self._first + 1) % len(self.urls)
        self._homes[instance_id] = url
        if url in self._left_out_until:
            self._left_out_until[url] = now + COOL_DOWN_S
        return url

    def home(self, instance_id: str) -> str | None:
        """The address of an episode, or None if it has none."""
        return self._homes.get(instance_id)

    def forget(self, instance_id: str) -> None:
        """The episode is over or never began."""
        self._homes.pop(instance_id, None)

    def leave_out(self, url: str) -> bool:
        """Start the cool-down of an address that did not answer; True if it was not in one."""
        new = url not in self._left_out_until
        self._left_out_until[url] = self._clock() + COOL_DOWN_S
        return new

    def take_back(self, url: str) -> bool:
        """End the cool-down of an address that has answered; True if it was in one."""
        return self._left_out_until.pop(url, None) is not None
