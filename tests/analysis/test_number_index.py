"""The index of numbers behind ``trackers sql``: the same rows as without it, read from few files."""

from __future__ import annotations

import math
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import trackers
from tests.analysis.support import write_run
from trackers.analysis import number_index, sql

ALL = "select * from metrics order by run, name, time, value", "select * from system order by run, name, time"


def age(run: Path, seconds: float = 100.0) -> None:
    """As if nobody had written there for so long."""
    for path in [*run.rglob("*"), run]:
        os.utime(path, (time.time() - seconds, time.time() - seconds))


def make(name: str, steps: int = 3, seconds: float = 100.0) -> Path:
    """A run with a NaN, two cadences and samples."""
    rows: list[Any] = [(step, step, {"loss": step / 7, **({"val": float(step)} if step % 2 else {})})
                       for step in range(steps)]  # fmt: skip
    run = write_run(name, [*rows, (None, 5, {"system.cpu": 50.0}), (steps, 6, {"loss": math.nan})])
    age(run, seconds)
    return run


def rows() -> list[list[dict[str, Any]]]:
    """All that there is, NaN by name."""
    return [
        [{key: str(value) if value != value else value for key, value in row.items()} for row in found]
        for found in (trackers.sql(query).to_pylist() for query in ALL)
    ]


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the runs whose journals were read."""
    found: list[str] = []
    own = sql._blocks
    monkeypatch.setattr(sql, "_blocks", lambda run: (found.append(run.id), own(run))[1])
    return found


@pytest.fixture
def files() -> Callable[[], list[Path]]:
    """Files of the indexes."""
    return lambda: sorted(Path(os.environ["XDG_CACHE_HOME"], "trackers/numbers").rglob("*.*"))


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A place for what is kept."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.mark.slow
def test_second_query_reads_no_journal(read: list[str]) -> None:
    """Neither does one of one run alone; the rows are the same, NaN and missing steps included."""
    for number in range(5):
        make(f"r{number}")
    first = rows()
    assert sorted(read) == sorted(2 * [f"r{number}" for number in range(5)])
    read.clear()
    assert rows() == first
    assert trackers.sql("select count(*) as n from metrics where run = 'r3'").to_pylist() == [{"n": 5}]
    assert not read


@pytest.mark.heavy
def test_only_what_changed_is_read(read: list[str]) -> None:
    """A run that grew, one that is new and one that was deleted; small segments are joined."""
    paths = [make(f"r{number}") for number in range(4)]
    rows()
    read.clear()
    make("r1", steps=6, seconds=50)
    shutil.rmtree(paths[2])
    make("new")
    found = rows()
    assert sorted(set(read)) == ["new", "r1"]
    assert {row["run"] for row in found[0]} == {"r0", "r1", "r3", "new"}
    assert sum(row["run"] == "r1" for row in found[0]) == 10
    read.clear()
    assert rows() == found
    assert not read


@pytest.mark.slow
def test_running_run_and_fresh_files_are_read_each_time(read: list[str]) -> None:
    """What may change without its fingerprint isn't kept."""
    make("old")
    make("young", seconds=0.0)
    rows()
    read.clear()
    rows()
    assert set(read) == {"young"}


@pytest.mark.heavy
@pytest.mark.parametrize("harm", ["cut", "garbage", "gone", "index cut", "index garbage", "index of another version"])
def test_damaged_index_counts_as_absent(
    harm: str, files: Callable[[], list[Path]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each file may be cut, overwritten or deleted: the rows are the same, and the index works again."""
    for number in range(3):
        make(f"r{number}")
    before = rows()
    for path in files():
        is_index = path.name == "index.msgpack"
        if is_index != harm.startswith("index"):
            continue
        if harm.endswith("cut"):
            path.write_bytes(path.read_bytes()[:-40])
        elif harm.endswith("garbage"):
            path.write_bytes(b"\xff" * 300)
        elif harm == "gone":
            path.unlink()
        else:
            monkeypatch.setattr(number_index, "_VERSION", "another")
    assert rows() == before
    assert rows() == before


@pytest.mark.slow
def test_segment_is_on_the_disk_before_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that loses power leaves no segment of the right length without its bytes in an index."""
    said: list[str] = []
    sync, replace = os.fsync, number_index.replace_file

    def synced(fd: int) -> None:
        said.append(f"synced {os.fstat(fd).st_size > 0}")
        sync(fd)

    def named(*given: Any) -> None:
        said.append("named")
        replace(*given)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(number_index, "replace_file", named)
    make("r")
    rows()
    assert said == ["synced True", "named"] * 2


@pytest.mark.slow
def test_index_that_cannot_be_written_changes_nothing(tmp_path: Path) -> None:
    """A read-only cache only costs time."""
    (tmp_path / "cache").write_text("in the way")
    make("r")
    assert rows() == rows()
    assert len(rows()[0]) == 5


@pytest.mark.slow
def test_runs_are_named_anew_each_time() -> None:
    """Two projects with the same id: then the project is part of the name."""
    make("r")
    assert {row["run"] for row in rows()[0]} == {"r"}
    shutil.copytree("runs/digits", "runs/q")
    path = next(Path("runs/q").iterdir()) / "run.json"
    path.write_text(path.read_text().replace('"digits"', '"q"'))
    age(path.parent)
    assert {row["run"] for row in rows()[0]} == {"digits/r", "q/r"}


@pytest.mark.slow
def test_large_run_is_left_to_its_own_cache(read: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """It isn't copied into the index; the others are."""
    monkeypatch.setattr(number_index, "MOST_ROWS", 6)
    make("large", steps=20)
    make("small")
    rows()
    read.clear()
    rows()
    assert set(read) == {"large"}
