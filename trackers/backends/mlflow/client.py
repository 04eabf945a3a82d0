"""Metrics, params and tags gathered into as few ``log_batch`` requests as MLflow's limits allow."""

from __future__ import annotations

import json
import logging
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from trackers.errors import Rejected
from trackers.support.failpoints import failpoint

# mlflow/utils/validation.py: MAX_METRICS_PER_BATCH, MAX_PARAMS_TAGS_PER_BATCH, MAX_BATCH_LOG_REQUEST_SIZE.
METRICS = 1000
PARAMS = 100
TAGS = 100
REQUEST_BYTES = 900_000  # of 1,000,000, for what surrounds the values

STEPS = range(-(2**63), 2**63)
"""Range of steps that MLflow's database columns can store."""

# What SQLite, PostgreSQL and MySQL say of the primary key of mlflow/store/tracking/dbmodels/models.py: SqlMetric.
_DUPLICATE = re.compile(
    r"UNIQUE constraint failed: metrics\.|metric_pk"
    r"|Duplicate entry (?:(?!Duplicate entry ).)* for key '(metrics\.)?PRIMARY'"
)

_METRIC_BYTES = 120  # a metric of a request without its name
_PAIR_BYTES = 40

_logger = logging.getLogger("trackers.mlflow")


class Requests:
    """Requests that wait to be sent to one run. Sending a request twice has no further effect.

    Args:
        client: an ``MlflowClient``.
        mapped: a metric's name as MLflow takes it.
        params: what the run has already.

    Attributes:
        newest: step and time in milliseconds of the newest point that was taken, by metric.
    """

    def __init__(self, client: Any, run_id: str, mapped: Callable[[str], str], params: Mapping[str, str]) -> None:
        from mlflow.entities import Metric, Param, RunTag

        self._client = client
        self._run_id = run_id
        self._mapped = mapped
        self._entities = Metric, Param, RunTag
        self._names: dict[str, tuple[str, int]] = {}
        self._metrics: list[Any] = []
        self._metric_bytes = 0
        self._has = dict(params)
        self.newest: dict[str, list[int]] = {}
        self._params: dict[str, str] = {}
        self._tags: dict[str, str] = {}

    def metric(self, name: str, value: float, at: float, step: int) -> None:
        """Add one value; a full request is sent at once."""
        known = self._names.get(name)
        if known is None:
            key = self._mapped(name)
            known = self._names[name] = key, len(json.dumps(key)) + _METRIC_BYTES
        if step not in STEPS:
            raise Rejected(f"step {step} of {name!r} doesn't fit 64 bits")
        if len(self._metrics) == METRICS or self._metric_bytes + known[1] > REQUEST_BYTES:
            self._send_metrics()
        self._metrics.append(self._entities[0](known[0], _double(name, value), milliseconds(at), step))
        self._metric_bytes += known[1]

    def param(self, key: str, text: str) -> bool:
        """Add a param; False if the run has it with another value, which MLflow lets nobody change."""
        text = _clean(text)
        known = self._has.get(key, self._params.get(key))
        if known is None:
            self._params[key] = text
        return known in (None, text)

    def tag(self, key: str, text: str) -> None:
        """Add a tag; the last value counts."""
        self._tags[key] = _clean(text)

    def send(self) -> None:
        """Send everything that waits. What an error interrupts waits on no more: the caller begins again."""
        try:
            for batch in _chunks(self._params, PARAMS):
                params = [self._entities[1](key, text) for key, text in batch]
                self._client.log_batch(self._run_id, params=params)
                failpoint("mlflow.params.after")
                self._has.update(batch)
            for batch in _chunks(self._tags, TAGS):
                tags = [self._entities[2](key, text) for key, text in batch]
                self._client.log_batch(self._run_id, tags=tags)
                failpoint("mlflow.tags.after")
            self._send_metrics()
        finally:
            self.clear()

    def clear(self) -> None:
        """Forget what waits."""
        self._metrics, self._metric_bytes = [], 0
        self._params, self._tags = {}, {}

    def _send_metrics(self) -> None:
        metrics, self._metrics, self._metric_bytes = self._metrics, [], 0
        if metrics:
            failpoint("mlflow.metrics.before")
            self._send_all(metrics)
            failpoint("mlflow.metrics.after")
            for metric in metrics:
                point = [metric.step, metric.timestamp]
                self.newest[metric.key] = max(point, self.newest.get(metric.key, point))

    def _send_all(self, metrics: list[Any]) -> None:
        try:
            self._client.log_batch(self._run_id, metrics=metrics)
        except Exception as error:
            if not _there_already(error):
                raise
            # A server before 3.16 doesn't know a NaN again that it has, and refuses the whole request.
            if len(metrics) > 1:
                middle = len(metrics) // 2
                self._send_all(metrics[:middle])
                self._send_all(metrics[middle:])


def milliseconds(at: float) -> int:
    """Unix seconds as MLflow counts them."""
    return round(at * 1000)


def _double(name: str, value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        _logger.warning("an integer of %r is too large for MLflow's doubles; infinity stands for it", name)
        return math.inf if value > 0 else -math.inf


def _there_already(error: Exception) -> bool:
    """Whether a request was refused because a row with the same key, time, step and value is there."""
    return type(error).__name__ in ("MlflowException", "RestException") and _DUPLICATE.search(str(error)) is not None


def _clean(text: str) -> str:
    """Text without what PostgreSQL or UTF-8 can't hold."""
    return text.replace("\0", "\N{SYMBOL FOR NULL}").encode("utf-8", "replace").decode()


def _chunks(pairs: dict[str, str], most: int) -> list[list[tuple[str, str]]]:
    """Pairs in lists that fit a request by number and by size."""
    chunks: list[list[tuple[str, str]]] = []
    room = 0
    for key, text in pairs.items():
        size = len(json.dumps(key)) + len(json.dumps(text)) + _PAIR_BYTES
        if not chunks or len(chunks[-1]) == most or size > room:
            chunks.append([])
            room = REQUEST_BYTES
        chunks[-1].append((key, text))
        room -= size
    return chunks
