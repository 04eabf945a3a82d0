"""Comparison of session logs as text: one GPU against several, GPU use, communication."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from trackers.analysis.comparability import comparability_warnings
from trackers.analysis.figures import efficiency, speedup
from trackers.analysis.run_stats import RunStats, facts
from trackers.analysis.statistics import durations, mean, weighted
from trackers.analysis.tables import MISSING, format_value, plain
from trackers.benchmark import speed
from trackers.errors import NotFound, examples
from trackers.metrics import roles
from trackers.readers.boundary import boundary
from trackers.readers.columns import ColumnBlocks
from trackers.readers.helpers import unix
from trackers.readers.reader import SourceRun
from trackers.records import TIME_MAX, unnamed_float
from trackers_session.reader import COMMUNICATION, END, SessionReader, read_summary

RULE = "=" * 60
WHOLE = "the session's duration"
"""The clock where no two records of steps tell the time."""
LOSS = "train_loss"
_HEAD = "system.gpu."


class GpuUse(NamedTuple):
    """One GPU over a session, in percent; None where nothing says. average: weighted by time."""

    label: str
    average: float | None
    peak: float | None
    memory: float | None


class CommunicationSummary(NamedTuple):
    """One kind of communication. mb: data of all calls together; average_mb, average_ms: of those that say."""

    name: str
    calls: int
    mb: float | None
    average_mb: float | None
    average_ms: float | None


class SessionSummary(NamedTuple):
    """One session. facts: its metrics and speed. duration_s: from its start to its end, or to its last record."""

    facts: RunStats
    mode: str
    duration_s: float | None
    gpus: list[GpuUse]
    operations: list[CommunicationSummary]

    @property
    def gpu_count(self) -> int | None:
        """How many GPUs; 0 where it is said that there was none, None where nothing says."""
        if self.facts.config.get("gpu_count") == 0:
            return 0
        modes = {"SINGLE-GPU": 1, "SINGLE-CPU": 0, "CPU": 0}
        return self.facts.gpus or len(self.gpus) or modes.get(self.mode.upper())

    @property
    def is_timed(self) -> bool:
        """Whether it has a speed: one that died before its first steps has none, and is in no average."""
        return self.facts.speed.steps_per_s is not None or self.facts.speed.samples_per_s is not None

    @property
    def gpu_percent(self) -> float | None:
        """Average utilisation of its GPUs."""
        return _finite_mean([gpu.average for gpu in self.gpus])


def sessions(directory: Path, session_id: str = "") -> tuple[list[SessionSummary], list[str]]:
    """All sessions below a directory, the oldest first, and why some couldn't be read.

    Args:
        session_id: only the session of this id.

    Raises:
        NotFound: no such directory, no session in it, or none of that id.
    """
    if not directory.is_dir():
        raise NotFound(f"no directory {directory}: --log-dir names where sessions lie")
    summaries, problems = [], []
    for path in sorted(directory.rglob(f"*{END}")):
        try:
            with boundary(f"session: {path}"):
                summaries.append(read(path))
        except NotFound as error:
            problems.append(str(error))
    known = [session.facts.id for session in summaries]
    if session_id:
        summaries = [session for session in summaries if session.facts.id == session_id]
    if not summaries:
        hint = f"; there is {examples(known, 20)}" if known else f" (*{END} files)"
        why = f"; {problems[0]}" if problems else ""
        raise NotFound(f"no session{f' {session_id!r}' if session_id else ''} below {directory}{hint}{why}")
    return sorted(summaries, key=lambda session: session.facts.created), problems


def read(path: Path) -> SessionSummary:
    """One session.

    Raises:
        NotFound: it has gone, or is none.
    """
    reader = SessionReader()
    (run,) = reader.runs(str(path))
    columns, others = _read(reader, run)
    session = read_summary(path)["session"]
    blocks = columns.blocks()
    known = facts(run, blocks, others)
    began, ended = unix(session.get("start_time")), unix(session.get("end_time"))
    duration = unnamed_float(session.get("duration_seconds"))
    times = [float(block.times.max()) for block in blocks]
    if not isinstance(duration, (int, float)) or not 0 < duration < TIME_MAX:
        last = ended if ended is not None else max(times, default=None)
        duration = last - began if began is not None and last is not None and last > began else None
    series = _series(blocks)
    if known.speed.steps_per_s is None and known.steps and duration:
        known.speed.steps_per_s, known.speed.basis = known.steps / duration, WHOLE
    return SessionSummary(known, str(session.get("mode") or ""), duration, _gpus(series), _operations(blocks))


def _read(reader: SessionReader, run: SourceRun) -> tuple[ColumnBlocks, list[Any]]:
    columns = ColumnBlocks()
    return columns, columns.add(reader.read(run))


def _series(blocks: Sequence[Any]) -> dict[str, tuple[Any, Any]]:
    """Times and values of each metric, in the order of time."""
    import numpy as np

    parts: dict[str, list[tuple[Any, Any]]] = {}
    for block in blocks:
        for column, name in enumerate(block.names):
            parts.setdefault(name, []).append((block.times, block.values[:, column]))
    series = {}
    for name, pairs in parts.items():
        times, values = (np.concatenate([pair[k] for pair in pairs]) for k in (0, 1))
        order = np.argsort(times, kind="stable")
        series[name] = (times[order], values[order])
    return series


def _gpus(series: dict[str, tuple[Any, Any]]) -> list[GpuUse]:
    labels = {name[len(_HEAD) :].removesuffix(".max").rpartition(".")[0] for name in series if name.startswith(_HEAD)}
    gpus = []
    for label in sorted(labels, key=lambda label: (len(label), label)):
        head = f"{_HEAD}{label}."
        times, used = series.get(f"{head}gpu", ((), ()))
        highest = [*used, *series.get(f"{head}gpu.max", ((), ()))[1]]
        peak = max((value for value in highest if math.isfinite(value)), default=None)
        memory_times, memory = series.get(f"{head}memoryAllocated", ((), ()))
        gpus.append(GpuUse(label, _over_time(times, used), peak, _over_time(memory_times, memory)))
    return gpus


def _over_time(times: Any, values: Any) -> float | None:
    seconds = durations(times)
    return weighted(values, seconds if (seconds > 0).any() else [1.0] * len(values))


def _operations(blocks: Sequence[Any]) -> list[CommunicationSummary]:
    """Each kind of communication: a record may stand for several calls, whose size and time are one call's."""
    import numpy as np

    by_operation: dict[str, dict[str, list[Any]]] = {}
    for block in blocks:
        columns = dict(zip(block.names, block.values.T, strict=True))
        for name, calls in columns.items():
            if name.startswith(COMMUNICATION) and name.endswith("/calls"):
                operation = name[len(COMMUNICATION) : -len("/calls")]
                parts = by_operation.setdefault(operation, {"calls": [calls], "mb": [], "ms": []})
                if parts["calls"][0] is not calls:
                    parts["calls"].append(calls)
                for part in ("mb", "ms"):
                    values = columns.get(f"{COMMUNICATION}{operation}/{part}")
                    if values is not None:
                        parts[part].append((calls, values))
    listed = []
    for operation, parts in by_operation.items():
        known = np.concatenate(parts["calls"])
        calls = int(known[np.isfinite(known)].sum())
        mb, average_mb = _weighed(parts["mb"])
        listed.append(CommunicationSummary(operation, calls, mb, average_mb, _weighed(parts["ms"])[1]))
    return sorted(listed, key=lambda operation: -operation.calls)


def _weighed(parts: Sequence[tuple[Any, Any]]) -> tuple[float | None, float | None]:
    """The sum over all calls, and the mean of one; None where nothing says."""
    total, count = 0.0, 0.0
    for calls, values in parts:
        known = values == values
        total += float((calls[known] * values[known]).sum())
        count += float(calls[known].sum())
    return (total, total / count) if count else (None, None)


def overview(session: SessionSummary) -> Iterator[str]:
    """The lines of one session."""
    known = session.facts
    loss = next((known.folds[name] for name in (LOSS, *roles.LOSSES) if name in known.folds), None)
    minutes = f" ({session.duration_s / 60:.1f}min)" if session.duration_s else ""
    yield f"  Session: {plain(known.id)}"
    yield f"  Duration: {_number(session.duration_s, '.1f', 's')}{minutes}"
    yield f"  GPUs: {_count(session)}"
    yield f"  Steps: {MISSING if known.steps is None else known.steps}"
    yield f"  Final Loss: {_number(loss.last if loss is not None else None, '.4f')}"
    if known.speed.steps_per_s is None:
        yield f"  Steps/sec: {MISSING}"
    yield from (f"  {line}" for line in speed.lines(known.speed))
    for gpu in session.gpus:
        yield (
            f"  GPU {plain(gpu.label)}: {_number(gpu.average, '.1f', '%')} avg util, "
            f"{_number(gpu.peak, '.1f', '%')} peak, {_number(gpu.memory, '.1f', '%')} avg memory"
        )


def comparison(summaries: Sequence[SessionSummary]) -> Iterator[str]:
    """Sessions of one GPU against sessions of several, with speed-up and efficiency for each number of GPUs.

    What is neither (on processors alone, of unknown GPUs, several processes without a GPU each) is listed apart.
    """
    single = [session for session in summaries if session.gpu_count == 1 and not session.mode.startswith("MULTI")]
    several = [session for session in summaries if (session.gpu_count or 0) > 1]
    yield "SINGLE GPU vs MULTI-GPU COMPARISON"
    yield RULE
    neither = [session for session in summaries if session not in single and session not in several]
    titled = [("📱 SINGLE GPU SESSIONS", single), ("🔗 MULTI-GPU SESSIONS", several)]
    titled += [("📎 OTHER SESSIONS", neither)] if neither else []
    for title, group in titled:
        yield ""
        yield f"{title} ({len(group)}):"
        for number, session in enumerate(group):
            if number:
                yield ""
            yield from overview(session)
    if not single or not several:
        missing = "single-GPU" if not single else "multi-GPU"
        yield ""
        yield f"No {missing} session to compare with."
        return
    yield from _performance(single, several)
    warnings = comparability_warnings([session.facts for session in summaries])
    if warnings:
        yield ""
        yield from (f"⚠️  {plain(text)}" for text in warnings)


def _performance(single: Sequence[SessionSummary], several: Sequence[SessionSummary]) -> Iterator[str]:
    """The averages of both, with speed-up and efficiency for each number of GPUs."""
    yield ""
    yield "⚡ PERFORMANCE COMPARISON:"
    yield from _averages("Single GPU Average", single)
    counts = sorted({session.gpu_count or 0 for session in several})
    for count in counts:
        group = [session for session in several if session.gpu_count == count]
        label = f" ({count} GPUs)" if len(counts) > 1 else ""
        yield ""
        yield from _averages(f"Multi-GPU Average{label}", group)
        times, basis = _speedup(single, group)
        yield ""
        yield f"🚀 Multi-GPU Speedup{label}: {_number(times, '.2f', 'x')}{basis}"
        yield f"📊 GPU Efficiency{label}: {_number(efficiency(times, count), '.1f', '%')}"


def both(summaries: Sequence[SessionSummary]) -> list[str]:
    """Comparison and communication, as reports have them."""
    return [*comparison(summaries), "", "", "COMMUNICATION", RULE, "", *communication(summaries)]


def communication(summaries: Sequence[SessionSummary]) -> Iterator[str]:
    """What each session communicated; without bandwidths: these files don't say how long a transfer itself took."""
    for number, session in enumerate(summaries):
        if number:
            yield ""
        yield f"📡 Session: {plain(session.facts.id)}"
        yield f"  GPUs: {_count(session)}"
        if not session.operations:
            yield "  No communication was logged."
            continue
        yield "  Communication Operations:"
        for operation in session.operations:
            yield f"    {plain(operation.name)}: {operation.calls} occurrences"
            if operation.average_mb is not None:
                yield f"      Avg data size: {operation.average_mb:.2f}MB"
                yield f"      Total data: {_number(operation.mb, '.2f', 'MB')}"
            if operation.average_ms is not None:
                yield f"      Avg duration: {operation.average_ms:.2f}ms"


def _averages(title: str, group: Sequence[SessionSummary]) -> Iterator[str]:
    timed = [session for session in group if session.is_timed]
    left_out = [session.facts.id for session in group if not session.is_timed] if timed else []
    group = timed or group
    without = f" (without {plain(examples(left_out, 3))}: no steps)" if left_out else ""
    yield f"{title}{without}:"
    yield f"  Steps/sec: {_number(_finite_mean([session.facts.speed.steps_per_s for session in group]), '.2f')}"
    samples = _finite_mean([session.facts.speed.samples_per_s for session in group])
    if samples is not None:
        yield f"  Samples/sec: {samples:.2f}"
    yield f"  GPU utilization: {_number(_finite_mean([session.gpu_percent for session in group]), '.1f', '%')}"


def _speedup(single: Sequence[SessionSummary], several: Sequence[SessionSummary]) -> tuple[float | None, str]:
    """How many times as fast, on average, by :func:`trackers.benchmark.speed.comparable_speeds`, and a remark on it.

    Sessions that don't say their samples/s are left out where others do.
    """
    groups = _timed_speeds(several, single)
    pairs = [speed.comparable_speeds(first, second) for first in groups[0] for second in groups[1]]
    kinds = {pair[0] if pair is not None else None for pair in pairs}
    if len(kinds) != 1 or None in kinds:
        clocks = dict.fromkeys(each.samples_basis or each.basis for group in groups for each in group)
        return None, f" (speeds are of different clocks: {', '.join(clocks)})" if len(clocks) > 1 else ""
    rates = [pair for pair in pairs if pair is not None]
    times = speedup(_finite_mean([rate for _, rate, _ in rates]), _finite_mean([rate for _, _, rate in rates]))
    kind = rates[0][0]
    if kind.startswith("steps"):
        return times, f" ({kind}: no session says its samples/s, equal batches are taken for granted)"
    return times, "" if kind == "samples/s" else f" ({kind})"


def _timed_speeds(*groups: Sequence[SessionSummary]) -> list[list[speed.Speed]]:
    """The speeds of each group's sessions; those in samples/s alone where any is."""
    timed = [[session.facts.speed for session in group if session.is_timed] for group in groups]
    in_samples = [[each for each in group if each.samples_per_s] for group in timed]
    return in_samples if any(in_samples) else timed


def _count(session: SessionSummary) -> str:
    return MISSING if session.gpu_count is None else str(session.gpu_count)


def _finite_mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None and math.isfinite(value)]
    return mean(known) if known else None


def _number(value: Any, form: str, unit: str = "") -> str:
    if not isinstance(value, (int, float)):
        return MISSING
    return f"{value:{form}}{unit}" if math.isfinite(value) else format_value(float(value))
