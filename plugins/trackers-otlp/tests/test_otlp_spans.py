"""Spans by OpenTelemetry's conventions for language models."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trackers_otlp import spans

from tests.helpers import T0
from trackers.records import Span

IDS: dict[str, Any] = {"trace": "a" * 32, "span": "b" * 16, "time": T0, "began": T0 - 1}
CALLED = {"role": "assistant", "content": None, "reasoning_content": "hm",
          "tool_calls": [{"id": "c1", "function": {"name": "add", "arguments": "[2, 2]"}}]}  # fmt: skip


def attributes(**fields: Any) -> dict[str, Any]:
    return spans.attributes(Span(name="chat", **{**IDS, **fields}))


def test_conversation_is_messages_of_parts() -> None:
    """Texts, tool calls with their answers, and what a model thought, by the schemas of the conventions."""
    said = [{"role": "system", "content": "be brief"}, {"role": "user", "content": [{"type": "text", "text": "2+2"}]},
            CALLED, {"role": "tool", "content": "4", "tool_call_id": "c1"}]  # fmt: skip
    found = attributes(type="llm", step=3, inputs={"messages": said}, outputs=[{"role": "assistant", "content": "4"}])
    assert json.loads(found.pop("gen_ai.input.messages")) == [
        {"role": "system", "parts": [{"type": "text", "content": "be brief"}]},
        {"role": "user", "parts": [{"type": "text", "content": "2+2"}]},
        {
            "role": "assistant",
            "parts": [
                {"type": "reasoning", "content": "hm"},
                {"type": "tool_call", "id": "c1", "name": "add", "arguments": [2, 2]},
            ],
        },
        {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": "4"}]},
    ]
    assert json.loads(found.pop("gen_ai.output.messages")) == [
        {"role": "assistant", "parts": [{"type": "text", "content": "4"}], "finish_reason": "stop"}
    ]
    assert found == {"gen_ai.operation.name": "chat", "trackers.span.type": "llm", "trackers.step": 3}
    asked = attributes(type="llm", inputs="2+2", outputs=CALLED)
    assert json.loads(asked["gen_ai.input.messages"])[0]["role"] == "user"
    assert json.loads(asked["gen_ai.output.messages"])[0]["finish_reason"] == "tool_call"


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        (
            {"type": "tool", "inputs": {"a": 2}, "outputs": 4},
            {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "chat",
             "gen_ai.tool.call.arguments": '{"a": 2}', "gen_ai.tool.call.result": "4"},
        ),
        (
            {"type": "retriever", "inputs": "q", "outputs": ["page"]},
            {"gen_ai.operation.name": "retrieval", "input.value": "q", "output.value": '["page"]'},
        ),
        ({"type": "", "inputs": {"x": float("nan")}}, {"input.value": '{"x": "NaN"}'}),
        ({"type": "llm", "inputs": {"x": 1}}, {"gen_ai.operation.name": "chat", "input.value": '{"x": 1}'}),
        (
            {"type": "llm", "attributes": {"gen_ai.operation.name": "text_completion", "llm.token_count.prompt": 7}},
            {"gen_ai.operation.name": "text_completion", "llm.token_count.prompt": 7, "gen_ai.usage.input_tokens": 7},
        ),
    ],
)  # fmt: skip
def test_span_has_the_names_of_its_kind(fields: dict[str, Any], wanted: dict[str, Any]) -> None:
    """OpenTelemetry's where it has one, else OpenInference's; what the script set counts before ours."""
    found = attributes(**fields)
    assert found.pop("trackers.span.type", "") == fields["type"]
    assert found == wanted


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.just("\ud800"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(st.sampled_from(["llm", "tool", "agent", ""]), ANY, ANY, st.dictionaries(st.text(), ANY, max_size=4))
def test_whatever_a_span_holds_is_encoded(kind: str, inputs: Any, outputs: Any, more: dict[str, Any]) -> None:
    """Large integers, texts that UTF-8 doesn't have, half messages: the exporter takes all of it."""
    from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
    from opentelemetry.sdk.resources import Resource

    made = spans.entity(Span(name="a\ud800", type=kind, inputs=inputs, outputs=outputs, attributes=more, **IDS),
                        Resource({}))  # fmt: skip
    (sent,) = encode_spans([made]).resource_spans[0].scope_spans[0].spans
    assert {pair.key for pair in sent.attributes} == set(made.attributes)
