"""The distribution keeps what its entry points declare; read back by SQL and JSON, without its own code."""

import json
import os
from pathlib import Path

import pytest

from trackers.records import flatten
from trackers.testing import Point, Stored, check_plugin

psycopg2 = pytest.importorskip("psycopg2")
URL = os.environ.get("TEST_POSTGRES_URL", "")
FLOATS = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}


def read(info, state):
    """What the file holds of a run."""
    database = psycopg2.connect(URL)
    at = database.cursor()
    stored = Stored(metrics={}, summary={}, config={}, texts={})
    at.execute("SELECT line FROM trackers_records WHERE run = %s ORDER BY place", [info.id])
    for (line,) in at.fetchall():
        record = json.loads(bytes(line))
        if record["kind"] == "config":
            stored.config.update(flatten(record["values"]))  # a later record changes its keys and leaves the others
            continue
        for name, value in record["values"].items():
            if isinstance(value, str) and record["kind"] in ("metrics", "summary"):
                value = FLOATS.get(value, value)
            if record["kind"] == "summary" or (record["kind"] == "metrics" and name.startswith("final/")):
                stored.summary[name.removeprefix("final/")] = value
            elif record["kind"] == "metrics":
                stored.metrics.setdefault(name, []).append(Point(record.get("step"), value, record["time"]))
            elif record["kind"] == "text":
                stored.texts.setdefault(name, []).append((record.get("step"), value))
    at.execute("SELECT name, status, tags FROM trackers_runs WHERE run = %s", [info.id])
    stored.name, stored.status, stored.tags = at.fetchone()
    database.close()
    return stored


@pytest.mark.skipif(not URL, reason="needs a server: TEST_POSTGRES_URL=postgresql://…")
def test_distribution_keeps_its_promises(tmp_path: Path) -> None:
    """Tracker, precheck, options, reader, copy and command."""
    options = {"POSTGRES_URL": URL}
    print(check_plugin("trackers-postgres", read, directory=tmp_path, copies={"postgres": URL}, options=options))
