"""A lake that somebody else planted leads no command out of it, keeps none waiting, and fills no memory."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from test_lake_commands import run_cli
from trackers_lake.tables import Lake

import trackers
from tests.analysis.support import write_run
from trackers.errors import Damaged, TrackersError

pytest.importorskip("pyarrow", reason="the extra analysis")


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A lake of one run, and beside it files of somebody else's."""
    monkeypatch.chdir(tmp_path)
    write_run("one", [(step, step, {"loss": 1.0}) for step in range(5)])
    assert run_cli("lake", "add", "runs", "lake").exit_code == 0
    (tmp_path / "theirs/deep").mkdir(parents=True)
    for name in ("model.parquet", "notes.txt", "deep/part-1.parquet", "00000000000000000000.json"):
        (tmp_path / "theirs" / name).write_text("kept")
        os.utime(tmp_path / "theirs" / name, (1, 1))
    return tmp_path / "lake"


def listing(folder: Path) -> dict[str, Any]:
    """What lies below a folder."""
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.parametrize("place", ["metrics/sub", "metrics/_delta_log/sub", "system", "other", "metrics/_delta_log"])
def test_folder_that_is_a_link_leads_nowhere(place: str, lake: Path, tmp_path: Path) -> None:
    """Nothing is deleted or written behind it: not by a vacuum, which lists whole tables, nor by any writer."""
    if (lake / place).exists():
        shutil.move(lake / place, tmp_path / "away")
        shutil.copytree(tmp_path / "away", tmp_path / "theirs", dirs_exist_ok=True)
    (lake / place).symlink_to(tmp_path / "theirs")
    before = listing(tmp_path / "theirs")
    write_run("two", [(0, 0, {"loss": 1.0, "gpu/0/power_w": 9.0})])
    for words in ("add runs lake", "compact lake", "rm lake one --yes", "vacuum lake --older-than 0"):
        run_cli("lake", *words.split())
        assert listing(tmp_path / "theirs") == before, words


@pytest.mark.parametrize("kind", ["link", "pipe"])
@pytest.mark.parametrize("name", ["lake.json", "metrics/_delta_log/_last_checkpoint", "vacuumed.json"])
def test_file_that_is_none_is_not_read(name: str, kind: str, lake: Path, tmp_path: Path) -> None:
    """A pipe would hold a command up for ever."""
    path = lake / name
    path.unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    with pytest.raises(TrackersError, match=r"isn't a regular file|is a link"):
        use(lake, name)


def use(lake: Path, name: str) -> None:
    """Read a lake, and that file of it."""
    made = Lake(lake)
    made.snapshot("metrics")
    made.store.get(name, 100)


def test_file_whose_name_is_a_pattern_is_read_alone(lake: Path, tmp_path: Path) -> None:
    """DuckDB takes `*`, `?` and `[` in a path for others' names, which may be links: here they are signs."""
    (log,) = (lake / "runs/_delta_log").glob("*.json")
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    for line in lines:
        if "add" in line:
            (lake / "runs" / line["add"]["path"]).rename(lake / "runs/r[a]*?.parquet")
            line["add"]["path"] = quote("r[a]*?.parquet")
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    (tmp_path / "private").write_text("no table of this lake")
    for name in ("ra.parquet", "ra1x.parquet"):
        (lake / "runs" / name).symlink_to(tmp_path / "private")
    assert trackers.sql("select run from runs", [f"lake:{lake}"]).to_pylist() == [{"run": "one"}]


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
@pytest.mark.parametrize("newest", [True, False])
def test_log_that_is_none_is_said(kind: str, newest: bool, lake: Path, tmp_path: Path) -> None:
    """A commit that no listing has would leave the table empty or as it was before, and keep writers waiting."""
    path = lake / "runs/_delta_log" / f"{int(newest):020d}.json"
    if path.exists():
        shutil.move(path, tmp_path / "away.json")
    if kind == "link":
        path.symlink_to(tmp_path / "away.json")
    else:
        os.mkfifo(path) if kind == "pipe" else path.mkdir()
    for words in ("ls lake:lake", "lake add runs lake", "lake ls lake", "lake vacuum lake"):
        said = run_cli(*words.split())
        assert said.exit_code, words
        assert "isn't a regular file" in str(said.exception), words


@pytest.mark.parametrize("stored", [True, False])
def test_texts_that_unpack_to_far_more_than_the_file_end_in_one_line(stored: bool, lake: Path) -> None:
    """A text of a megabyte a million times takes some kilobytes in a Parquet file, and a terabyte in memory."""
    import pyarrow as pa
    from pyarrow import parquet

    count = 3_000
    for table, column in (("runs", "notes"), ("events", "record")):
        made = Lake(lake)
        (file,) = made.snapshot(table).files.values()
        first = made.rows(table, file).slice(0, 1)
        long = pa.DictionaryArray.from_arrays(pa.array([0] * count, pa.int32()), pa.array(["a" * (1 << 20)]))
        rows = {
            name: long if name == column else first[name].take(pa.array([0] * count)) for name in first.column_names
        }
        parquet.write_table(pa.table(rows), lake / table / file.path, compression="zstd", store_schema=stored)
        with pytest.raises(Damaged, match="its texts have more than"):
            made.rows(table, file)
        with pytest.raises(Damaged, match="its texts have more than"):
            made.rows(table, file, [column], next(iter(file.runs or ())))


@pytest.mark.parametrize("stored", [True, False])
def test_checkpoint_that_unpacks_to_far_more_ends_in_one_line(stored: bool, lake: Path) -> None:
    """Statistics of a megabyte for each of many files."""
    import pyarrow as pa
    from pyarrow import parquet

    count = 3_000
    stats = pa.DictionaryArray.from_arrays(pa.array([0] * count, pa.int32()), pa.array([" " * (1 << 20)]))
    paths = pa.array(["a.parquet"]).take(pa.array([0] * count))
    added = pa.StructArray.from_arrays([paths, pa.array([1] * count), stats], names=["path", "size", "stats"])
    name = lake / f"runs/_delta_log/{5:020d}.checkpoint.parquet"
    parquet.write_table(pa.table({"add": added}), name, compression="zstd", store_schema=stored)
    with pytest.raises(
        Damaged, match=r"checkpoint 5 is damaged: its (texts have more than|column add has dictionaries inside)"
    ):
        Lake(lake).snapshot("runs")


def test_version_that_no_log_has_is_damage(lake: Path) -> None:
    """A number of twenty digits, up to which no log could be read."""
    (lake / "runs/_delta_log" / f"{'9' * 20}.json").write_text("{}")
    with pytest.raises(Damaged, match="is of no version"):
        Lake(lake).snapshot("runs")


@pytest.mark.parametrize(
    "line",
    ['{"remove":{"path":"x","deletionTimestamp":' + "9" * 400 + "}}", '{"add":{"path":"x","size":-1}}',
     '{"add":{"path":"x","size":' + "9" * 400 + "}}"],
)  # fmt: skip
def test_numbers_of_a_log_are_bounded(line: str, lake: Path) -> None:
    """A time or a length out of all proportion is damage, not a traceback later."""
    with (lake / "runs/_delta_log" / f"{0:020d}.json").open("a") as log:
        log.write(line + "\n")
    with pytest.raises(Damaged, match="version 0 of its log is damaged"):
        Lake(lake).snapshot("runs")


def test_log_of_empty_lines_is_damaged(lake: Path) -> None:
    """Millions of them would take gigabytes."""
    with (lake / "runs/_delta_log" / f"{0:020d}.json").open("a") as log:
        log.write("{}\n" * 2_000_000)
    with pytest.raises(Damaged, match="its lines have nothing in them"):
        Lake(lake).snapshot("runs")
