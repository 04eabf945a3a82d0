"""Runs into a lake: what is new or has changed, whole, once, through any kill; and read back as it was."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from trackers_lake import into_lake
from trackers_lake.schema import COLUMNS
from trackers_lake.tables import Lake

import trackers
from tests import forked
from tests.analysis.support import T0, write_run
from trackers import records
from trackers.errors import NotFound, UsageError
from trackers.readers.journal import JournalReader
from trackers.records import Alert, Text
from trackers.testing.driver import python_path

ODD = "päth/with '#%2F [x]*"


def written(run_id: str, steps: int = 4, **fields: Any) -> Path:
    """A run with numbers of all kinds, samples, texts, settings and results."""
    numbers = ({"loss": 1.0 / (step + 1), "n": step, "ok": step % 2 == 0} for step in range(steps))
    rows: list[Any] = [(step, step, values) for step, values in enumerate(numbers)]
    rows += [(None, 5, {"system.cpu": 50.0}), (steps, 6, {"loss": math.nan, ODD: math.inf, "big": 2**60})]
    more = [Text(step=1, time=T0, values={"note": "text 'ä'"}), Alert(title="a", text="b", time=T0 + 9)]
    return write_run(run_id, rows, config={"lr": 0.1, "model": {"depth": 4}, "huge": 2**70}, summary={"best": 0.5},
                     more=more, **fields)  # fmt: skip


def rows(where: str | Path, table: str) -> list[dict[str, Any]]:
    found = trackers.sql(f"select * from {table} order by all", [f"lake:{where}"]).to_pylist()
    return [{name: str(value) for name, value in row.items()} for row in found]


@pytest.mark.slow
def test_what_has_not_changed_is_not_put_in_again() -> None:
    """The second call commits nothing; a run that has grown is replaced, and a new one comes in."""
    written("a")
    written("b")
    assert sorted(into_lake.add(["runs"], "lake").added) == [("digits", "a"), ("digits", "b")]
    into_lake.add(["runs"], "lake")  # the files are older now than a filesystem's clock can be wrong
    versions = {table: Lake("lake").snapshot(table).version for table in COLUMNS}
    done = into_lake.add(["runs"], "lake")
    assert (done.added, done.unchanged) == ([], 2)
    assert {table: Lake("lake").snapshot(table).version for table in COLUMNS if table != "runs"} == {
        table: version for table, version in versions.items() if table != "runs"
    }
    written("b", 6)
    written("c")
    done = into_lake.add(["runs"], "lake")
    assert sorted(done.added) == [("digits", "b"), ("digits", "c")]
    assert len(trackers.sql("select * from metrics where run = 'b' and name = 'loss'", ["lake:lake"])) == 7


def test_run_whose_files_are_as_before_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its print says so: neither its journal is read nor any table changed, ``runs`` included."""
    for path in (run := written("a"), *run.rglob("*")):
        os.utime(path, (T0, T0))  # older than a filesystem's clock can be wrong
    into_lake.add(["runs"], "lake")
    versions = {table: Lake("lake").snapshot(table).version for table in COLUMNS}
    read: list[object] = []
    real = JournalReader.columns
    monkeypatch.setattr(JournalReader, "columns", lambda *given, **named: read.append(given) or real(*given, **named))
    assert into_lake.add(["runs"], "lake") == into_lake.Added([], 1, 0, [])
    assert {table: Lake("lake").snapshot(table).version for table in COLUMNS} == versions
    assert not read


def test_run_comes_out_as_it_went_in() -> None:
    """Numbers with their types, NaN, infinities, samples, texts, nested settings, results, status: record by record."""
    run = written("a")
    into_lake.add([str(run)], "lake")
    own, back = trackers.load(str(run)), trackers.load("lake:lake#digits/a")
    assert back.config == own.config
    assert back.summary == own.summary
    assert back.status == own.status
    assert [records.encode(one) for one in back.records()] == [records.encode(one) for one in own.records()]
    for table in ("metrics", "system"):
        mine, theirs = getattr(own, table)().table, getattr(back, table)().table
        assert theirs.select(mine.column_names).to_pandas().equals(mine.to_pandas())
        assert theirs.select(mine.column_names).schema == mine.schema


@pytest.mark.slow
def test_rewound_steps_are_not_in_the_lake() -> None:
    """A run that was resumed from an earlier step is replaced by what counts now."""
    code = """
import trackers
run = trackers.init("json", project="p", id="r", resume="allow")
for step in range({0}):
    run.log({{"loss": float(step)}}, step=step)
run.finish()
"""
    forked.run([sys.executable, "-c", code.format(10)], check=True)
    into_lake.add(["runs"], "lake")
    resumed = code.replace('resume="allow"', 'resume_from="r?_step=5"').replace("range({0})", "range(5, 8)")
    forked.run([sys.executable, "-c", resumed.format(0)], check=True)
    into_lake.add(["runs"], "lake")
    query = "select run, step, value from metrics where name = 'loss' order by all"
    assert trackers.sql(query, ["lake:lake"]).to_pylist() == trackers.sql(query, ["runs"]).to_pylist()


@pytest.mark.slow
def test_same_id_in_two_projects_stays_two_runs() -> None:
    """In a lake a run is known by project and id; in SQL it is then called so, as over directories."""
    written("a", 2)
    written("a", 3, project="other")
    written("b", 2)
    into_lake.add(["runs"], "lake")
    query = "select run, name, step, value from metrics order by all"
    over_runs = trackers.sql(query, ["runs"]).to_pandas()
    assert trackers.sql(query, ["lake:lake"]).to_pandas().equals(over_runs)
    assert set(over_runs["run"]) == {"digits/a", "other/a", "b"}


def test_another_run_of_that_name_is_left_out_unless_it_is_to_replace() -> None:
    """Project, id and beginning say which run it is: another one is named, and nothing is overwritten."""
    written("a", 2)
    into_lake.add(["runs"], "lake")
    shutil.rmtree("runs")
    written("a", 7, created=T0 + 60)
    done = into_lake.add(["runs"], "lake")
    assert "another run digits/a" in done.problems[0]
    assert "--replace" in done.problems[0]
    assert len(trackers.sql("select * from metrics where name = 'n'", ["lake:lake"])) == 2
    assert into_lake.add(["runs"], "lake", replace=True).added == [("digits", "a")]
    assert len(trackers.sql("select * from metrics where name = 'n'", ["lake:lake"])) == 7


def test_damaged_run_is_named_and_the_others_come_in() -> None:
    """What can't be read is left out, with the reason."""
    written("a")
    run = written("b")
    (run / "streams/rank-0.1.jsonl").unlink()
    (run / "streams/rank-0.1.jsonl").symlink_to("/etc/passwd")
    done = into_lake.add(["runs"], "lake")
    assert done.added == [("digits", "a")]
    assert len(done.problems) == 1


def test_runs_of_other_sources_come_in() -> None:
    """What a reader reads, with the print that it knows of it."""
    Path("run.json").write_text(json.dumps({"metrics": {"loss": [[0, 1.5], [1, 0.5]]}, "name": "x"}))
    Path("m.csv").write_text("step,loss\n0,1.5\n1,0.5\n")
    assert len(into_lake.add(["csv:m.csv"], "lake").added) == 1
    assert into_lake.add(["csv:m.csv"], "lake").unchanged == 1
    assert trackers.sql("select step, value from metrics order by 1", ["lake:lake"]).to_pylist() == [
        {"step": 0, "value": 1.5}, {"step": 1, "value": 0.5},
    ]  # fmt: skip


def test_what_is_not_there_makes_no_lake() -> None:
    """A source is looked for before the lake is begun."""
    with pytest.raises(NotFound):
        into_lake.add(["nothing-here"], "lake")
    assert not Path("lake").exists()
    written("a")
    with pytest.raises(UsageError, match="has files and is no lake"):
        into_lake.add(["runs"], "runs")


ADD = """
import sys
from trackers_lake.into_lake import add
from trackers.support.failpoints import arm
arm(sys.argv[1])
add(["runs"], "lake")
"""


@pytest.mark.slow
@pytest.mark.parametrize("point", ["lake.table.before=kill:1", "lake.table.before=kill:4", "lake.commit.after=kill:1",
                                   "lake.commit.before=kill:5", "lake.commit.after=kill:6"])  # fmt: skip
def test_killed_and_repeated_is_exactly_once(point: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever it is killed: no run is listed that isn't whole, and the next call has all tables as they must be."""
    written("a")
    written("b")
    into_lake.add(["runs"], "straight")
    monkeypatch.setenv("PYTHONPATH", python_path()["PYTHONPATH"])
    assert forked.run([sys.executable, "-c", ADD, point]).returncode == -signal.SIGKILL
    seen = {row["run"] for row in rows("lake", "runs")} if Lake("lake").fingerprints() else set()
    if seen:
        assert rows("lake", "metrics") == rows("straight", "metrics")
    into_lake.add(["runs"], "lake")
    for table in COLUMNS:
        assert rows("lake", table) == rows("straight", table), table


def test_only_what_a_killed_call_did_not_reach_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables that have a run's rows in this state aren't written again."""
    written("a")
    monkeypatch.setenv("PYTHONPATH", python_path()["PYTHONPATH"])
    assert forked.run([sys.executable, "-c", ADD, "lake.table.before=kill:4"]).returncode == -signal.SIGKILL
    into_lake.add(["runs"], "lake")
    assert {table: Lake("lake").snapshot(table).version for table in COLUMNS} == dict.fromkeys(COLUMNS, 0)


def test_short_files_are_joined_when_there_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """But for those of runs that go on, which are replaced soon."""
    monkeypatch.setattr(into_lake, "MANY_SHORT", 4)
    written("live", status="running")
    into_lake.add(["runs/digits/live"], "lake")
    for number in range(3):
        written(f"r{number}")
        into_lake.add([f"runs/digits/r{number}"], "lake")
    assert len(Lake("lake").snapshot("metrics").files) == 4
    written("r3")
    into_lake.add(["runs/digits/r3"], "lake")
    files = [sorted(run for _, run in file.runs or {}) for file in Lake("lake").snapshot("metrics").files.values()]
    assert sorted(files) == [["live"], ["r0", "r1", "r2", "r3"]]


def test_runs_that_go_on_are_known_without_a_look_at_their_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each addition would read the table of runs, which has a file for each of them."""
    monkeypatch.setattr(into_lake, "MANY_SHORT", 2)
    for number in range(4):
        written(f"r{number}", status="running")
        into_lake.add([f"runs/digits/r{number}"], "lake")
    read: list[str] = []
    rows_of = Lake.rows
    monkeypatch.setattr(
        Lake, "rows", lambda self, table, *rest, **how: read.append(table) or rows_of(self, table, *rest, **how)
    )
    written("r0", 9, status="running")
    into_lake.add(["runs/digits/r0"], "lake")
    assert read == []
    assert Lake("lake").running() == {("digits", f"r{number}") for number in range(4)}
    written("r0", 9)
    into_lake.add(["runs/digits/r0"], "lake")
    assert Lake("lake").running() == {("digits", f"r{number}") for number in range(1, 4)}


@pytest.mark.slow
def test_a_lake_is_a_source_of_another() -> None:
    """The rows are the same there; the lake itself is refused."""
    written("a")
    into_lake.add(["runs"], "lake")
    assert into_lake.add(["lake:lake"], "second").added == [("digits", "a")]
    for table in ("metrics", "system", "config", "summary", "events"):
        assert rows("second", table) == rows("lake", table)
    assert into_lake.add(["runs"], "second").problems == []
    with pytest.raises(UsageError, match="is the lake itself"):
        into_lake.add(["lake:lake#digits/a"], "lake")
