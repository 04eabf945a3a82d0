"""Spans of a run as MLflow's traces, which its page shows under the run.

A store keeps a span by the ids of trace and span: one that is sent twice is there once. Stores without spans (files,
and older releases of MLflow) get none: the table ``spans`` is there.
"""

from __future__ import annotations

import json
import logging
import re
from typing import Any

from trackers.backends.shared import media_files
from trackers.formats import conversations, gen_ai
from trackers.formats.mlflow_names import STEP
from trackers.records import Media, Span, name_floats
from trackers.support.failpoints import failpoint
from trackers.tracker import RunInfo

BATCH = 100
"""mlflow/store/tracking/abstract_store.py: link_traces_to_run takes so many traces."""
TYPES = {"llm": "LLM", "tool": "TOOL", "retriever": "RETRIEVER", "agent": "AGENT", "chain": "CHAIN",
         "embedding": "EMBEDDING", "reranker": "RERANKER", "parser": "PARSER"}  # fmt: skip
"""mlflow/entities/span.py: SpanType."""
_TRACE, _SPAN = re.compile("[0-9a-f]{32}"), re.compile("[0-9a-f]{16}")

_logger = logging.getLogger("trackers.mlflow")


class Traces:
    """Spans that wait to be sent. Sending one twice has no further effect.

    Args:
        client: an ``MlflowClient``.
    """

    def __init__(self, client: Any, experiment_id: str, run_id: str) -> None:
        self._store = client._tracking_client.store
        self._experiment_id, self._run_id = experiment_id, run_id
        self._waiting: list[Span] = []
        self._without = False

    def add(self, span: Span) -> None:
        """Have a span be sent with the next ones; one whose ids are none is left out."""
        ids = _TRACE.fullmatch(span.trace), _SPAN.fullmatch(span.span), not span.parent or _SPAN.fullmatch(span.parent)
        if all(ids) and int(span.trace, 16) and int(span.span, 16):  # OpenTelemetry: all zeros is no id
            self._waiting.append(span)

    def add_samples(self, info: RunInfo, record: Media) -> None:
        """Have the conversations of a table of samples be sent as traces, beside the table.

        Raises:
            Rejected: its file is missing or broken.
        """
        for columns, rows in media_files.samples(info, record):
            for span in conversations.as_spans(record, info.id, columns, rows):
                self.add(span)

    def clear(self) -> None:
        """Forget what waits."""
        self._waiting = []

    def send(self) -> None:
        """Send what waits."""
        waiting, self._waiting = self._waiting, []
        for first in range(0, len(waiting), BATCH):
            if self._without:
                return
            part = waiting[first : first + BATCH]
            try:
                self._store.log_spans(self._experiment_id, [_entity(span) for span in part])
                failpoint("mlflow.spans.after")
                self._store.link_traces_to_run(list(dict.fromkeys(f"tr-{span.trace}" for span in part)), self._run_id)
            except (NotImplementedError, AttributeError, ImportError):
                self._without = True
                _logger.warning("this MLflow store keeps no spans: they are in the table `spans` alone")


def _entity(span: Span) -> Any:
    """A span as MLflow's client takes it."""
    from mlflow.entities.span import Span as Entity
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import Event, ReadableSpan
    from opentelemetry.trace import SpanContext, TraceFlags
    from opentelemetry.trace.status import Status, StatusCode

    def context(own: str) -> SpanContext:
        return SpanContext(int(span.trace, 16), int(own, 16), False, TraceFlags(TraceFlags.SAMPLED))

    kind = TYPES.get(span.type.lower(), span.type.upper() or "UNKNOWN")
    values: dict[str, Any] = {
        **span.attributes, "mlflow.traceRequestId": f"tr-{span.trace}", "mlflow.spanInputs": span.inputs,
        "mlflow.spanOutputs": span.outputs, "mlflow.spanType": kind, STEP: span.step,
    }  # fmt: skip
    used = gen_ai.tokens(span.attributes)
    if used:
        counts = {"input_tokens": used.get(gen_ai.INPUT, 0), "output_tokens": used.get(gen_ai.OUTPUT, 0)}
        values["mlflow.chat.tokenUsage"] = {**counts, "total_tokens": sum(counts.values())}
    attributes = {name: json.dumps(name_floats(value), ensure_ascii=False) for name, value in values.items()
                  if value is not None}  # fmt: skip
    end = _nanoseconds(span.time)
    failed = span.status == "error"
    raised, _, words = span.error.partition(": ")
    exception = {"exception.type": raised, "exception.message": words}
    return Entity(
        ReadableSpan(
            span.name, context=context(span.span), parent=context(span.parent) if span.parent else None,
            attributes=attributes, start_time=_nanoseconds(span.start), end_time=end,
            status=Status(StatusCode.ERROR, span.error) if failed else Status(StatusCode.OK),
            events=[Event("exception", exception, end)] if failed and span.error else [],
            resource=Resource.get_empty(),  # else this process's, as tags of the trace: service.name, its instance's id
        )
    )  # fmt: skip


def _nanoseconds(time: float) -> int:
    return max(0, min(round(time * 1e9), 2**63 - 1))
