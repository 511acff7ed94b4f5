"""What the service counts, in Prometheus form.

In: events of routes, live episodes and worker processes. Out: the text of /metrics. One object a
service; it knows nobody.
"""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Metrics:
    """The service's counters; every name begins with env_service_."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self.requests = Counter(
            "env_service_requests",
            "Requests answered.",
            ("route", "status"),
            registry=self._registry,
        )
        self.request_seconds = Histogram(
            "env_service_request_seconds",
            "From the request's head to the answer's end.",
            ("route",),
            buckets=_SECONDS,
            registry=self._registry,
        )
        self.episodes_live = Gauge(
            "env_service_episodes_live",
            "Episodes created and not released.",
            registry=self._registry,
        )
        self.episodes_created = self._counter("episodes_created", "Episodes created.")
        self.episodes_expired = self._counter(
            "episodes_expired", "Episodes dropped after the idle time-out."
        )
        self.episodes_refused = self._counter(
            "episodes_refused", "Creates refused because too many episodes were live."
        )
        self.episodes_rebuilt = self._counter(
            "episodes_rebuilt", "Episodes rebuilt by another worker from their journal."
        )
        self.calls_stopped = self._counter(
            "calls_stopped", "Tool calls stopped by a limit on time, memory or length."
        )
        self.environment_errors = self._counter(
            "environment_errors", "Requests answered 500 because the environment failed."
        )
        self.workers_ended = self._counter(
            "workers_ended", "Worker processes that ended otherwise than by being retired."
        )

        self.log_lines_dropped = self._counter(
            "log_lines_dropped", "Lines of the log that nobody read in time."
        )

    def text(self) -> bytes:
        """Everything, in the text form of Prometheus."""
        return generate_latest(self._registry)

    def _counter(self, name: str, what: str) -> Counter:
        return Counter(f"env_service_{name}", what, registry=self._registry)
