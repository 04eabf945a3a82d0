"""Spans as trackio's traces, and back: one trace for each tree of spans, with the messages of its models' calls.

What trackio's page shows has its own names; ours lie beside them, so that a span comes back as it was.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

import msgspec

from trackers.formats import gen_ai
from trackers.records import Span, name_floats

TYPE = "trackio.trace"
OURS = "trackers"
"""The name, in a span's metadata, of what only our spans have."""
KINDS = {"llm": "generation", "embedding": "generation", "tool": "tool", "retriever": "tool"}
"""trackio/trace.py: "span", "generation" or "tool"."""
_ROLES = frozenset({"system", "user", "assistant", "tool", "developer"})


def as_trace(spans: Sequence[Span]) -> dict[str, Any]:
    """The spans of one tree, the root last or missing, as the value that trackio keeps."""
    ordered = sorted(spans, key=lambda span: (span.start, span.parent != ""))
    root = next((span for span in spans if not span.parent), ordered[0])
    failed = any(span.status == "error" for span in spans)
    metadata = {"name": root.name, "duration_ms": root.seconds * 1000, "status": "error" if failed else "ok"}
    return {"_type": TYPE, "messages": _messages(ordered, root), "metadata": metadata,
            "spans": [_shown(span) for span in ordered]}  # fmt: skip


def spans_of(shown: Any) -> Iterator[Span]:
    """Our spans among those of a stored trace."""
    for entry in shown if isinstance(shown, list) else ():
        metadata = entry.get("metadata") if isinstance(entry, dict) else None
        own = metadata.get(OURS) if isinstance(metadata, dict) else None
        if isinstance(own, dict):
            yield msgspec.convert({**own, "kind": "span"}, Span)


def _shown(span: Span) -> dict[str, Any]:
    used = gen_ai.tokens(span.attributes)
    usage = {"input_tokens": used.get(gen_ai.INPUT, 0), "output_tokens": used.get(gen_ai.OUTPUT, 0)}
    known = {name: value for name, value in name_floats(msgspec.to_builtins(span)).items() if name not in ("id", "seq")}
    values = {
        "id": span.span, "parent_id": span.parent or None, "name": span.name, "kind": KINDS.get(span.type, "span"),
        "start_time": iso(span.start), "end_time": iso(span.time),
        "duration_ms": span.seconds * 1000, "status": span.status, "error": span.error or None,
        "input": name_floats(span.inputs), "output": name_floats(span.outputs),
        "model": gen_ai.model(span.attributes) or None,
        "usage": usage if used else None,
        "metadata": {**name_floats(span.attributes), OURS: known},
    }  # fmt: skip
    return {name: value for name, value in values.items() if value is not None}


def _messages(ordered: Sequence[Span], root: Span) -> list[dict[str, Any]]:
    """The conversation that the last call of a model had; of a tree without one, what went in and came out."""
    call = next((span for span in reversed(ordered) if span.type == "llm"), root)
    messages = _as_messages(call.inputs, "user")
    return [*messages, *_as_messages(call.outputs, "assistant")]


def _as_messages(value: Any, role: str) -> list[dict[str, Any]]:
    if value is None:
        return []
    if isinstance(value, Mapping) and isinstance(value.get("messages"), list):
        value = value["messages"]
    items = value if isinstance(value, list) else [value]
    if items and all(isinstance(item, Mapping) and item.get("role") in _ROLES for item in items):
        return [dict(name_floats(item)) for item in items]
    text = value if isinstance(value, str) else msgspec.json.encode(name_floats(value)).decode()
    return [{"role": role, "content": text}]


def iso(time: float) -> str:
    """Unix seconds as the text that trackio stores: UTC, to the microsecond."""
    return datetime.fromtimestamp(time, timezone.utc).isoformat()
