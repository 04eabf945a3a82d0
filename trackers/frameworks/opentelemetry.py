"""OpenTelemetry: spans of instrumented libraries (OpenAI's, LangChain's, requests, …) as spans of a run.

    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from trackers.frameworks.opentelemetry import RunSpanExporter

    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(RunSpanExporter(run)))

Needs the package opentelemetry-sdk.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from trackers.errors import MissingPackage
from trackers.formats import gen_ai
from trackers.records import Span
from trackers.training.disabled import NullRun
from trackers.training.run import Run
from trackers.training.spans import NAME_LONGEST, attributes_of, bounded

try:
    from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
except ImportError as error:
    raise MissingPackage(
        "trackers.frameworks.opentelemetry needs the opentelemetry-sdk package: pip install opentelemetry-sdk"
    ) from error

INPUTS = ("mlflow.spanInputs", "input.value", "gen_ai.input.messages", "gen_ai.prompt", "traceloop.entity.input")
OUTPUTS = ("mlflow.spanOutputs", "output.value", "gen_ai.output.messages", "gen_ai.completion",
           "traceloop.entity.output")  # fmt: skip
"""Attributes under which instrumentations keep what went in and came out."""
TYPES = ("openinference.span.kind", "traceloop.span.kind", "mlflow.spanType")


class RunSpanExporter(SpanExporter):
    """Records each span that ends as a span of the run, before ``export`` returns.

    Args:
        run: of ``trackers.init``. A run that records nothing, as on other ranks, takes none.
    """

    def __init__(self, run: Run | NullRun) -> None:
        self._run = run

    def export(self, spans: Sequence[Any]) -> SpanExportResult:
        """Record spans. Never raises. FAILURE: the run has finished, and takes none."""
        if isinstance(self._run, NullRun):
            return SpanExportResult.SUCCESS
        recorder = self._run._recorder
        if recorder.finished:
            recorder.problem(
                f"spans came from OpenTelemetry after finish ({len(spans):,}) and are lost: "
                "call provider.force_flush() before run.finish()",
                about="spans after finish",
            )
            return SpanExportResult.FAILURE
        for span in spans:
            recorder.guard(
                "span", lambda ended=span: self._run._spans_of_run().record(_converted(ended, self._run._last_step))
            )
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        """Nothing: each span is in the journal already."""

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        """Nothing: each span is in the journal already."""
        return True


def _converted(span: Any, step: int) -> Span:
    attributes = dict(span.attributes or {})
    inputs, outputs = _pop_first(attributes, INPUTS), _pop_first(attributes, OUTPUTS)
    kind = str(_pop_first(attributes, TYPES) or "") or gen_ai.KINDS.get(str(attributes.get(gen_ai.OPERATION, "")), "")
    failed = span.status.status_code.name == "ERROR"
    error = str(span.status.description or "") if failed else ""
    for event in span.events if failed and not error else ():
        of_event = event.attributes or {}
        if event.name == "exception":
            error = f"{of_event.get('exception.type', 'Exception')}: {of_event.get('exception.message', '')}"
    ended = span.end_time if span.end_time is not None else span.start_time
    return Span(
        step=step, time=ended / 1e9, began=span.start_time / 1e9, name=str(span.name)[:NAME_LONGEST],
        type=kind.lower()[:NAME_LONGEST], trace=f"{span.context.trace_id:032x}", span=f"{span.context.span_id:016x}",
        parent=f"{span.parent.span_id:016x}" if span.parent is not None else "", status="error" if failed else "ok",
        error=str(bounded(error) or ""), inputs=bounded(_unwritten(inputs), "inputs"),
        outputs=bounded(_unwritten(outputs), "outputs"), attributes=attributes_of(attributes),
    )  # fmt: skip


def _pop_first(attributes: dict[str, Any], names: Sequence[str]) -> Any:
    """Remove the first of these attributes that is present, and return its value."""
    name = next((name for name in names if name in attributes), None)
    return attributes.pop(name) if name is not None else None


def _unwritten(value: Any) -> Any:
    """What a text holds as JSON; another text as it is."""
    if not isinstance(value, str) or not value.startswith(("{", "[", '"')):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value
