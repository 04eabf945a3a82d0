"""The traces of an MLflow run as spans: ours, and those that MLflow's own tracing and autologging made.

A store keeps the spans in its database, or in a file beside the run's artifacts. A span that hasn't ended is left out.
"""

from __future__ import annotations

import inspect
import json
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from trackers.formats import gen_ai
from trackers.formats.conversations import SAMPLE
from trackers.formats.mlflow_names import STEP, refusal
from trackers.readers.helpers import warn
from trackers.readers.mlflow import bounded_http
from trackers.records import Record, Span

MOST_TRACES = 20_000
"""Of one run; those that MLflow lists first, the newest."""
PAGE = 100
BATCH = 10
"""mlflow/environment_variables.py: _MLFLOW_SEARCH_TRACES_MAX_BATCH_SIZE, what servers take at a time."""
LOCATION, ARTIFACTS = "mlflow.trace.spansLocation", "mlflow.artifactLocation"
"""mlflow/tracing/constant.py: TraceTagKey, and mlflow/utils/mlflow_tags.py."""
IN_STORE = frozenset({"TRACKING_STORE", "ARCHIVE_REPO"})
FILE = "traces.json"
USAGE = "mlflow.chat.tokenUsage"
_OWN = frozenset({"mlflow.traceRequestId", "mlflow.spanInputs", "mlflow.spanOutputs", "mlflow.spanType", USAGE, STEP})


def traces(client: Any, run: Any, uri: str, pages: Callable[..., Iterator[Any]]) -> Iterator[Iterator[Record]]:
    """The spans of each trace of a run, each trace by itself; nothing where the server or the client knows no traces.

    Args:
        client: an ``MlflowClient``. run: MLflow's. uri: of the tracking server or database. pages: asks for page after
            page (:func:`trackers.readers.mlflow.reader.pages`).
    """
    infos = _listed(client, run, pages)
    store = client._tracking_client.store
    stored = [info for info in infos if info.tags.get(LOCATION) in IN_STORE and hasattr(store, "batch_get_traces")]
    for first in range(0, len(stored), BATCH):
        part = [info.trace_id for info in stored[first : first + BATCH]]
        by_id = {trace.info.trace_id: trace for trace in store.batch_get_traces(part)}
        for name in part:
            # Those that go on, or whose process was killed, aren't in the answer.
            yield _spans(by_id[name].data.spans) if name in by_id else _unfinished(store, name)
    ours = {id(info) for info in stored}
    for info in infos:
        if id(info) not in ours:
            yield _of_file(client, info, uri)


def _listed(client: Any, run: Any, pages: Callable[..., Iterator[Any]]) -> list[Any]:
    """The infos of all traces, which say where their spans are, the oldest first."""
    if not hasattr(client, "search_traces"):
        return []
    from mlflow.exceptions import MlflowException

    known = inspect.signature(client.search_traces).parameters
    if not {"run_id", "include_spans"} <= known.keys():  # MLflow 2
        return []
    where = {"locations" if "locations" in known else "experiment_ids": [run.info.experiment_id]}

    def ask(token: Any) -> Any:
        return client.search_traces(
            **where, run_id=run.info.run_id, include_spans=False, max_results=PAGE, page_token=token
        )

    infos: list[Any] = []
    try:
        for page in pages(ask, lambda page: page.token, lambda page: not page, MOST_TRACES // PAGE + 1):
            infos += [trace.info for trace in page]
            if len(infos) > MOST_TRACES:
                warn(f"MLflow's run {run.info.run_id} has more than {MOST_TRACES:,} traces: the newest are read")
                break
    except (NotImplementedError, MlflowException) as error:
        if isinstance(error, MlflowException) and not _knows_none(error):
            raise
    return infos[:MOST_TRACES][::-1]


def _knows_none(error: Any) -> bool:
    """Whether a server or a store of files says that it has no traces at all."""
    code = str(getattr(error, "error_code", ""))
    words = str(error)
    return (
        code in ("ENDPOINT_NOT_FOUND", "NOT_IMPLEMENTED") or "404" in words or "NotImplemented" in type(error).__name__
    )


def _unfinished(store: Any, name: str) -> Iterator[Span]:
    from mlflow.exceptions import MlflowException

    try:
        trace = store.get_trace(name, allow_partial=True)
    except MlflowException as error:
        if error.error_code != "RESOURCE_DOES_NOT_EXIST":  # somebody deleted it meanwhile
            raise
        return
    yield from _spans(trace.data.spans if trace is not None else [])


def _of_file(client: Any, info: Any, uri: str) -> Iterator[Span]:
    from mlflow.entities import TraceData
    from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

    address = str(info.tags.get(ARTIFACTS, ""))
    if not address:
        return
    if why := refusal(uri, address, info.trace_id):
        raise ValueError(f"the spans of trace {info.trace_id:.60}: {why}")
    takes = "tracking_uri" in inspect.signature(get_artifact_repository).parameters
    repository = get_artifact_repository(address, **({"tracking_uri": client.tracking_uri} if takes else {}))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, FILE)
        try:
            with bounded_http.download(bounded_http.ANSWER_BYTES):
                repository._download_file(FILE, str(file))
        except (OSError, bounded_http.TooLong) as error:
            raise ValueError(f"the spans of trace {info.trace_id:.60} can't be read: {error}") from error
        content = json.loads(file.read_bytes())
    yield from _spans(TraceData.from_dict(content).spans)


def _spans(entities: Any) -> Iterator[Span]:
    for entity in entities:
        if entity.end_time_ns and SAMPLE not in entity.attributes:
            yield _span(entity)


def _span(entity: Any) -> Span:
    attributes = dict(entity.attributes)
    kind = str(attributes.get("mlflow.spanType") or "").lower()
    failed = str(getattr(entity.status.status_code, "name", entity.status.status_code)) == "ERROR"
    error = str(entity.status.description or "") if failed else ""
    for event in entity.events if failed and not error else ():
        if event.name == "exception":
            details = event.attributes or {}
            error = f"{details.get('exception.type', 'Exception')}: {details.get('exception.message', '')}"
    step, usage = attributes.get(STEP), attributes.get(USAGE)
    rest = {str(name): value for name, value in attributes.items() if name not in _OWN}
    if isinstance(usage, dict) and not gen_ai.tokens(rest):
        counts = {gen_ai.INPUT: usage.get("input_tokens"), gen_ai.OUTPUT: usage.get("output_tokens")}
        rest.update({name: count for name, count in counts.items() if isinstance(count, int)})
    return Span(
        step=step if type(step) is int and step >= 0 else None,
        time=entity.end_time_ns / 1e9,
        began=entity.start_time_ns / 1e9,
        name=str(entity.name),
        trace=str(entity.trace_id).removeprefix("tr-"),
        span=str(entity.span_id),
        parent=str(entity.parent_id or ""),
        type="" if kind == "unknown" else kind,
        status="error" if failed else "ok",
        error=error,
        inputs=attributes.get("mlflow.spanInputs"),
        outputs=attributes.get("mlflow.spanOutputs"),
        attributes=rest,
    )
