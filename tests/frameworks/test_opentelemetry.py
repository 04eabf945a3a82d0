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


def test_what_a_batch_holds_back_is_flushed_before_the_end(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """Spans that are flushed are there; what comes after finish is counted on one line, with what to call."""
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    from trackers.frameworks.opentelemetry import RunSpanExporter

    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(RunSpanExporter(run), schedule_delay_millis=10**6))
    tracer = provider.get_tracer("mine")
    for _ in range(5):
        with tracer.start_as_current_span("call"):
            pass
    assert written(run) == []
    provider.force_flush()
    with tracer.start_as_current_span("late"):
        pass
    run.finish()
    provider.shutdown()
    assert [span.name for span in written(run)] == ["call"] * 5
    assert "spans came from OpenTelemetry after finish (1) and are lost: call provider.force_flush()" in (
        capsys.readouterr().err
    )
