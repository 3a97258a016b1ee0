"""Counters for Prometheus."""

from collections import Counter as Tally
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 10000)
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Metrics:
    """What one server counts; it has its own registry, so that several can run in one process."""

    def __init__(self, depth: Callable[[], int], generation: Callable[[], int], tasks: Callable[[], int]) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "metareplay_requests", "Requests by path and status", ["path", "status"], registry=self.registry
        )
        self._seconds = Histogram(
            "metareplay_predict_seconds", "Time of a prediction request", buckets=SECONDS, registry=self.registry
        )
        self._batch_rows = Histogram(
            "metareplay_batch_rows", "Inputs that were predicted at once", buckets=ROWS, registry=self.registry
        )
        self._batch_requests = Histogram(
            "metareplay_batch_requests", "Requests that were predicted at once", buckets=ROWS, registry=self.registry
        )
        self._predictions = Counter(
            "metareplay_predictions", "Answered inputs by task", ["task"], registry=self.registry
        )
        self._unknown = Counter("metareplay_unknown", "Answered inputs that belong to no task", registry=self.registry)
        self.log_failures = Counter(
            "metareplay_log_failures", "Requests whose predictions could not be logged", registry=self.registry
        )
        for name, text, value in (
            ("queue", "Requests that wait for the model", depth),
            ("generation", "Number of the model that answers, counted from the start of the server", generation),
            ("tasks", "Tasks of the model that answers", tasks),
        ):
            Gauge(f"metareplay_{name}", text, registry=self.registry).set_function(value)
        ProcessCollector(registry=self.registry)

    def request(self, path: str, status: int) -> None:
        """Count a request; ``path`` is one of the server's own, so that clients cannot invent series."""
        self._requests.labels(path, str(status)).inc()

    def batch(self, requests: int, rows: int) -> None:
        """Count what is predicted at once."""
        self._batch_requests.observe(requests)
        self._batch_rows.observe(rows)

    def answered(self, rows: Sequence[Mapping[str, Any]], seconds: float) -> None:
        """Count answers."""
        self._seconds.observe(seconds)
        for task, count in Tally(row["task"] for row in rows).items():
            self._predictions.labels(task).inc(count)
        self._unknown.inc(sum(row["known"] is False for row in rows))

    def text(self) -> bytes:
        """Everything, as Prometheus reads it."""
        return generate_latest(self.registry)
