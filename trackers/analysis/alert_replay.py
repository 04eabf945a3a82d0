"""When a rule of alerts would have spoken in runs that are over: the same watch, over the same records, at once."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from trackers.alerts import rules
from trackers.errors import UsageError
from trackers.journal.run_directory import RunDirectory, StreamName
from trackers.journal.stream import StreamReader, StreamWriter
from trackers.readers.reader import Reader, SourceRun
from trackers.records import Alert, Finish, Metrics, Record, Start, Summary, encode
from trackers.relay.alerting.watch import WRITER, AlertWatch
from trackers.tracker import RunInfo

SEEN = (Metrics, Summary, Start)
"""Records that rules look at."""


def check(rule: str) -> None:
    """Raise UsageError where a rule can't be read, or there is none."""
    try:
        parsed = rules.parse(rule)
    except ValueError as error:
        raise UsageError(f"the rule can't be read: {error}") from None
    if not parsed:
        raise UsageError("no rule is given: trackers alerts try 'loss > 10 for 60s' RUN")


def replay(rule: str, reader: Reader, source: SourceRun) -> list[Alert]:
    """The alerts that rules would have raised in a run, in the order of their times.

    ``stall`` is told by the times of records alone: of the time behind the last one nothing is known.

    Raises:
        UsageError: a rule can't be read.
    """
    check(rule)
    with tempfile.TemporaryDirectory(prefix="trackers-replay-") as folder:
        run = RunDirectory(Path(folder) / "run")
        run.make()
        info = RunInfo(id=source.id or "run", name="", project="", options={"TRACKER_ALERTS": rule})
        end = _write(run, reader.read(source))
        watch = AlertWatch(run, info, 1, lambda text: None)
        watch.ended(end)
        watch.close()
        found = StreamReader(run.stream(StreamName(WRITER, 0, 1))).read(1_000_000)
        return sorted((record for record in found if isinstance(record, Alert)), key=lambda alert: alert.time)


def _write(run: RunDirectory, source: Iterable[Any]) -> Finish:
    """Write what rules look at as one stream, in the order of its times. Returns how the run ended.

    Values of one step and time are one record again, as they were logged: many stores have each metric for itself.
    """
    kept: list[Record] = []
    end = Finish(time=0.0, status="running")
    for record in source:
        if isinstance(record, Finish):
            end = record
        elif isinstance(record, SEEN):
            kept.append(record)
    kept.sort(key=lambda record: record.time)
    together: list[Record] = []
    for record in kept:
        before = together[-1] if together else None
        if (
            isinstance(record, Metrics)
            and isinstance(before, Metrics)
            and (record.time, record.step) == (before.time, before.step)
            and before.values.keys().isdisjoint(record.values)
        ):
            before.values = {**before.values, **record.values}
        else:
            together.append(record)
    writer = StreamWriter(run.stream(StreamName("rank", 0, 1)))
    for record in together:
        writer.write(encode(record))
    writer.release()
    return end
