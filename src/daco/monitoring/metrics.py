"""Numbers of a running plant for Prometheus: a gauge per machine, queues and requests."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

from daco.monitoring.engine import Plant
from daco.monitoring.status import MachineStatus

MOST_MACHINES = 2000
"""Machines with gauges of their own."""

OTHER = "other"
_GAUGES: dict[str, tuple[str, Callable[[MachineStatus], float | None]]] = {
    "oddness": ("Oddness of the last recording.", lambda each: each.oddness),
    "limit": ("Limit of the oddness.", lambda each: each.limit),
    "last_recording_age_seconds": ("Seconds since the last recording.", lambda each: each.age),
    "open_alarms": ("Alarms whose cause has not cleared.", lambda each: each.open_alarms),
    "out_of_service": ("1 while the machine is out of service.", lambda each: each.out_of_service),
}
_METHODS = ("GET", "HEAD", "POST", "DELETE")
_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 10.0, 30.0)


class PlantCollector:
    """Collects the status of every machine and of the outbox when somebody asks."""

    def __init__(self, plant: Plant) -> None:
        self._plant = plant

    def describe(self) -> list[Metric]:
        """Nothing: it is registered before the database can be read."""
        return []

    def collect(self) -> Iterator[Metric]:
        """The gauges of all machines, and the messages that wait or were refused."""
        machines = self._plant.status()[:MOST_MACHINES]
        words, labels = "1 for the state of the machine.", ["machine", "state"]
        state = GaugeMetricFamily("daco_machine_state", words, labels=labels)
        for each in machines:
            state.add_metric([each.id, each.state], 1)
        yield state
        for name, (words, value) in _GAUGES.items():
            gauge = GaugeMetricFamily(f"daco_machine_{name}", words, labels=["machine"])
            for each in machines:
                if (number := value(each)) is not None:
                    gauge.add_metric([each.id], number)
            yield gauge
        for name, words in (("waiting", "that wait"), ("refused", "that were refused")):
            words = f"Messages {words}, by receiver."
            messages = GaugeMetricFamily(f"daco_messages_{name}", words, labels=["receiver"])
            counts = self._plant.store.outbox.pending(refused=name == "refused")
            for receiver, number in counts.items():
                messages.add_metric([receiver], number)
            yield messages


class Metrics:
    """The collectors of a service, in a registry of its own; label values are bounded."""

    def __init__(self, plant: Plant) -> None:
        self.registry = registry = CollectorRegistry()
        labels = ["method", "route", "status"]
        self.requests = Counter(
            "daco_http_requests", "Requests by route and status.", labels, registry=registry
        )
        self.latency = Histogram(
            "daco_http_request_seconds",
            "Time from the head of a request to the end of its answer.",
            ["route"],
            buckets=_BUCKETS,
            registry=registry,
        )
        self.refused = Counter(
            "daco_uploads_refused", "Uploads not judged.", ["reason"], registry=registry
        )
        judge = plant.judge
        self.add_gauge("daco_queue", "Recordings that wait for a worker.", lambda: judge.queued)
        self.add_gauge("daco_workers_busy", "Workers that do a job.", lambda: judge.busy)
        self.add_gauge("daco_worker_restarts", "Workers replaced.", lambda: judge.restarts)
        if (kept := plant.recordings) is not None:
            self.add_gauge("daco_kept_audio_bytes", "Bytes of kept recordings.", lambda: kept.bytes)
        registry.register(PlantCollector(plant))
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)

    def add_gauge(self, name: str, description: str, value: Callable[[], float]) -> None:
        """Add a gauge whose value is read at each scrape."""
        Gauge(name, description, registry=self.registry).set_function(value)

    def count_request(self, scope: Mapping[str, Any], status: int | None, seconds: float) -> None:
        """Count an answered request, and its time."""
        route = getattr(scope.get("route"), "path", OTHER)
        method = scope["method"] if scope["method"] in _METHODS else OTHER
        self.requests.labels(method, route, str(status or OTHER)).inc()
        self.latency.labels(route).observe(seconds)

    def text(self) -> bytes:
        """All metrics in Prometheus' format."""
        return generate_latest(self.registry)
