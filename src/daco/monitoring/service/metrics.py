"""Counters and gauges for Prometheus; the number of label values is bounded."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector
from starlette.types import Scope

MOST_MACHINES = 200
OTHER = "other"
EVENTS_ROUTE = "/v1/events"

_METHODS = ("GET", "HEAD", "POST")
_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 10.0, 30.0)


class Metrics:
    """The service's own collectors, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()

        def counter(name: str, description: str, *labels: str) -> Counter:
            return Counter(name, description, labels, registry=registry)

        self.requests = counter(
            "daco_http_requests", "Requests by route and status.", "method", "route", "status"
        )
        self.latency = Histogram(
            "daco_http_request_seconds",
            "Time from the head of a request to the end of its answer.",
            ["route"],
            buckets=_BUCKETS,
            registry=registry,
        )
        self.clips = counter("daco_clips_scored", "Clips scored.", "machine")
        self.anomalous = counter("daco_clips_anomalous", "Clips above their threshold.", "machine")
        self.refused = counter("daco_uploads_refused", "Uploads not scored.", "reason")
        self.worker_restarts = counter(
            "daco_worker_restarts", "Workers that ended and were replaced."
        )
        self.events_dropped = counter(
            "daco_event_clients_dropped", "Event streams closed because the client was too slow."
        )
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        self._machines: set[str] = set()

    def add_gauge(self, name: str, description: str, value: Callable[[], float]) -> None:
        """Add a gauge whose value is read at each scrape."""
        Gauge(name, description, registry=self.registry).set_function(value)

    @contextmanager
    def request(self, scope: Scope, answer: Any) -> Iterator[None]:
        """Count and time a request; `answer` has its status at the end."""
        started = time.perf_counter()
        try:
            yield
        finally:
            route = getattr(scope.get("route"), "path", OTHER)
            method = scope["method"] if scope["method"] in _METHODS else OTHER
            self.requests.labels(method, route, str(answer.status or OTHER)).inc()
            if route != EVENTS_ROUTE:  # a stream lasts as long as its client
                self.latency.labels(route).observe(time.perf_counter() - started)

    def count_clip(self, machine: str, anomalous: bool) -> None:
        """Count a clip."""
        if machine not in self._machines and len(self._machines) >= MOST_MACHINES:
            machine = OTHER
        self._machines.add(machine)
        self.clips.labels(machine).inc()
        self.anomalous.labels(machine).inc(anomalous)

    def text(self) -> bytes:
        """All metrics in Prometheus' format."""
        return generate_latest(self.registry)
