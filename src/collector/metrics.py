"""Prometheus metrics of the collector."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

_SECONDS = (0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class Metrics:
    """The metrics of a collector."""

    def __init__(self, ready: Callable[[], bool], queued: Callable[[], int]) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._posts = Counter(
            "collector_posts", "Posts, by the status of the answer.", ["status"], registry=self.registry
        )
        self._events = Counter(
            "collector_events",
            "Events, by whether Kafka acknowledged them.",
            ["outcome"],
            registry=self.registry,
        )
        self.acknowledged = self._events.labels("acknowledged")
        self.failed = self._events.labels("failed")
        self._seconds = Histogram(
            "collector_accepted_post_seconds",
            "From the head of a post to its answer, for accepted posts.",
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._by_status: dict[int, Counter] = {}
        Gauge("collector_ready", "1 if Kafka acknowledges events.", registry=self.registry).set_function(
            lambda: float(ready())
        )
        Gauge("collector_queue_bytes", "Bytes of the posts not answered yet.", registry=self.registry).set_function(
            queued
        )

    def answered(self, status: int, seconds: float) -> None:
        """Count a post."""
        found = self._by_status.get(status)
        if found is None:
            found = self._by_status[status] = self._posts.labels(str(status))
        found.inc()
        if status < 300:
            self._seconds.observe(seconds)
