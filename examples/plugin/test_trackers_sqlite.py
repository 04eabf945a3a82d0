"""The tracker passes the conformance kit, read back with SQL that it didn't write."""

import json
import sqlite3

import pytest

from trackers.testing import Point, Stored, check_tracker, checks


def read(info, state):
    db = sqlite3.connect(state["url"])
    stored = Stored(metrics={}, summary={})
    rows = db.execute("SELECT name, step, time, value FROM metrics WHERE run = ? ORDER BY rowid", [info.id])
    for name, step, time, value in rows:
        stored.metrics.setdefault(name, []).append(Point(step, json.loads(value), time))
    for name, value in db.execute("SELECT name, value FROM results WHERE run = ?", [info.id]):
        stored.summary[name] = json.loads(value)
    stored.name, stored.status = db.execute("SELECT name, status FROM runs WHERE run = ?", [info.id]).fetchone()
    db.close()
    return stored


@pytest.mark.parametrize("check", checks())
def test_sqlite_tracker_keeps_promise(check, tmp_path):
    """Each check of the kit passes."""
    check_tracker("sqlite", read, directory=tmp_path, checks=[check])
