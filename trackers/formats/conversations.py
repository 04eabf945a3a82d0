"""Conversations with language models in the rows of a table, in the shapes that training libraries log.

A whole conversation is in one column (OpenAI's ``messages``; ShareGPT's ``conversations`` with ``from`` and ``value``),
or what was asked and what was answered are in two (TRL's ``prompt`` and ``completion``, verl's ``input`` and
``output``), each a text or a list of messages.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from trackers.records import Media, Span, name_floats

SAMPLES = "samples"
"""In the ``meta`` of a table: its rows are samples of a language model."""
SAMPLE = "trackers.sample"
"""An attribute of what a store shows of a sample as a span: no span was logged; the table has it."""

WHOLE = ("messages", "conversation", "conversations")
ASKED = ("prompt", "input", "question", "query", "instruction")
ANSWERED = ("completion", "response", "output", "answer", "generation")
_ROLES = {"human": "user", "gpt": "assistant", "chatgpt": "assistant", "model": "assistant", "function": "tool"}
COMPLETIONS = ("step", "prompt", "completion")
"""The first columns of what TRL's trainers log (``log_completions``): a row for each completion."""
GENERATIONS = ("step", "input_1", "output_1", "score_1")
"""The first columns of what verl logs (``log_val_generations``): a row for each step, three columns for each sample.
Each table repeats the rows of those before it."""
KEPT = ("tool_calls", "tool_call_id", "name", "reasoning_content")


def messages(value: Any) -> list[dict[str, Any]] | None:
    """A list of messages with ``role`` and ``content``, and ``tool_calls``, ``tool_call_id``, ``name``,
    ``reasoning_content`` where they have such; None of anything else."""
    if not isinstance(value, (list, tuple)) or not value:
        return None
    found = [_message(item) for item in value]
    return None if None in found else found  # type: ignore[return-value]


def _message(item: Any) -> dict[str, Any] | None:
    if not isinstance(item, Mapping):
        return None
    role = item.get("role", item.get("from"))
    if not isinstance(role, str) or not ("content" in item or "value" in item or item.get("tool_calls")):
        return None
    kept = {name: item[name] for name in KEPT if item.get(name) is not None}
    return {"role": _ROLES.get(role, role), "content": item.get("content", item.get("value")), **kept}


def split(row: Mapping[str, Any]) -> tuple[list[dict[str, Any]], list[dict[str, Any]], dict[str, Any]] | None:
    """What was asked, what was answered, and the row's other columns; None where the row has no conversation."""
    for name in WHOLE:
        if found := messages(row.get(name)):
            last = max((at + 1 for at, one in enumerate(found) if one["role"] != "assistant"), default=0)
            return found[:last], found[last:], {key: value for key, value in row.items() if key != name}
    asked = next((name for name in ASKED if row.get(name)), None)
    answered = next((name for name in ANSWERED if row.get(name) is not None), None)
    if asked is None or answered is None:
        return None
    others = {key: value for key, value in row.items() if key not in (asked, answered)}
    return _as_messages(row[asked], "user"), _as_messages(row[answered], "assistant"), others


def _as_messages(value: Any, role: str) -> list[dict[str, Any]]:
    text = value if isinstance(value, str) else msgspec.json.encode(name_floats(value)).decode()
    return messages(value) or [{"role": role, "content": text}]


def are_samples(columns: Sequence[Any]) -> bool:
    """Whether a table has the columns of samples that a library logs as any table."""
    return tuple(columns[:3]) == COMPLETIONS or tuple(columns[:4]) == GENERATIONS


def unfolded(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> tuple[Sequence[str], Sequence[Sequence[Any]]]:
    """A table of samples with a row for each: of verl's, the samples of its last step."""
    if tuple(columns[:4]) != GENERATIONS:
        return columns, rows
    samples = [[row[0], *row[at : at + 3]] for row in rows[-1:] for at in range(1, len(row) - 2, 3)]
    return ["step", "input", "output", "score"], samples


def as_traces(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[dict[str, Any]]:
    """The rows that are conversations as ``trackio.Trace`` keeps them: ``messages`` and ``metadata``."""
    found = [split(dict(zip(columns, row, strict=False))) for row in rows]
    return [
        {"_type": "trackio.trace", "messages": name_floats([*one[0], *one[1]]), "metadata": name_floats(one[2])}
        for one in found if one is not None
    ]  # fmt: skip


def as_spans(record: Media, run: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[Span]:
    """The rows that are conversations as spans of their own, each by the same ids at every call.

    Args:
        run: its id.
    """
    spans = []
    for number, row in enumerate(rows):
        if (one := split(dict(zip(columns, row, strict=False)))) is not None:
            asked, answered, others = one
            # A row that names its step is the same sample where a later table repeats it, as TRL's last one does.
            place = f"{record.name}:{list(row)!r}" if columns[0] == "step" else record.id
            digest = hashlib.sha256(f"{run}:{place}:{number}".encode("utf-8", "replace")).hexdigest()
            spans.append(
                Span(
                    step=record.step, time=record.time, began=record.time, name=record.name, type="llm",
                    trace=digest[:32], span=digest[32:48], inputs={"messages": asked}, outputs=answered,
                    attributes={**others, SAMPLE: number},
                )
            )  # fmt: skip
    return spans
