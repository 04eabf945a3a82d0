"""Requests to MLflow: a run found or created, and its values in as few batches as the limits allow.

A run is created once, whoever asks and however often.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
import re
import shlex
import sys
import time
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from trackers.backends.mlflow.precheck import sqlite_file, tracking_uri
from trackers.backends.mlflow.store import connect, first_moment, translated
from trackers.errors import Refused, Rejected
from trackers.support.failpoints import failpoint
from trackers.tracker import RunInfo, ValueComparison

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


PAGE = 25_000
"""Points of a metric's history in one answer: mlflow/store/tracking/__init__.py, GET_METRIC_HISTORY_MAX_RESULTS."""
MOST_PAGES = 200_000  # a server may send pages without end


class StoredPoint(NamedTuple):
    """One value of a metric. time: Unix milliseconds."""

    key: str
    step: int
    time: int
    value: float


def points(client: Any, run_id: str) -> Iterator[StoredPoint]:
    """All points that a run has, a page at a time."""
    store = client._tracking_client.store
    for key in client.get_run(run_id).data.metrics:
        token = None
        for _ in range(MOST_PAGES):
            page = store.get_metric_history(run_id=run_id, metric_key=key, max_results=PAGE, page_token=token)
            yield from (StoredPoint(key, metric.step, metric.timestamp, metric.value) for metric in page)
            token = page.token
            if not token:
                break


class PointComparison(ValueComparison):
    """Compares a run's points with those that are sent again, a word of 64 bits and a byte for each that is there.

    Of a point that has another value the right one is sent, too: MLflow deletes no point, so both are there then, and
    ``replaced`` has the other one.

    Args:
        there: the points that the run has.
    """

    def __init__(self, there: Iterable[StoredPoint]) -> None:
        import numpy as np

        words, places = array("q"), array("q")
        for point in there:
            words.append(_word(point))
            places.append(_place(point))
        order = np.argsort(np.asarray(words), kind="stable")
        self._words: Any = np.asarray(words)[order]
        self._places: Any = np.asarray(places)[order]
        self._sent: Any = np.zeros(len(words), bool)
        self._lost: dict[int, int] = {}
        self.replaced: list[StoredPoint] = []

    def __len__(self) -> int:
        return len(self._words)

    def send(self, metrics: Iterable[Any]) -> None:
        """Note points that are sent: what of them isn't there."""
        import numpy as np

        sent = [StoredPoint(metric.key, metric.step, metric.timestamp, _finite(metric.value)) for metric in metrics]
        words: Any = np.array([_word(point) for point in sent], np.int64)
        at: Any = np.searchsorted(self._words, words)
        known: Any = at < len(self._words)
        known[known] = self._words[at[known]] == words[known]
        self._sent[at[known]] = True
        self._lost.update({int(words[i]): _place(sent[i]) for i in np.flatnonzero(~known).tolist()})

    def settle(self, there: Iterable[StoredPoint]) -> None:
        """Count, once everything was sent. there: the points that the run has now."""
        unsent, lost = ~self._sent, set(self._lost.values())
        strange = {word: place for word, place in zip(self._words[unsent].tolist(), self._places[unsent].tolist(),
                                                      strict=True) if place in lost}  # fmt: skip
        places = set(strange.values())
        self.changed = sum(place in places for place in self._lost.values())
        self.missing = len(self._lost) - self.changed
        back = set()
        for point in there if self._lost else ():
            word = _word(point)
            if word in self._lost:
                back.add(word)
            elif word in strange:
                self.replaced.append(point)
        self.restored = len(back)


def _place(point: StoredPoint) -> int:
    return hash(f"{point.step} {point.time} {point.key}")


def _word(point: StoredPoint) -> int:
    value = "nan" if math.isnan(point.value) else (point.value + 0.0).hex()
    return hash(f"{value} {point.step} {point.time} {point.key}")


def _finite(value: float) -> float:
    """A value as MLflow stores it: mlflow/store/tracking/sqlalchemy_store.py, ``sanitize_metric_value``."""
    return max(-sys.float_info.max, min(value, sys.float_info.max)) if value == value else value


class Requests:
    """Requests that wait to be sent to one run. Sending a request twice has no further effect.

    Args:
        client: an ``MlflowClient``.
        mapped: a metric's name as MLflow takes it.
        params: what the run has already.

    Attributes:
        newest: step and time in milliseconds of the newest point that was taken, by metric.
        comparison: gets each point that is sent; None: nothing is compared.
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
        self.comparison: PointComparison | None = None
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

    def untag(self, key: str) -> None:
        """Forget a tag that waits."""
        self._tags.pop(key, None)

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
            if self.comparison is not None:
                self.comparison.send(metrics)
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
            if type(error).__name__ not in ("MlflowException", "RestException") or not _DUPLICATE.search(str(error)):
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


RUN_TAG = "trackers.run_id"
"""Our id of a run. A run that was created just before a kill is found by it."""

GROUP_TAG = "trackers.group_key"
"""On the parent of a group's runs: the digest of the group's name, for a search has no escape for quotes."""

PARENT_NOTE = "Holds the runs of one group together: mean and best of their results, the settings in which they differ."
"""Description shown for a group's parent run."""

_TAG_LENGTH = 8000


def find_or_create(client: Any, uri: str, info: RunInfo, native_id: str | None) -> Any:
    """The run in MLflow (``mlflow.entities.Run``).

    Args:
        native_id: its id there, as far as we know.

    Raises:
        Refused: the run or its experiment was deleted there.
    """
    from mlflow.exceptions import MlflowException

    if native_id:
        try:
            known = client.get_run(str(native_id))
            if known.data.tags.get(RUN_TAG) == info.id:  # a state may name any run, another's too
                return _alive(known)
        except MlflowException as error:
            if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                raise
    with first_moment(uri):
        experiment = _experiment(client, info)
        matches = _search(client, experiment, RUN_TAG, info.id)
        if matches:
            return _alive(matches[0])
        tags = _tags(info)
        if info.group and str(info.option("MLFLOW_NESTED", False)).lower() not in ("n", "no", "false", "0", "off"):
            tags["mlflow.parentRunId"] = _parent(client, experiment, info)
        start = milliseconds(info.created or time.time())
        failpoint("mlflow.create.before")
        created = client.create_run(experiment, start_time=start, tags=tags, run_name=info.name)
        failpoint("mlflow.create.after")
        return created


def find_run(info: RunInfo, state: Mapping[str, Any]) -> tuple[Any, Any] | None:
    """Find the run in MLflow that was delivered to. Returns a client and the run; None if there is none.

    Raises:
        DeliveryError: MLflow can't be asked.
    """
    uri, native = tracking_uri(info), state.get("native_id")
    file = sqlite_file(uri)
    if not native or (file is not None and not file.exists()):  # a client would make it
        return None
    client = connect(info)
    with translated(uri):
        from mlflow.exceptions import MlflowException

        try:
            run = client.get_run(str(native))
        except MlflowException as error:
            if error.error_code == "RESOURCE_DOES_NOT_EXIST":
                return None
            raise
    return (client, run) if run.data.tags.get(RUN_TAG) == info.id else None


def _experiment(client: Any, info: RunInfo) -> str:
    from mlflow.exceptions import MlflowException

    name = str(info.option("MLFLOW_EXPERIMENT") or os.environ.get("MLFLOW_EXPERIMENT_NAME") or info.project)[:500]
    experiment = client.get_experiment_by_name(name)
    if experiment is None:
        try:
            return str(client.create_experiment(name))
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":  # another delivery was quicker
                raise
            experiment = client.get_experiment_by_name(name)
    if experiment.lifecycle_stage != "active":  # a deleted one keeps its name: no other can have it
        raise Refused(
            f"experiment {name!r} was deleted in MLflow: mlflow experiments restore -x {experiment.experiment_id}"
        )
    return str(experiment.experiment_id)


def _parent(client: Any, experiment: str, info: RunInfo) -> str:
    """The run that stands for a group. Of several made at the same moment the oldest is it."""
    group = str(info.group)
    key = hashlib.sha256(group.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    parents = _search(client, experiment, GROUP_TAG, key)
    if not parents:
        tags = {
            GROUP_TAG: key,
            "trackers.group": group[:_TAG_LENGTH],
            "mlflow.note.content": PARENT_NOTE,
            **_source(info),
        }
        now = milliseconds(time.time())
        made = client.create_run(experiment, start_time=now, tags=tags, run_name=group)
        # It only holds the others together, so it is never left running.
        client.set_terminated(made.info.run_id, "FINISHED", now)
        parents = _search(client, experiment, GROUP_TAG, key) or [made]
        if parents[0].info.run_id != made.info.run_id:
            client.delete_run(made.info.run_id)
    return str(parents[0].info.run_id)


def _search(client: Any, experiment: str, tag: str, value: str) -> list[Any]:
    """Runs with a tag, deleted ones last, the oldest first. The value has no quotes."""
    runs = client.search_runs(
        [experiment], f"tags.`{tag}` = '{value}'", run_view_type=3, max_results=100
    )  # 3: ViewType.ALL
    return sorted(
        (run for run in runs if tag != GROUP_TAG or run.info.lifecycle_stage == "active"),
        key=lambda run: (run.info.lifecycle_stage != "active", run.info.start_time, run.info.run_id),
    )


def _alive(run: Any) -> Any:
    if run.info.lifecycle_stage != "active":
        raise Refused(f"the run was deleted in MLflow: mlflow runs restore --run-id {run.info.run_id}")
    return run


def _tags(info: RunInfo) -> dict[str, str]:
    tags = {**given_tags(info.option("MLFLOW_TAGS")), RUN_TAG: info.id, "trackers.status": "running", **_source(info)}
    if info.tags:
        tags["trackers.tags"] = json.dumps(info.tags)
    if info.group:
        tags["group"] = info.group
    if info.job_type:
        tags["job_type"] = info.job_type
    if info.notes:
        tags["mlflow.note.content"] = info.notes
    if info.argv:
        tags["trackers.command"] = shlex.join(info.argv)
    if info.host:
        tags["trackers.host"] = info.host
    return {name: value[:_TAG_LENGTH] for name, value in tags.items()}


def given_tags(text: Any) -> dict[str, str]:
    """``MLFLOW_TAGS``: "key=value" pairs with commas between, or a JSON object, for values that have commas."""
    plain = str(text or "").strip()
    if plain.startswith("{"):
        try:
            return {str(key): str(value) for key, value in json.loads(plain).items()}
        except (ValueError, RecursionError):
            pass  # no JSON: as it reads
    pairs = (pair.partition("=") for pair in plain.split(",") if pair.strip())
    return {key.strip(): value.strip() for key, _, value in pairs if key.strip()}


def _source(info: RunInfo) -> dict[str, str]:
    """MLflow's own tags for where a run came from: the training script, not who delivers it."""
    tags = {"mlflow.source.type": "LOCAL", "mlflow.source.name": info.program, "mlflow.user": info.user}
    for tag, field in (("commit", "commit"), ("branch", "branch"), ("repoURL", "remote")):
        tags[f"mlflow.source.git.{tag}"] = str(info.git.get(field) or "")
    return {name: value for name, value in tags.items() if value}
