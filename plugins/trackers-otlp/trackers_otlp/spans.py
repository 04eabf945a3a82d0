"""Spans of a run as OpenTelemetry's SDK has them, by its conventions for language models.

https://github.com/open-telemetry/semantic-conventions-genai: messages, arguments and results are JSON texts, since
receivers that take structured attributes of spans are few.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Mapping
from typing import Any

from trackers.errors import Rejected
from trackers.formats import conversations, gen_ai
from trackers.records import Span, name_floats
from trackers.tracker import RunInfo

OPERATIONS = {"llm": "chat", "embedding": "embeddings", "tool": "execute_tool", "agent": "invoke_agent",
              "retriever": "retrieval"}  # fmt: skip
INPUT, OUTPUT = "gen_ai.input.messages", "gen_ai.output.messages"
ARGUMENTS, RESULT = "gen_ai.tool.call.arguments", "gen_ai.tool.call.result"
INPUT_VALUE, OUTPUT_VALUE = "input.value", "output.value"
"""OpenInference's names, for what OpenTelemetry has none."""
STEP, TYPE = "trackers.step", "trackers.span.type"
_TRACE, _SPAN = re.compile("[0-9a-f]{32}"), re.compile("[0-9a-f]{16}")


def resource(info: RunInfo) -> Any:
    """What produced the spans: the project as the service, the run by id, name, group and tags. The variables
    OTEL_RESOURCE_ATTRIBUTES and OTEL_SERVICE_NAME count."""
    from opentelemetry.sdk.resources import Resource

    values = {
        "service.name": os.environ.get("OTEL_SERVICE_NAME") or info.project, "service.instance.id": info.id,
        "trackers.run.id": info.id, "trackers.run.name": info.name, "trackers.run.group": info.group,
        "trackers.run.tags": info.tags or None, "host.name": info.host or None,
    }  # fmt: skip
    return Resource.create({name: value for name, value in values.items() if value is not None})


def entity(span: Span, resource: Any) -> Any:
    """A span as the SDK's exporters take it.

    Raises:
        Rejected: its ids aren't OpenTelemetry's.
    """
    from opentelemetry.sdk.trace import Event, ReadableSpan
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope
    from opentelemetry.trace import SpanContext, SpanKind, TraceFlags
    from opentelemetry.trace.status import Status, StatusCode

    if not _TRACE.fullmatch(span.trace) or not int(span.trace, 16):
        raise Rejected(f"{span.trace[:40]!r} isn't the id of a trace")
    for own in (span.span, *([span.parent] if span.parent else [])):
        if not _SPAN.fullmatch(own) or not int(own, 16):
            raise Rejected(f"{own[:40]!r} isn't the id of a span")

    def context(own: str) -> SpanContext:
        return SpanContext(int(span.trace, 16), int(own, 16), False, TraceFlags(TraceFlags.SAMPLED))

    end, failed = _nanoseconds(span.time), span.status == "error"
    raised, _, words = _clean(span.error).partition(": ")
    values = attributes(span)
    if failed:
        values.setdefault("error.type", raised or "_OTHER")
    return ReadableSpan(
        _clean(span.name), context=context(span.span), parent=context(span.parent) if span.parent else None,
        resource=resource, attributes=values, start_time=_nanoseconds(span.start), end_time=end,
        kind=SpanKind.CLIENT if values.get(gen_ai.OPERATION) in ("chat", "embeddings") else SpanKind.INTERNAL,
        status=Status(StatusCode.ERROR, _clean(span.error)) if failed else Status(StatusCode.UNSET),
        events=[Event("exception", {"exception.type": raised, "exception.message": words}, end)]
        if failed and span.error else [],
        instrumentation_scope=InstrumentationScope("trackers"),
    )  # fmt: skip


def attributes(span: Span) -> dict[str, Any]:
    """The attributes of a span: those that were set, what went in and came out, its step."""
    operation = OPERATIONS.get(span.type.lower())
    named: dict[str, Any] = {STEP: span.step, TYPE: span.type, gen_ai.OPERATION: operation}
    went_in, came_out = (ARGUMENTS, RESULT) if operation == "execute_tool" else (INPUT_VALUE, OUTPUT_VALUE)
    if operation == "execute_tool":
        named["gen_ai.tool.name"] = span.name
    for name, said_as, value, role in (
        (went_in, INPUT, span.inputs, "user"), (came_out, OUTPUT, span.outputs, "assistant"),
    ):  # fmt: skip
        said = _messages(value, role) if operation == "chat" else None
        if said is not None:
            named[said_as] = _json([_message(one, answered=said_as == OUTPUT) for one in said])
        elif value is not None:
            named[name] = _text(value)
    values = {**named, **gen_ai.tokens(span.attributes), **span.attributes}
    return {_clean(name): _value(value) for name, value in values.items() if value not in (None, "")}


def _messages(value: Any, role: str) -> list[dict[str, Any]] | None:
    """What a model was told or has answered, where it is that: a text, a message, or a list of these."""
    if isinstance(value, str):
        return [{"role": role, "content": value}]
    if isinstance(value, Mapping) and len(value) == 1 and isinstance(value.get("messages"), list):
        value = value["messages"]
    return conversations.messages([value] if isinstance(value, Mapping) else value)


def _message(message: Mapping[str, Any], *, answered: bool) -> dict[str, Any]:
    """A message by OpenTelemetry's schema (gen-ai-input-messages.json, gen-ai-output-messages.json)."""
    parts: list[dict[str, Any]] = []
    content, role = message.get("content"), message["role"]
    if thought := message.get("reasoning_content"):
        parts.append({"type": "reasoning", "content": _text(thought)})
    if role == "tool":
        parts.append({"type": "tool_call_response", "id": message.get("tool_call_id"), "response": content})
    elif isinstance(content, list):
        parts += [_part(one) for one in content]
    elif content is not None and (content != "" or not message.get("tool_calls")):
        parts.append({"type": "text", "content": _text(content)})
    called = message.get("tool_calls") or []
    parts += [_call(one) for one in (called if isinstance(called, list) else [called])]
    name = {"name": str(message["name"])} if message.get("name") else {}
    reason = {"finish_reason": "tool_call" if called else "stop"} if answered else {}
    return {"role": role, "parts": parts, **name, **reason}


def _part(part: Any) -> dict[str, Any]:
    """A part of a message of several: text, or whatever else it is, as it was given."""
    if isinstance(part, Mapping) and isinstance(part.get("text"), str):
        return {"type": "text", "content": part["text"]}
    if isinstance(part, Mapping) and isinstance(part.get("type"), str):
        return dict(part)
    return {"type": "text", "content": _text(part)}


def _call(call: Any) -> dict[str, Any]:
    function = call.get("function", call) if isinstance(call, Mapping) else {}
    function = function if isinstance(function, Mapping) else {"name": function}
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        with contextlib.suppress(ValueError):
            arguments = json.loads(arguments)
    identity = call.get("id") if isinstance(call, Mapping) else None
    return {"type": "tool_call", "id": identity, "name": str(function.get("name", "")), "arguments": arguments}


def _value(value: Any) -> Any:
    """A value as attributes of spans have it: texts, booleans, numbers, and lists of one kind of these; else JSON."""
    if isinstance(value, (bool, float)):
        return value
    if isinstance(value, int):
        return value if -(2**63) <= value < 2**63 else str(value)
    kinds = {type(one) for one in value} if isinstance(value, (list, tuple)) else set()
    if len(kinds) == 1 and kinds <= {str, bool, float}:
        return [_value(one) for one in value]
    return _text(value)


def _text(value: Any) -> str:
    return _clean(value) if isinstance(value, str) else _json(value)


def _json(value: Any) -> str:
    return _clean(json.dumps(name_floats(value), ensure_ascii=False))


def _clean(text: str) -> str:
    """A text that UTF-8 has: OpenTelemetry's exporter sends nothing of a request with another one in it."""
    return text.encode("utf-8", "replace").decode()


def _nanoseconds(time: float) -> int:
    return max(0, min(round(time * 1e9), 2**63 - 1))
