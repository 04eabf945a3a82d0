"""A tracker that writes runs to one SQLite file."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence

from trackers.records import Metrics, Record, Summary, plain_name
from trackers.tracker import Cursor, RunInfo, State, Status, Tracker

TABLES = """
CREATE TABLE IF NOT EXISTS runs (run TEXT PRIMARY KEY, name TEXT, status TEXT);
CREATE TABLE IF NOT EXISTS metrics (run TEXT, record TEXT, name TEXT, step INTEGER, time REAL, value TEXT,
    PRIMARY KEY (run, record, name));
CREATE TABLE IF NOT EXISTS results (run TEXT, name TEXT, value TEXT, PRIMARY KEY (run, name));
"""


class SqliteTracker(Tracker):
    name = "sqlite"
    accepts = frozenset({Metrics, Summary})
    needs = ("sqlite3",)

    def open(self, info: RunInfo, state: State) -> Cursor | None:
        import sqlite3

        path = os.path.join(info.cwd, info.option("SQLITE_FILE", str(info.path("run.sqlite"))))
        state["url"] = path
        self.run, self.db = info.id, sqlite3.connect(path)
        self.db.executescript(TABLES)
        with self.db:
            self.db.execute("INSERT OR REPLACE INTO runs VALUES (?, ?, 'running')", (info.id, info.name))
        return None

    def write(self, records: Sequence[Record], cursor: Cursor) -> None:
        with self.db:  # one transaction: after a kill, the whole batch is there or none of it
            for record in records:
                if isinstance(record, Metrics):
                    # record.id is the same whenever the record comes again, so it is taken once
                    for name, value in record.values.items():
                        row = (self.run, record.id, name, record.step, record.time, json.dumps(value))
                        self.db.execute("INSERT OR IGNORE INTO metrics VALUES (?, ?, ?, ?, ?, ?)", row)
                elif isinstance(record, Summary):
                    for name, value in record.values.items():
                        result = (self.run, plain_name(name), json.dumps(value))
                        self.db.execute("INSERT OR REPLACE INTO results VALUES (?, ?, ?)", result)

    def close(self, status: Status) -> None:
        with self.db:
            self.db.execute("UPDATE runs SET status = ? WHERE run = ?", (status.name, self.run))
        self.db.close()
