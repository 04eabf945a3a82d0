"""A tracker that keeps every promise, and one for each way to break one, which the conformance kit must see.

All write to SQLite, whose import stands for a vendor's client: it is done in ``open``.
"""

from __future__ import annotations

import json
import math
import struct
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from trackers.records import Config, Metrics, Record, Summary, Text, flatten, on_axis, plain_name
from trackers.testing import Point, Stored
from trackers.tracker import Cursor, RunInfo, State, Status, Tracker

TABLES = """
CREATE TABLE IF NOT EXISTS run (status TEXT, name TEXT, tags TEXT);
CREATE TABLE IF NOT EXISTS metrics (record TEXT, name TEXT, step INTEGER, time REAL, value TEXT,
    UNIQUE (record, name));
CREATE TABLE IF NOT EXISTS texts (record TEXT, name TEXT, step INTEGER, text TEXT, UNIQUE (record, name));
CREATE TABLE IF NOT EXISTS params (kind TEXT, name TEXT, value TEXT, UNIQUE (kind, name));
"""


class Whole(Tracker):
    """Keeps every promise."""

    name = "whole"
    accepts = frozenset({Config, Metrics, Summary, Text})
    needs: tuple[str, ...] = ("sqlite3",)

    def open(self, info: RunInfo, state: State) -> Cursor | None:
        import sqlite3

        self.info, self.state = info, state
        self.db = sqlite3.connect(info.path("run.sqlite"))
        self.db.executescript(TABLES)
        with self.db:
            if not self.db.execute("SELECT 1 FROM run").fetchone():
                self.db.execute("INSERT INTO run VALUES ('running', ?, ?)", (info.name, json.dumps(info.tags)))
            self.db.execute("UPDATE run SET status = 'running'")
        return None

    def write(self, records: Sequence[Record], cursor: Cursor) -> None:
        with self.db:
            for record in records:
                self.put(record)

    def put(self, record: Record) -> None:
        if isinstance(record, Metrics):
            for name, value in self.pairs(record.values):
                self.point(record, name, value)
        elif isinstance(record, Text):
            for name, text in record.values.items():
                row = (record.id, name, record.step, text)
                self.db.execute("INSERT OR IGNORE INTO texts VALUES (?, ?, ?, ?)", row)
        elif isinstance(record, Summary):
            self.params("summary", [(plain_name(name), value) for name, value in record.values.items()])
        elif isinstance(record, Config):
            self.params("config", flatten(record.values))

    def pairs(self, values: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
        return values.items()

    def point(self, record: Record, name: str, value: Any) -> None:
        row = (record.id, name, record.step, record.time, json.dumps(value))
        self.db.execute("INSERT OR IGNORE INTO metrics VALUES (?, ?, ?, ?, ?)", row)

    def params(self, kind: str, values: Iterable[tuple[str, Any]]) -> None:
        for name, value in values:
            self.db.execute("INSERT OR REPLACE INTO params VALUES (?, ?, ?)", (kind, name, json.dumps(value)))

    def close(self, status: Status) -> None:
        with self.db:
            self.db.execute("UPDATE run SET status = ?", (status.name,))
        self.db.close()


def read(info: RunInfo, state: Mapping[str, Any]) -> Stored:
    """What the run's database holds."""
    import sqlite3

    db = sqlite3.connect(info.path("run.sqlite"))
    params: dict[str, dict[str, Any]] = {"summary": {}, "config": {}}
    texts: dict[str, list[tuple[int | None, str]]] = {}
    stored = Stored(summary=params["summary"], config=params["config"], texts=texts)
    for name, step, when, value in db.execute("SELECT name, step, time, value FROM metrics ORDER BY rowid"):
        stored.metrics.setdefault(name, []).append(Point(step, json.loads(value), when))
    for name, step, text in db.execute("SELECT name, step, text FROM texts ORDER BY rowid"):
        texts.setdefault(name, []).append((step, text))
    for kind, name, value in db.execute("SELECT kind, name, value FROM params"):
        params[kind][name] = json.loads(value)
    stored.status, stored.name, tags = db.execute("SELECT status, name, tags FROM run").fetchone()
    stored.tags = json.loads(tags)
    db.close()
    return stored


class LosesOne(Whole):
    """Drops the last record of a full batch."""

    def write(self, records: Sequence[Record], cursor: Cursor) -> None:
        super().write(records[:-1] if len(records) > 6 else records, cursor)


class DoublesOne(Whole):
    """Stores one record a second time under another key."""

    def put(self, record: Record) -> None:
        super().put(record)
        if record.seq == 9:
            super().put(msgspec.structs.replace(record, id=record.id + "+"))


class Reorders(Whole):
    """Writes each batch backwards."""

    def write(self, records: Sequence[Record], cursor: Cursor) -> None:
        super().write(records[::-1], cursor)


class DropsNaN(Whole):
    """Takes finite numbers only, as a client does that writes strict JSON."""

    def pairs(self, values: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
        return [(name, value) for name, value in values.items() if math.isfinite(value)]


class ForgetsTheRun(Whole):
    """Begins anew each time it is opened."""

    def open(self, info: RunInfo, state: State) -> Cursor | None:
        info.path("run.sqlite").unlink(missing_ok=True)
        return super().open(info, state)


class _WithoutKey(Whole):
    """No idempotent key: stores what it gets, as often as it gets it."""

    times = 0

    def point(self, record: Record, name: str, value: Any) -> None:
        self.times += 1
        row = (f"{record.id}/{time.monotonic_ns()}/{self.times}", name, record.step, record.time, json.dumps(value))
        self.db.execute("INSERT INTO metrics VALUES (?, ?, ?, ?, ?)", row)


class DoublesOnRedelivery(_WithoutKey):
    """Takes a batch twice that comes twice."""


class DoublesAfterCrash(_WithoutKey):
    """Remembers what it took, but only in memory: right until its process dies before the commit."""

    def open(self, info: RunInfo, state: State) -> Cursor | None:
        self.taken = state.get("taken", 0)
        return super().open(info, state)

    def write(self, records: Sequence[Record], cursor: Cursor) -> None:
        super().write([record for record in records if record.seq > self.taken], cursor)
        self.taken = self.state["taken"] = max(self.taken, cursor.seq)


class DoublesHalves(_WithoutKey):
    """Knows a batch again by its cursor alone, so a half of one is new to it."""

    last = -1

    def write(self, records: Sequence[Record], cursor: Cursor) -> None:
        if cursor.seq != self.last:
            super().write(records, cursor)
            self.last = cursor.seq


class CommitsEarly(Whole):
    """Returns from ``write`` before the records are stored: they wait in memory for ``close``."""

    def open(self, info: RunInfo, state: State) -> Cursor | None:
        self.waiting: list[Record] = []
        return super().open(info, state)

    def write(self, records: Sequence[Record], cursor: Cursor) -> None:
        self.waiting += records

    def close(self, status: Status) -> None:
        super().write(self.waiting, Cursor())
        super().close(status)


class TearsBatches(Whole):
    """Commits record by record with a counter in place of a key, so a kill within a batch moves the counter."""

    def open(self, info: RunInfo, state: State) -> Cursor | None:
        self.count = state.get("count", 0)
        return super().open(info, state)

    def point(self, record: Record, name: str, value: Any) -> None:
        self.count += 1
        self.state["count"] = self.count
        self.state.save()
        row = (str(self.count), name, record.step, record.time, json.dumps(value))
        self.db.execute("INSERT OR IGNORE INTO metrics VALUES (?, ?, ?, ?, ?)", row)
        self.db.commit()


class AlwaysFinished(Whole):
    """Says "finished" however the run ended."""

    def close(self, status: Status) -> None:
        super().close(Status("finished"))


class WorksWhenConstructed(Whole):
    """Writes a file before it is opened."""

    def __init__(self) -> None:
        Path("cache").write_text("")


class CleansNames(Whole):
    """Puts "_" for what it doesn't like, so that two names become one."""

    def pairs(self, values: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
        return [("".join(c if c.isalnum() or c in "/_" else "_" for c in name), v) for name, v in values.items()]


class CutsNames(Whole):
    """Keeps 250 characters of a name."""

    def pairs(self, values: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
        return [(name[:250], value) for name, value in values.items()]


class DropsBackwardSteps(Whole):
    """Takes rising steps only, as W&B's client does."""

    highest = -1

    def point(self, record: Record, name: str, value: Any) -> None:
        if record.step is not None and record.step >= self.highest:
            self.highest = record.step
            super().point(record, name, value)


class MergesRepeatedSteps(Whole):
    """Keeps one value a step."""

    def point(self, record: Record, name: str, value: Any) -> None:
        self.db.execute("DELETE FROM metrics WHERE name = ? AND step = ?", (name, record.step))
        super().point(record, name, value)


class UsesItsOwnClock(Whole):
    """Stores when it wrote, not when it was logged."""

    def put(self, record: Record) -> None:
        super().put(msgspec.structs.replace(record, time=time.time()))


class RoundsToSingle(Whole):
    """Stores single precision without saying so."""

    def point(self, record: Record, name: str, value: Any) -> None:
        if isinstance(value, float) and abs(value) < 3e38:
            value = struct.unpack("<f", struct.pack("<f", value))[0]
        super().point(record, name, value)


class MakesFloats(Whole):
    """Stores every integer as a double without saying so."""

    def point(self, record: Record, name: str, value: Any) -> None:
        super().point(record, name, float(value))


class DropsBigIntegers(Whole):
    """Skips integers beyond 64 bits without saying so."""

    def pairs(self, values: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
        return [(name, value) for name, value in values.items() if isinstance(value, float) or abs(value) < 2**64]


class CutsParams(Whole):
    """Keeps 6,000 characters of a configuration value."""

    def params(self, kind: str, values: Iterable[tuple[str, Any]]) -> None:
        super().params(kind, [(n, value[:6000] if isinstance(value, str) else value) for n, value in values])


class FreezesParams(Whole):
    """Keeps the first value of a configuration key."""

    def params(self, kind: str, values: Iterable[tuple[str, Any]]) -> None:
        for name, value in values:
            if not self.db.execute("SELECT 1 FROM params WHERE kind = ? AND name = ?", (kind, name)).fetchone():
                super().params(kind, [(name, value)])


class MakesSeriesOfResults(Whole):
    """Stores results as metrics too."""

    def put(self, record: Record) -> None:
        super().put(record)
        if isinstance(record, Summary):
            for name, value in record.values.items():
                self.point(record, name, value)


class WantsARecord(Whole):
    """Looks at the first record of a batch that may have none."""

    def write(self, records: Sequence[Record], cursor: Cursor) -> None:
        self.first = records[0].seq
        super().write(records, cursor)


class DeclaresTooMuch(Whole):
    """Declares a kind and then refuses it."""

    accepts = frozenset({Config, Metrics, Summary, Text})

    def put(self, record: Record) -> None:
        if isinstance(record, Text):
            raise TypeError("can't log text")
        super().put(record)


class OpensOnce(Whole):
    """Can't open a run that it has closed."""

    def open(self, info: RunInfo, state: State) -> Cursor | None:
        if state.get("closed"):
            raise RuntimeError("this run has ended")
        return super().open(info, state)

    def close(self, status: Status) -> None:
        self.state["closed"] = True
        super().close(status)


class MovesToTheAxis(Whole):
    """Stores what has a step metric at that one's value, though it says that it has more than one axis."""

    def put(self, record: Record) -> None:
        for part in on_axis(record):
            super().put(part)


BROKEN: dict[type[Whole], str] = {
    LosesOne: "batches",
    DoublesOne: "batches",
    Reorders: "batches",
    DropsNaN: "nan_and_infinity",
    ForgetsTheRun: "resume",
    DoublesOnRedelivery: "redelivery",
    DoublesAfterCrash: "killed_before_commit",
    DoublesHalves: "redelivery",
    CommitsEarly: "killed_before_commit",
    TearsBatches: "killed_before_commit",
    AlwaysFinished: "statuses",
    WorksWhenConstructed: "import",
    CleansNames: "names",
    CutsNames: "names",
    DropsBackwardSteps: "steps",
    MergesRepeatedSteps: "steps",
    UsesItsOwnClock: "batches",
    RoundsToSingle: "numbers",
    MakesFloats: "numbers",
    DropsBigIntegers: "big_integers",
    CutsParams: "long_params",
    FreezesParams: "config_changes",
    MakesSeriesOfResults: "results",
    WantsARecord: "empty_batches",
    DeclaresTooMuch: "declaration",
    OpensOnce: "resume",
    MovesToTheAxis: "step_metrics",
}
"""Each broken tracker with the check that must see it."""
