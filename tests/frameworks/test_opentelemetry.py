"""Spans of OpenTelemetry's own SDK as spans of a run."""

from __future__ import annotations

import pytest

import trackers
from tests.training.test_spans import by_name, written
from trackers.training.disabled import NullRun
from trackers.training.run import Run

pytest.importorskip("opentelemetry.sdk")


def test_spans_of_an_instrumented_library_are_recorded(run: Run) -> None:
    """When they end: tree, times, inputs and outputs by several conventions, exceptions, tokens."""
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor

    from trackers.frameworks.opentelemetry import RunSpanExporter

    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(RunSpanExporter(run)))
    tracer = provider.get_tracer("test")
    with tracer.start_as_current_span("chat m", attributes={"gen_ai.operation.name": "chat", "input.value": "[1, 2]",
                                                            "gen_ai.usage.input_tokens": 12}) as outer:  # fmt: skip
        with tracer.start_as_current_span("tool", attributes={"output.value": "plain", "list": (1, 2)}):
            assert written(run) == []
        assert [span.name for span in written(run)] == ["tool"]
        with pytest.raises(ValueError, match="no"), tracer.start_as_current_span("boom"):
            raise ValueError("no")
    found = by_name(run)
    chat, tool, boom = found["chat m"], found["tool"], found["boom"]
    assert (chat.type, chat.inputs, chat.parent, chat.status) == ("llm", [1, 2], "", "ok")
    assert (tool.parent, tool.trace, tool.outputs) == (chat.span, chat.trace, "plain")
    assert tool.attributes == {"list": [1, 2]}
    assert (boom.status, boom.error) == ("error", "ValueError: no")
    context = outer.get_span_context()
    assert (chat.trace, chat.span) == (f"{context.trace_id:032x}", f"{context.span_id:016x}")
    assert chat.began <= tool.began <= tool.time <= chat.time
    provider.shutdown()
    run.finish()
    assert trackers.load(run.path).summary == {"gen_ai.usage.input_tokens": 12}


def test_damaged_span_never_raises(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """What can't be recorded is named; a run that records nothing takes none."""
    from trackers.frameworks.opentelemetry import RunSpanExporter

    for one in (run, NullRun()):
        exporter = RunSpanExporter(one)
        assert exporter.export([object()]).name == "SUCCESS"
        assert exporter.force_flush()
    assert "span: AttributeError" in capsys.readouterr().err
    assert written(run) == []
