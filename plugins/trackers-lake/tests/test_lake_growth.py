"""A run that goes on brings its new rows as files of their own; whatever else happens to it replaces it."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lake_support import held, points
from trackers_lake import into_lake, journals, tables
from trackers_lake.delta import DeltaTable
from trackers_lake.schema import COLUMNS
from trackers_lake.tables import Lake

import trackers
from tests import forked
from tests.analysis.support import T0, write_run
from trackers.analysis.collect import gather
from trackers.analysis.run_stats import ResourceUse
from trackers.benchmark.speed import Speed
from trackers.editing import edits
from trackers.journal.run_directory import RunDirectory
from trackers.object_storage.store import Store
from trackers.records import Finish, Metrics, Record, Start, Text, encode
from trackers.testing.driver import python_path

A, B = ("digits", "a"), ("digits", "b")


def live(run_id: str, steps: int, *, status: str = "running", sampled: int = 0, **more: Any) -> Path:
    """A run that goes on: its numbers, a text at each third step, and samples in a stream of their own."""
    numbers = [(step, step, {"loss": 1.0 / (step + 1), "n": step}) for step in range(steps)]
    texts: list[Record] = [
        Text(step=step, time=T0 + step, values={"note": f"at {step}"}) for step in range(0, steps, 3)
    ]
    path = write_run(run_id, numbers, config={"lr": 0.1}, more=texts, status=status, **more)
    samples = [Metrics(step=None, time=T0 + k, values={"system.cpu": float(k)}) for k in range(sampled)]
    if samples:
        (path / "streams/sampler-0.1.jsonl").write_bytes(b"".join(map(encode, samples)))
    return path


def longer(path: Path, first: int, steps: int) -> None:
    """The run has gone on: its journal has what came behind what was there."""
    new: list[Record] = [Text(step=first, time=T0 + first, values={"note": f"on from {first}"})]
    new += [
        Metrics(step=at, time=T0 + at, values={"loss": 1.0 / (at + 1), "n": at}) for at in range(first, first + steps)
    ]
    for name, records in (
        ("rank-0.1", new),
        ("sampler-0.1", [Metrics(step=None, time=T0 + first, values={"cpu": 1.0})]),
    ):
        if (stream := path / f"streams/{name}.jsonl").exists():
            with stream.open("ab") as file:
                file.write(b"".join(map(encode, records)))


def tag(path: Path, word: str) -> None:
    """Give a run a tag."""
    edits.edit(RunDirectory(path), lambda now: msgspec.structs.replace(now, tags=(word,)))


def files(table: str) -> int:
    return len(Lake("lake").snapshot(table).files)


SPEED = ("steps_per_s", "samples_per_s", "tokens_per_s", "gpu_percent", "memory_gb", "memory_kind", "energy_j")


def content(where: str, *, besides: Sequence[str] = ()) -> dict[str, Any]:
    """All rows that queries see, but for some columns of the runs, and all records that readers read."""
    asked = {
        table: trackers.sql(f"select * from {table} order by all", [f"lake:{where}"]).to_pylist() for table in COLUMNS
    }
    for row in asked["runs"]:
        for name in ("source", *besides):
            row.pop(name, None)
    runs = sorted(trackers.load_all([f"lake:{where}"]), key=str)
    records = [encode(record) for run in runs for record in run.records()]
    return {**asked, "records": records}


def assert_as_at_once(name: str = "straight", *, besides: Sequence[str] = ()) -> None:
    """The lake has what one has into which the same runs were put just now."""
    into_lake.add(["runs"], name)
    one, other = (json.dumps(content(where, besides=besides), default=str) for where in ("lake", name))
    assert one == other


def test_new_rows_of_a_run_become_files_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither those that are there are written again, whichever of its streams grew, nor those of other runs."""
    live("a", 300, sampled=10)
    live("b", 300)
    into_lake.add(["runs"], "lake")
    live("a", 303, sampled=12)
    written: list[int] = []
    real = Store.put
    monkeypatch.setattr(
        Store, "put", lambda self, name, new: written.append(name.startswith("metrics/part")) or real(self, name, new)
    )
    into_lake.add(["runs"], "lake")
    assert (written.count(True), files("metrics"), files("system"), files("events")) == (1, 2, 2, 2)
    new = list(Lake("lake").snapshot("metrics").files.values())[-1]
    assert (new.rows, list(new.runs or {})) == (6, [A])
    assert_as_at_once()


@pytest.mark.parametrize("change", ["rewound", "other values", "other kind", "earlier stream"])
def test_run_whose_rows_changed_is_replaced(change: str) -> None:
    """Steps taken back, values that are others now, or a stream before those that were there."""
    path = live("a", 20, sampled=3)
    into_lake.add(["runs"], "lake")
    live("a", 25, sampled=4)
    into_lake.add(["runs"], "lake")
    assert files("metrics") == 2
    if change == "rewound":
        live("a", 12, sampled=4)
    elif change == "other values":
        stream = path / "streams/rank-0.1.jsonl"
        stream.write_bytes(stream.read_bytes().replace(b'"loss":0.5', b'"loss":0.25'))
    elif change == "other kind":
        write_run(
            "a", [(step, step, {"loss": 1.0, "n": step + step // 19 / 2}) for step in range(30)], status="running"
        )
    else:
        (path / "streams/node-0.1.jsonl").write_bytes(encode(Metrics(step=1, time=T0, values={"c": 1.0})))
    into_lake.add(["runs"], "lake")
    if change != "earlier stream":
        assert files("metrics") == 1
    assert_as_at_once()


def test_edit_writes_one_row_of_one_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tag of a run that shares its files with hundreds: no file of numbers is touched, nor are its settings."""
    monkeypatch.setattr(tables, "RUNS_IN_FILE", 4)
    monkeypatch.setattr(into_lake, "BATCH_RUNS", 4)
    for number in range(12):
        write_run(f"r{number:02}", [(step, step, {"loss": 1.0}) for step in range(50)], config={"lr": number})
    into_lake.add(["runs"], "lake")
    before = {table: Lake("lake").snapshot(table) for table in COLUMNS}
    tag(Path("runs/digits/r05"), "best")
    assert into_lake.add(["runs"], "lake").added == [("digits", "r05")]
    after = {table: Lake("lake").snapshot(table) for table in COLUMNS}
    assert [table for table in COLUMNS if after[table].version != before[table].version] == ["events", "runs"]
    new = [file for path, file in after["runs"].files.items() if path not in before["runs"].files]
    assert sorted(file.rows or 0 for file in new) == [1, 3]
    assert [row["tags"] for row in content("lake")["runs"] if row["run"] == "r05"] == [["best"]]
    Lake("lake").compact("runs")
    assert max(file.rows or 0 for file in Lake("lake").snapshot("runs").files.values()) == 4
    assert_as_at_once()


def test_parts_of_a_run_are_joined_when_they_are_many_and_at_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its long files stay as they are meanwhile."""
    monkeypatch.setattr(tables, "MANY_PARTS", 8)
    counts = []
    for steps in range(100, 3100, 100):
        live("a", steps)
        into_lake.add(["runs"], "lake")
        counts.append(files("metrics"))
    assert 2 < max(counts) <= 16
    live("a", 3100, status="finished")
    into_lake.add(["runs"], "lake")
    assert max(files("metrics"), files("events")) <= 8
    live("b", 100)
    into_lake.add(["runs"], "lake")
    live("b", 200, status="finished")
    into_lake.add(["runs"], "lake")
    assert len([file for file in Lake("lake").snapshot("metrics").files.values() if B in (file.runs or {})]) == 1
    assert_as_at_once()


@pytest.mark.parametrize("work", ["parts", "compact"])
def test_files_are_joined_once_though_others_commit_meanwhile(work: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where many write, another always commits before the files are joined: they are put in all the same."""
    monkeypatch.setattr(tables, "MANY_PARTS", 8 if work == "parts" else 128)
    joined: list[int] = []
    real = Lake._join

    def join(lake: Lake, table: str, parts: Any) -> Any:
        joined.append(len(parts))
        other = ("other", f"r{len(joined)}")
        if len(joined) < 3:
            Lake("lake").append("metrics", points(other, 1), {other: (None, "f")})
        return real(lake, table, parts)

    monkeypatch.setattr(Lake, "_join", join)
    lake = Lake("lake", make=True)
    for turn in range(10):
        known = (None if not turn else f"{turn:016x} {turn} {turn}", f"{turn + 1:016x} {turn + 1} {turn + 1}")
        assert lake.append("metrics", points(A, 1), {A: known})
    if work == "compact":
        lake.compact("metrics")
    assert joined == ([9] if work == "parts" else [10, 2, 2])
    assert held("lake")[A] == 20
    assert len([file for file in lake.snapshot("metrics").files.values() if A in (file.runs or {})]) <= 2


def test_files_of_many_writers_stay_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs that are put in one by one for hours share a bound of the table's files, beside that of each run."""
    monkeypatch.setattr(tables, "MANY_FILES", 40)
    lake, runs, counts = Lake("lake", make=True), [("digits", f"r{number}") for number in range(6)], []
    for turn in range(60):
        for run in runs:
            known = (None if not turn else f"{turn:016x} {turn} {turn}", f"{turn + 1:016x} {turn + 1} {turn + 1}")
            assert lake.append("metrics", points(run, 1), {run: known})
        counts.append(files("metrics"))
    assert max(counts) <= 6 * 16
    assert held("lake") == dict.fromkeys(runs, 120)


def test_files_that_runs_share_are_not_joined_whenever_one_of_them_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """They would be written again for each; where the last one ends they are."""
    joined: list[int] = []
    real = Lake._join
    monkeypatch.setattr(Lake, "_join", lambda self, table, parts: joined.append(len(parts)) or real(self, table, parts))
    paths = [live(f"r{number}", 5) for number in range(4)]
    into_lake.add(["runs"], "lake")
    for number, path in enumerate(paths):
        for other in paths[number:]:
            longer(other, 5 * number + 5, 5)
        with (path / "streams/rank-0.1.jsonl").open("ab") as file:
            file.write(encode(Finish(time=T0 + 99, status="finished", exit_code=0)))
        assert not joined
        into_lake.add(["runs"], "lake")
    assert joined
    assert files("metrics") == 1
    assert_as_at_once()


def test_writers_of_one_run_that_grows_leave_each_row_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who finds that another has put rows in meanwhile replaces the run."""
    live("a", 10)
    into_lake.add(["runs"], "lake")
    live("a", 20)
    real, raced = Lake.append, []

    def late(self: Lake, *given: Any) -> bool:
        if not raced:
            raced.append(True)
            into_lake.add(["runs"], "lake")
        return real(self, *given)

    monkeypatch.setattr(Lake, "append", late)
    into_lake.add(["runs"], "lake")
    assert raced
    assert held("lake") == {A: 40}
    assert_as_at_once()


def test_answer_that_is_lost_leaves_each_row_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The commit was made: it isn't made again, not even where its file was joined with others meanwhile."""
    live("a", 10)
    into_lake.add(["runs"], "lake")
    live("a", 20)
    real, lost = DeltaTable.commit, []

    def commit(table: DeltaTable, *given: Any, **named: Any) -> bool:
        done = real(table, *given, **named)
        if not lost:
            lost.append(Lake("lake").compact("metrics"))
            raise tables.Unavailable("cut off")
        return done

    monkeypatch.setattr(DeltaTable, "commit", commit)
    into_lake.add(["runs"], "lake")
    assert held("lake") == {A: 40}
    assert_as_at_once()


ADD = """
import sys
from trackers_lake import tables
from trackers_lake.into_lake import add
from trackers.support.failpoints import arm
tables.MANY_PARTS = 2
arm(sys.argv[1])
add(["runs"], "lake")
"""


@pytest.mark.slow
@pytest.mark.parametrize("point", ["lake.file.before", "lake.commit.before", "lake.commit.after", "lake.parts.before"])
def test_killed_while_a_run_grows(point: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed at each table's turn, and repeated: each row is there once."""
    monkeypatch.setenv("PYTHONPATH", python_path()["PYTHONPATH"])
    died = 0
    for turn in range(1, 9):
        live("a", 10 * turn, sampled=2 * turn)
        passing = 1 if point == "lake.parts.before" else turn
        code = forked.run([sys.executable, "-c", ADD, f"{point}=kill:{passing}"]).returncode
        assert code in (0, -signal.SIGKILL)
        died += code != 0
        into_lake.add(["runs"], "lake")
        assert held("lake") == {A: 20 * turn}
    assert died
    assert_as_at_once()


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 40), st.integers(0, 6), st.booleans()), max_size=8))
def test_lake_has_what_its_runs_have_now(tmp_path_factory: pytest.TempPathFactory, deeds: list[Any]) -> None:
    """However they grew, shrank, ended, went on and were edited in between."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("growth"))
        patch.setattr(tables, "MANY_PARTS", 3)
        for run_id, steps, sampled, ended in [("a", 1, 0, False), *deeds]:
            path = live(run_id, steps, sampled=sampled, status="finished" if ended else "running")
            if sampled == 5:
                tag(path, f"t{steps}")
            into_lake.add(["runs"], "lake")
        assert_as_at_once()


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 40), st.integers(0, 6), st.integers(0, 9)), max_size=8))
def test_lake_has_what_its_runs_have_now_where_new_records_alone_are_read(
    tmp_path_factory: pytest.TempPathFactory, deeds: list[Any]
) -> None:
    """However they grew, shrank, ended, went on and were edited, and whoever else put them in, in between."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("growth"))
        patch.setattr(tables, "MANY_PARTS", 3)
        patch.setattr(into_lake, "AT_ONCE", 1)
        looks: into_lake.Looks = {}
        lake = Lake("lake", make=True)
        for run_id, steps, sampled, chance in [("a", 1, 0, 1), *deeds]:
            path = Path("runs/digits", run_id)
            if chance > 3 and path.exists() and trackers.load(str(path)).status == "running":
                longer(path, 50 + steps, steps)
            else:
                live(run_id, steps, sampled=sampled, status="finished" if chance == 0 else "running")
            if sampled == 5:
                tag(path, f"t{steps}")
            if chance == 9:
                into_lake.add(["runs"], "lake")
            into_lake.fill(lake, list(into_lake.candidates("runs", None)), looks=looks)
        assert_as_at_once(besides=SPEED)
        assert_facts_as_at_once()


def assert_facts_as_at_once() -> None:
    """What lists show of a run is what reading it whole says, but for speed and use, and steps that came twice."""
    told = [{run.id: run for run in gather([source]).runs} for source in ("lake:lake", "lake:straight")]
    for key, facts in told[0].items():
        one, other = (msgspec.structs.replace(stats[key], source="", iterations=0, speed=Speed(), use=ResourceUse())
                      for stats in (told[0], told[1]))  # fmt: skip
        assert one.folds.keys() == facts.folds.keys()
        for name, fold in one.folds.items():
            assert fold.mean == pytest.approx(other.folds[name].mean)
            fold.mean = other.folds[name].mean
        assert one == other


def test_grown_run_is_read_from_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a long run the new lines alone are read and put in, until it is half as long again, or has ended."""
    looks: into_lake.Looks = {}
    lake = Lake("lake", make=True)
    whole: list[str] = []
    real = journals.read_whole
    monkeypatch.setattr(journals, "read_whole", lambda run: whole.append(run.id) or real(run))
    found: list[int] = []
    reading = journals.blocks

    def counted(path: Path, offset: int, damaged: Any) -> Iterator[Any]:
        for batch, end in reading(path, offset, damaged):
            found.append(len(batch))
            yield batch, end

    monkeypatch.setattr(journals, "blocks", counted)
    path, at, read = live("a", 300, sampled=3), 300, []
    for more in (0, 3, 3, 0, 150, 3):
        found.clear()
        if more:
            longer(path, at, more)
        at += more
        into_lake.fill(lake, list(into_lake.candidates("runs", None)), looks=looks)
        read.append((len(whole), sum(found)))
    assert read == [(1, 0), (1, 5), (1, 5), (1, 0), (1, 152), (2, 0)]
    assert (files("metrics"), files("system")) == (5, 5)
    live("a", 466, status="finished", sampled=4)
    into_lake.fill(lake, list(into_lake.candidates("runs", None)), looks=looks)
    assert (len(whole), looks) == (3, {})
    assert_as_at_once()


@pytest.mark.parametrize("deed", ["other writer", "other kind", "new stream", "damage", "zombie"])
def test_run_that_did_not_only_grow_is_read_whole(deed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another has put some of it in, before or while new rows are; a kind that changes; a stream more."""
    looks: into_lake.Looks = {}
    lake = Lake("lake", make=True)
    path = live("a", 100)
    into_lake.fill(lake, list(into_lake.candidates("runs", None)), looks=looks)
    longer(path, 100, 3)
    into_lake.fill(lake, list(into_lake.candidates("runs", None)), looks=looks)
    assert looks[A].size > looks[A].whole
    longer(path, 103, 3)
    stream = path / "streams/rank-0.1.jsonl"
    if deed == "other writer":
        real, raced = Lake.append, []

        def late(self: Lake, *given: Any) -> bool:
            if not raced:
                raced.append(True)
                into_lake.add(["runs"], "lake")
            return real(self, *given)

        monkeypatch.setattr(Lake, "append", late)
    elif deed == "other kind":
        with stream.open("ab") as file:
            file.write(encode(Metrics(step=200, time=T0 + 200, values={"loss": 1.0, "n": 0.5})))
    elif deed == "new stream":
        (path / "streams/node-0.1.jsonl").write_bytes(encode(Metrics(step=1, time=T0, values={"c": 1.0})))
    elif deed == "damage":
        with stream.open("ab") as file:
            file.write(b'{"kind":"metrics","st\n' + encode(Metrics(step=200, time=T0 + 200, values={"loss": 1.0})))
    else:
        start = Start(time=T0 + 300, rank=0, attempt=2, world_size=1, pid=1)
        more = Metrics(step=107, time=T0 + 301, values={"loss": 0.0})
        (path / "streams/rank-0.2.jsonl").write_bytes(encode(start) + encode(more))
        into_lake.fill(lake, list(into_lake.candidates("runs", None)), looks=looks)
        with stream.open("ab") as file:
            file.write(encode(Metrics(step=108, time=T0 + 302, values={"loss": 5.0})))
    into_lake.fill(lake, list(into_lake.candidates("runs", None)), looks=looks)
    assert_as_at_once()


def test_log_forgets_what_was_replaced_a_week_ago(tmp_path: Path) -> None:
    """A checkpoint names files that were removed for so long alone: those of a lake of any age can be read."""
    lake = Lake(tmp_path / "lake", make=True)
    lake.put("metrics", points(A), {A: "m"})
    table = lake.tables["metrics"]
    now = time.time()
    gone = {f"part-{age}.parquet": now - age * tables.DAY_S for age in (0, 1, 6, 8, 400)}
    table.checkpoint(table.snapshot()._replace(gone=gone))
    assert set(DeltaTable(table.store, "metrics", tables.KEPT_S).snapshot().gone) == {
        f"part-{age}.parquet" for age in (0, 1, 6)
    }


def test_old_files_go_by_themselves_once_a_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that were replaced a week ago, when short files are joined; other files, and all for a day, stay."""
    monkeypatch.setattr(into_lake, "MANY_SHORT", 2)
    stays_for(7, monkeypatch)


@pytest.mark.parametrize("keep", [2, 7, 30])
def test_old_files_go_by_themselves_where_nothing_is_joined(keep: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that were replaced as long ago as the lake is to keep them, with checkpoints between."""
    monkeypatch.setattr(tables, "CHECKPOINT_EVERY", 1)
    stays_for(keep, monkeypatch)


def stays_for(keep: int, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [time.time() - 90 * tables.DAY_S]
    monkeypatch.setattr(time, "time", lambda: now[0])

    def added() -> set[Path]:
        for run_id in "ab":
            write_run(run_id, [(step, step, {"loss": now[0]}) for step in range(3)], created=T0)
            into_lake.add([f"runs/digits/{run_id}"], "lake", keep_s=keep * tables.DAY_S)
        return set(Path("lake/metrics").glob("*.parquet"))

    first = added()
    for path in first:
        os.utime(path, (now[0], now[0]))
    now[0] += 3600
    assert first <= added()
    now[0] += (keep - 0.5) * tables.DAY_S
    assert first <= added()
    now[0] += tables.DAY_S
    assert not first & added()
    assert_as_at_once()
