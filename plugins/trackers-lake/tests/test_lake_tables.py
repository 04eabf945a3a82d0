"""A lake's tables: rows replaced run by run, whatever files they lie in, exactly once after any kill."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from lake_support import held, many, points
from trackers_lake import schema
from trackers_lake.delta import DataFile, DeltaTable, Key
from trackers_lake.tables import Lake

from tests import ROOT, forked
from trackers.errors import Damaged, NotFound, Unavailable, UsageError
from trackers.testing.driver import python_path

A, B, C = ("p", "a"), ("p", "b"), ("q/r", "ä 'b'#%2F")


def put(lake: Lake, runs: dict[Key, int], mark: str = "m") -> None:
    lake.put("metrics", many(runs), dict.fromkeys(runs, mark))


def test_runs_rows_are_replaced_and_others_stay(tmp_path: Path) -> None:
    """The files that a run shares with others are rewritten without it, in the commit that brings its new rows."""
    lake = Lake(tmp_path / "lake", make=True)
    put(lake, {A: 5, B: 6, C: 7})
    put(lake, {B: 3}, "other")
    assert held(tmp_path / "lake") == {A: 10, B: 6, C: 14}
    assert lake.fingerprints("metrics") == {A: "m", B: "other", C: "m"}
    assert lake.snapshot("metrics").version == 1


def test_a_run_without_rows_is_taken_out(tmp_path: Path) -> None:
    """No rows of a run mean that the table has none; where there were none, nothing is committed."""
    lake = Lake(tmp_path / "lake", make=True)
    put(lake, {A: 5})
    empty = schema.arrow_schema(schema.COLUMNS["metrics"]).empty_table()
    lake.put("metrics", empty, {A: "", B: ""})
    assert held(tmp_path / "lake") == {}
    version = lake.snapshot("metrics").version
    assert lake.put("metrics", empty, {A: ""}).version == version


def test_rows_of_one_run_are_found_without_the_others(tmp_path: Path) -> None:
    """Of many runs in a file only the row groups are read that may have the one; the values are its own."""
    lake = Lake(tmp_path / "lake", make=True)
    put(lake, {A: 5, B: 6, C: 7})
    found = lake.rows_of("metrics", C, ["name", "row", "value"]).sort_by([("name", "ascending"), ("row", "ascending")])
    assert found.column("value").to_pylist() == [1.0 + row for row in range(7)] * 2
    assert len(lake.rows_of("metrics", ("p", "c"))) == 0


def test_row_groups_are_in_the_order_of_names_then_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A group has whole runs as far as they fit, and in it one metric of all of them lies together."""
    monkeypatch.setattr(schema, "GROUP_ROWS", 40)
    lake = Lake(tmp_path / "lake", make=True)
    put(lake, {("p", "long"): 50, A: 10, B: 10, C: 5})
    [file] = lake.snapshot("metrics").files.values()
    source = pq.ParquetFile(tmp_path / "lake" / "metrics" / file.path)
    groups = [source.read_row_group(at).to_pylist() for at in range(source.num_row_groups)]
    assert [sorted({row["run"] for row in group}) for group in groups] == [
        ["a", "b"], ["long"], ["long"], ["long"], [C[1]],
    ]  # fmt: skip
    places = [(row["name"], row["run"], row["row"]) for row in groups[0]]
    assert places == sorted(places)


def test_two_writers_of_one_run_leave_it_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two commits upon one version the second is planned anew upon the first."""
    one, other = Lake(tmp_path / "lake", make=True), Lake(tmp_path / "lake")
    put(one, {A: 2})
    whole = DeltaTable.commit
    raced = []

    def slow(self: DeltaTable, *given: object, **named: object) -> bool:
        if not raced:
            raced.append(True)
            put(other, {A: 5, B: 5}, "theirs")
        return bool(whole(self, *given, **named))  # type: ignore[arg-type]

    monkeypatch.setattr(DeltaTable, "commit", slow)
    put(one, {A: 3, C: 1}, "ours")
    assert held(tmp_path / "lake") == {A: 6, B: 10, C: 2}
    assert one.fingerprints("metrics") == {A: "ours", B: "theirs", C: "ours"}


def answers_lost(monkeypatch: pytest.MonkeyPatch, *then: Callable[[], object]) -> None:
    """Have the first commit made, something else done, and its answer lost on its way."""
    waiting = [True]
    real = DeltaTable.commit

    def commit(table: DeltaTable, *given: Any, **named: Any) -> bool:
        done = real(table, *given, **named)
        if waiting:
            waiting.clear()
            for work in then:
                work()
            raise Unavailable("cut off")
        return done

    monkeypatch.setattr(DeltaTable, "commit", commit)


def test_commit_whose_answer_was_lost_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log says that it was made: neither another commit nor another file is."""
    place = tmp_path / "lake"
    lake = Lake(place, make=True)
    put(lake, {A: 5, B: 5})
    answers_lost(monkeypatch)
    done = lake.put("metrics", many({A: 3, C: 3}), {A: "new", C: "new"})
    assert (done.version, done.files, done.rows) == (1, 1, 12)
    assert Lake(place).snapshot("metrics").version == 1
    assert len(list((place / "metrics").glob("*.parquet"))) == 3
    assert held(place) == {A: 6, B: 10, C: 6}


def test_commit_whose_answer_was_lost_holds_though_others_went_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Joined with others' rows meanwhile, what it put in is there once."""
    place = tmp_path / "lake"
    lake = Lake(place, make=True)
    put(lake, {A: 5, B: 5})
    answers_lost(monkeypatch, lambda: Lake(place).compact("metrics"), lambda: put(Lake(place), {B: 2}, "theirs"))
    put(lake, {A: 3, C: 3}, "new")
    assert held(place) == {A: 6, B: 4, C: 6}
    assert lake.fingerprints("metrics") == {A: "new", B: "theirs", C: "new"}


def test_commit_that_was_not_made_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the store took nothing, the call says so, and the table is as before."""

    def commit(*_given: object, **_named: object) -> bool:
        raise Unavailable("cut off")

    place = tmp_path / "lake"
    lake = Lake(place, make=True)
    put(lake, {A: 5})
    monkeypatch.setattr(DeltaTable, "commit", commit)
    with pytest.raises(Unavailable, match="cut off"):
        put(lake, {A: 3}, "new")
    assert held(place) == {A: 10}


CROWD = """
import sys
from lake_support import points
from trackers_lake.tables import Lake
lake = Lake(sys.argv[1])
for number in range(8):
    key = ("p", f"{sys.argv[2]}{number}")
    lake.put("metrics", points(key, 3), {key: "m"})
    lake.put("metrics", points(("p", "shared"), 4), {("p", "shared"): "m"})
"""


@pytest.mark.slow
def test_writers_at_once_lose_and_double_nothing(tmp_path: Path) -> None:
    """Three processes put in runs of their own, and one run that all of them have."""
    Lake(tmp_path / "lake", make=True)
    command = [sys.executable, "-c", CROWD, str(tmp_path / "lake")]
    working = [subprocess.Popen([*command, name], cwd=ROOT, env=python_path()) for name in "abc"]
    assert [one.wait(120) for one in working] == [0, 0, 0]
    expected = {("p", f"{name}{number}"): 6 for name in "abc" for number in range(8)}
    assert held(tmp_path / "lake") == {**expected, ("p", "shared"): 8}


def test_files_are_joined_and_old_ones_deleted(tmp_path: Path) -> None:
    """Short files become one with the same rows; the old ones stay until they are unused for long enough."""
    lake = Lake(tmp_path / "lake", make=True)
    for number in range(5):
        put(lake, {("p", f"r{number}"): 4})
    before = held(tmp_path / "lake")
    assert lake.compact("metrics") == (5, 1)
    assert held(tmp_path / "lake") == before
    assert lake.vacuum() == []
    assert len(list((tmp_path / "lake/metrics").glob("*.parquet"))) == 6
    deleted = lake.vacuum(0)
    assert len(deleted) == 5
    assert held(tmp_path / "lake") == before
    assert Lake(tmp_path / "lake").fingerprints("metrics") == dict.fromkeys(before, "m")


def test_removed_run_is_nowhere_after_a_vacuum(tmp_path: Path) -> None:
    """Neither its rows nor its name: not in a file, and not in the log."""
    lake = Lake(tmp_path / "lake", make=True)
    put(lake, {A: 4, ("p", "secretrun"): 4})
    assert lake.remove([("p", "secretrun"), ("p", "unknown")]) == {("p", "secretrun"): 1, ("p", "unknown"): 0}
    lake.vacuum(0)
    assert held(tmp_path / "lake") == {A: 8}
    for path in (tmp_path / "lake").rglob("*"):
        assert not path.is_file() or b"secretrun" not in path.read_bytes(), path


def before_commit(monkeypatch: pytest.MonkeyPatch, *works: Callable[[], object]) -> None:
    """Have something done just before a commit, and something else before the next."""
    waiting = list(works)
    real = DeltaTable.commit

    def commit(table: DeltaTable, *given: Any, **named: Any) -> bool:
        if waiting:
            waiting.pop(0)()
        return real(table, *given, **named)

    monkeypatch.setattr(DeltaTable, "commit", commit)


def replaced_twice_and_swept(place: Path) -> None:
    """Another process puts in a run twice, and deletes at once what is not used any more."""
    other = Lake(place)
    put(other, {B: 5})
    put(other, {B: 6})
    other.vacuum(0)


@pytest.mark.parametrize("first", [False, True])
def test_vacuum_at_once_takes_nothing_that_a_writer_commits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: bool
) -> None:
    """A file that is written and in no table yet: deleted, it is written anew. So are those with others' rows."""
    place = tmp_path / "lake"
    lake = Lake(place, make=True)
    put(lake, {A: 5, B: 4} if not first else {("p", "z"): 4})
    before_commit(monkeypatch, lambda: Lake(place).vacuum(0))
    put(lake, {A: 3, C: 7})
    assert held(place) == {A: 6, C: 14, **({B: 8} if not first else {("p", "z"): 8})}


def test_commit_whose_number_was_forgotten_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its version's number is free again, for a checkpoint sums the log up: there nobody would read it."""
    place = tmp_path / "lake"
    lake = Lake(place, make=True)
    put(lake, {A: 5, B: 4})
    lake.snapshot("metrics")
    before_commit(monkeypatch, lambda: replaced_twice_and_swept(place))
    put(lake, {A: 3, C: 7})
    assert held(place) == {A: 6, B: 12, C: 14}
    before_commit(monkeypatch, lambda: replaced_twice_and_swept(place))
    lake.remove([A])
    assert held(place) == {B: 12, C: 14}


def test_joining_goes_on_after_a_vacuum_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files that it was about to read were replaced and deleted."""
    place = tmp_path / "lake"
    lake = Lake(place, make=True)
    for key in (A, B, C):
        put(lake, {key: 4})
    real, done = Lake.runs_in, []

    def runs_in(self: Lake, table: str, file: DataFile) -> Any:
        if self is lake and not done:
            done.append(True)
            replaced_twice_and_swept(place)
        return real(self, table, file)

    monkeypatch.setattr(Lake, "runs_in", runs_in)
    lake.compact("metrics")
    assert held(place) == {A: 8, B: 12, C: 8}


def test_log_that_is_forgotten_while_it_is_read_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the listing and the reading a checkpoint took the place of what was listed."""
    place = tmp_path / "lake"
    put(Lake(place, make=True), {A: 5, B: 4})
    real, done = DeltaTable._commits, []

    def commits(self: DeltaTable, versions: Any) -> Any:
        if not done:
            done.append(True)
            replaced_twice_and_swept(place)
        return real(self, versions)

    monkeypatch.setattr(DeltaTable, "_commits", commits)
    assert Lake(place).fingerprints("metrics") == {A: "m", B: "m"}
    assert done


@pytest.mark.heavy
def test_vacuums_beside_writers_lose_and_double_nothing(tmp_path: Path) -> None:
    """Threads with a lake each put runs in again and again, while others delete at once what isn't used."""
    place = tmp_path / "lake"
    Lake(place, make=True)
    keys = [("p", f"r{number}") for number in range(4)]

    def write(key: Key) -> None:
        lake = Lake(place)
        for steps in range(1, 9):
            put(lake, {key: steps})

    def sweep(_: int) -> None:
        lake = Lake(place)
        for _ in range(8):
            lake.vacuum(0)

    with ThreadPoolExecutor(6) as pool:
        for done in [*(pool.submit(write, key) for key in keys), *(pool.submit(sweep, at) for at in range(2))]:
            done.result()
    assert held(place) == dict.fromkeys(keys, 16)


KILLED = """
import sys
from test_lake_tables import A, B, C, put
from trackers_lake.tables import Lake
from trackers.support.failpoints import arm
lake = Lake(sys.argv[1])
arm(sys.argv[2])
put(lake, {A: 3, C: 3}, "new")
"""


@pytest.mark.slow
@pytest.mark.parametrize("point", ["lake.file.before=kill:2", "lake.files.written=kill", "lake.commit.before=kill",
                                   "lake.commit.after=kill"])  # fmt: skip
def test_killed_change_is_all_or_nothing_and_can_be_repeated(tmp_path: Path, point: str) -> None:
    """After a kill the table is as before or as after; the same call makes it as after."""
    lake = Lake(tmp_path / "lake", make=True)
    put(lake, {A: 5, B: 5}, "old")
    done = forked.run([sys.executable, "-c", KILLED, str(tmp_path / "lake"), point], cwd=ROOT, env=python_path())
    assert done.returncode == -signal.SIGKILL
    assert held(tmp_path / "lake") in ({A: 10, B: 10}, {A: 6, B: 10, C: 6})
    put(lake, {A: 3, C: 3}, "new")
    assert held(tmp_path / "lake") == {A: 6, B: 10, C: 6}


TIDIED = """
import sys
from trackers_lake.tables import Lake
from trackers.support.failpoints import arm
lake = Lake(sys.argv[1])
arm(sys.argv[2])
lake.remove([("p", "r0")]) if "remove" in sys.argv[2] else lake.compact("metrics")
"""


@pytest.mark.parametrize("point", ["lake.remove.before=kill:2", "lake.compact.before=kill"])
def test_killed_removal_and_joining_can_be_repeated(tmp_path: Path, point: str) -> None:
    """A run that is in some tables still is known, and goes with the next call; joined rows are the same."""
    lake = Lake(tmp_path / "lake", make=True)
    for number in range(3):
        put(lake, {("p", f"r{number}"): 4})
    rows = schema.arrow_schema(schema.COLUMNS["config"])
    lake.put("config", pa.table([["p"], ["r0"], ["lr"], ["1"], [1.0]], schema=rows), {("p", "r0"): "m"})
    before = held(tmp_path / "lake")
    done = forked.run([sys.executable, "-c", TIDIED, str(tmp_path / "lake"), point], cwd=ROOT, env=python_path())
    assert done.returncode == -signal.SIGKILL
    lake = Lake(tmp_path / "lake")
    assert held(tmp_path / "lake") == before
    if "remove" in point:
        assert lake.fingerprints("config") == {}
        assert ("p", "r0") in lake.all_runs()
        lake.remove([("p", "r0")])
        assert held(tmp_path / "lake") == {("p", "r1"): 8, ("p", "r2"): 8}
    else:
        lake.compact("metrics")
        assert held(tmp_path / "lake") == before


def test_columns_of_other_releases_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table gets the columns that it lacks; those that this release doesn't know stay in it through a rewrite."""
    older = schema.NUMBERS[:-1]
    newer = (*schema.NUMBERS, ("unit", "string"))
    with monkeypatch.context() as patch:
        patch.setitem(schema.COLUMNS, "metrics", older)
        lake = Lake(tmp_path / "lake", make=True)
        lake.put("metrics", points(A, 2).drop_columns(["kind"]), {A: "old"})
        assert lake.snapshot("metrics").columns == older
    put(Lake(tmp_path / "lake"), {B: 2})
    assert Lake(tmp_path / "lake").snapshot("metrics").columns == schema.NUMBERS
    with monkeypatch.context() as patch:
        patch.setitem(schema.COLUMNS, "metrics", newer)
        rows = points(C, 2).append_column("unit", [["s"] * 4])
        Lake(tmp_path / "lake").put("metrics", rows, {C: "m"})
    put(Lake(tmp_path / "lake"), {A: 1})
    lake = Lake(tmp_path / "lake")
    assert lake.snapshot("metrics").columns == newer
    lake.compact("metrics")
    [file] = lake.snapshot("metrics").files.values()
    rows = lake.rows("metrics", file).to_pylist()
    assert {(row["run"], row["unit"]) for row in rows} == {("a", None), ("b", None), (C[1], "s")}


def test_place_that_is_no_lake_is_left_alone(tmp_path: Path) -> None:
    """Neither a folder with other files nor another program's mark is taken for a lake, and nothing is written."""
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs/a.txt").write_text("a")
    with pytest.raises(UsageError, match="has files and is no lake"):
        Lake(tmp_path / "runs", make=True)
    assert os.listdir(tmp_path / "runs") == ["a.txt"]
    with pytest.raises(NotFound, match="no lake in"):
        Lake(tmp_path / "nothing")
    assert not (tmp_path / "nothing").exists()
    (tmp_path / "lake").mkdir()
    for content, words in ((b'{"format": "x"}', "no lake of runs"), (b"{", "damaged"),
                           (b'{"format": "trackers-lake", "version": 9}', "this release knows 1")):  # fmt: skip
        (tmp_path / "lake/lake.json").write_bytes(content)
        with pytest.raises((UsageError, Damaged), match=words):
            Lake(tmp_path / "lake")


@pytest.mark.heavy
@pytest.mark.parametrize(("entry", "words"), [
    ({"path": "../../x.parquet", "size": 1}, "lies elsewhere"),
    ({"path": "/etc/passwd", "size": 1}, "lies elsewhere"),
    ({"path": "a%2F..%2F..%2Fx", "size": 1}, "lies elsewhere"),
    ({"path": "gone.parquet", "size": 1, "tags": {"trackers.runs": '[["p","a",""]]'}}, "isn't there"),
    ({"path": "x.parquet", "size": 1, "partitionValues": {"day": "1"}}, "partitions"),
    ({"path": "x.parquet", "size": 1, "stats": "{"}, "damaged"),
    ({"path": "x.parquet", "size": 1, "tags": {"trackers.runs": "[1]"}}, "damaged"),
    ({"path": 1, "size": 1}, "damaged"),
])  # fmt: skip
def test_hostile_entry_of_the_log_ends_in_one_line(tmp_path: Path, entry: dict[str, object], words: str) -> None:
    """Paths that lead out, what isn't there, what no lake has: an error that names the table."""
    lake = Lake(tmp_path / "lake", make=True)
    put(lake, {A: 2})
    log = tmp_path / "lake/metrics/_delta_log"
    (log / f"{1:020d}.json").write_text(json.dumps({"add": entry}))
    with pytest.raises((Damaged, NotFound), match=words) as caught:
        Lake(tmp_path / "lake").rows_of("metrics", A)
    assert "\n" not in str(caught.value)


def test_link_in_the_place_of_a_file_is_not_followed(tmp_path: Path) -> None:
    """A file of the lake is a plain file beneath it."""
    lake = Lake(tmp_path / "lake", make=True)
    put(lake, {A: 2})
    [path] = (tmp_path / "lake/metrics").glob("*.parquet")
    path.rename(tmp_path / "elsewhere.parquet")
    path.symlink_to(tmp_path / "elsewhere.parquet")
    with pytest.raises(NotFound, match="no plain file"):
        lake.rows_of("metrics", A)
