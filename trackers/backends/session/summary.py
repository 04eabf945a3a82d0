"""A session's totals, and what the two summaries say of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

import msgspec

from trackers.backends.session.facts import SessionFacts, Snapshots
from trackers.backends.session.log_lines import MB, RULE, clean, duration, fixed, metric
from trackers.benchmark.speed import LOG_FORMAT, Speed, lines
from trackers.records import Number
from trackers.tracker import RunInfo, Status


class CommunicationTotals(msgspec.Struct):
    """One kind of communication. calls: collectives. size_bytes, took_ms: of all that say."""

    calls: int = 0
    size_bytes: float | None = None
    took_ms: float | None = None


class SessionTotals(msgspec.Struct):
    """Totals of a session.

    began, ended: of the first record and the last. top,
    loss: of the last row that had a loss. names: by which the loss and the learning rate were logged.
    """

    began: float = 0.0
    ended: float = 0.0
    rows: int = 0
    top: int | None = None
    loss: Number | None = None
    evaluation: dict[str, Number] = {}
    operations: dict[str, CommunicationTotals] = {}
    warnings: int = 0
    results: dict[str, Any] = {}
    names: dict[str, str] = {}

    def count(self, operation: str, calls: int, size: float | None, took_ms: float | None) -> None:
        """Take one entry of communication; size and time are of one collective."""
        total = self.operations.setdefault(operation, CommunicationTotals())
        total.calls += calls
        if size is not None:
            total.size_bytes = (total.size_bytes or 0.0) + size * calls
        if took_ms is not None:
            total.took_ms = (total.took_ms or 0.0) + took_ms * calls


def iso(time: float) -> str:
    """Unix seconds in ISO 8601, local, with its offset, so that another machine reads the same moment."""
    return datetime.fromtimestamp(time).astimezone().isoformat(timespec="microseconds")


def session(
    name: str,
    info: RunInfo,
    facts: SessionFacts,
    totals: SessionTotals,
    batch: float | None,
    attributes: Mapping[str, Any],
    status: Status | None,
) -> dict[str, Any]:
    """The summary's ``session``: the format's fields, then the run that it belongs to and how it ended."""
    ended = status is not None and status.name != "running"
    last = status.time if status is not None and ended and status.time else totals.ended or info.created
    began = totals.began or info.created
    found: dict[str, Any] = {
        "id": name,
        "run_id": info.id,
        "start_time": iso(began),
        "end_time": iso(last) if ended else None,
        "duration_seconds": round(max(0.0, last - began), 6),
        "mode": facts.mode,
        "gpu_count": facts.gpu_count,
        "model_name": facts.model or None,
        "dataset_name": facts.dataset or None,
        "world_size": facts.processes,
        "distributed_backend": facts.backend or None,
        "run_name": attributes.get("name", info.name),
        "project": info.project,
        "group": attributes.get("group", info.group),
        "tags": attributes.get("tags", info.tags),
        "status": status.name if status is not None and ended else "running",
        "total_batch_size": batch,
        "names": totals.names,
        "results": totals.results,
    }
    if LOG_FORMAT in facts.settings:
        found["log_format"] = facts.settings[LOG_FORMAT]
    if status is not None and ended:
        found.update({"exit_code": status.exit_code} if status.exit_code is not None else {})
        found.update({"reason": status.reason} if status.reason else {})
    return found


def text(head: Mapping[str, Any], totals: SessionTotals, speed: Speed, snapshots: Snapshots) -> Iterator[str]:
    """The summary as text (``summary.txt``)."""
    yield "TRAINING SESSION SUMMARY"
    yield RULE
    yield f"  Session: {head['id']}"
    yield f"  Run: {clean(str(head['run_name']))} ({clean(str(head['project']))}/{head['run_id']})"
    reason = f" ({clean(head['reason'])})" if head.get("reason") else ""
    yield f"  Status: {head['status']}{reason}"
    yield f"  Mode: {head['mode']}"
    for title, field in (("Model", "model_name"), ("Dataset", "dataset_name")):
        if head[field]:
            yield f"  {title}: {clean(head[field])}"
    yield f"  Started: {head['start_time']}"
    if head["end_time"]:
        yield f"  Ended: {head['end_time']}"
    yield f"  Duration: {duration(head['duration_seconds'])}"
    if head["gpu_count"] is not None:
        yield f"  GPUs: {head['gpu_count']}"
    yield f"  Processes: {head['world_size']}"
    if totals.top is not None:
        yield f"  Steps: {totals.top}"
    if totals.loss is not None:
        yield f"  Final Loss: {fixed(totals.loss, '.4f')}"
    for name, value in totals.evaluation.items():
        yield f"  Last {clean(name)}: {fixed(value, '.4f')}"
    yield from (f"  {line}" for line in lines(speed))
    for label, use in snapshots.use.items():
        parts = []
        if use.snapshots:
            parts += [f"{use.utilization / use.snapshots:.1f}% avg util", f"{use.peak:.1f}% peak"]
        if use.memories:
            parts.append(f"{use.memory / use.memories:.1f}% avg memory")
        if parts:
            yield f"  GPU {label}: {', '.join(parts)}"
    if totals.operations:
        yield "  Communication Operations:"
    for name, operation in totals.operations.items():
        yield f"    {clean(name)}: {operation.calls} occurrences"
        if operation.size_bytes is not None and operation.calls:
            yield f"      Avg data size: {operation.size_bytes / operation.calls / MB:.2f}MB"
            yield f"      Total data: {operation.size_bytes / MB:.2f}MB"
        if operation.took_ms is not None and operation.calls:
            yield f"      Avg duration: {operation.took_ms / operation.calls:.2f}ms"
    if totals.results:
        yield "  Results:"
        yield from (f"    {clean(name)}: {metric(name, value)}" for name, value in totals.results.items())
    if totals.warnings:
        yield f"  Warnings: {totals.warnings} (in {head['id']}_performance.log and {head['id']}_multigpu.log)"
