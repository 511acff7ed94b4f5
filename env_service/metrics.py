"""What the service counts, in Prometheus form.

In: events of routes, live episodes and worker processes. Out: the text of /metrics. Each service
has one object.
"""

from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Metrics:
    """The service's counters; every name begins with env_service_."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        named: dict[str, Any] = {"namespace": "env_service", "registry": self._registry}

        def count(name: str, what: str, labels: tuple[str, ...] = ()) -> Counter:
            return Counter(name, what, labels, **named)

        self.requests = count("requests", "Requests answered.", ("route", "status"))
        self.request_seconds = Histogram(
            "request_seconds",
            "From the request's head to the answer's end.",
            ("route",),
            buckets=_SECONDS,
            **named,
        )
        self.episodes_live = Gauge("episodes_live", "Episodes created and not released.", **named)
        self.episodes_created = count("episodes_created", "Episodes created.")
        self.episodes_expired = count("episodes_expired", "Episodes dropped by the idle time-out.")
        self.episodes_refused = count("episodes_refused", "Creates refused: too many episodes.")
        self.episodes_rebuilt = count("episodes_rebuilt", "Episodes rebuilt by another worker.")
        self.calls_stopped = count("calls_stopped", "Tool calls stopped by a limit.")
        self.environment_errors = count("environment_errors", "Replies 500: environment failed.")
        self.workers_ended = count("workers_ended", "Worker processes that ended unexpectedly.")
        self.log_lines_dropped = count("log_lines_dropped", "Lines of the log not read in time.")

    def text(self) -> bytes:
        """All metrics, in the text form of Prometheus."""
        return generate_latest(self._registry)
