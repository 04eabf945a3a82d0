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
from trackers_lake import delta, unpacked
from trackers_lake.tables import Lake

import trackers
from tests.analysis.support import write_run
from trackers.errors import Damaged, TrackersError
from trackers.object_storage.store import Store

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


def repeat_row(lake: Path, name: str, count: int) -> None:
    """Write a file of ``metrics`` that has its first row so many times: a few bytes for each million."""
    import pyarrow as pa
    from pyarrow import parquet

    made = Lake(lake)
    (file,) = made.snapshot("metrics").files.values()
    first = made.rows("metrics", file).slice(0, 1)
    part = 1_000_000
    rows = pa.table({name: first[name].take(pa.array([0] * part)).combine_chunks() for name in first.column_names})
    with parquet.ParquetWriter(lake / "metrics" / name, rows.schema, compression="zstd") as writer:
        for _ in range(count // part):
            writer.write_table(rows, row_group_size=part)


def test_rows_that_repeat_end_in_one_line(lake: Path) -> None:
    """Sixteen million rows of half a megabyte take a gigabyte, and what is made of them several."""
    (file,) = Lake(lake).snapshot("metrics").files.values()
    repeat_row(lake, file.path, 8_000_000)
    with pytest.raises(Damaged, match="its rows have more than 268,435,456 bytes, in files of"):
        Lake(lake).rows("metrics", file)
    assert len(Lake(lake).rows("metrics", file, ["row", "step"])) == 8_000_000
    said = run_cli("show", "lake:lake")
    assert said.exit_code
    assert "its rows have more than" in str(said.exception)


def test_files_are_held_together_within_a_bound(lake: Path) -> None:
    """Each of many files may be small enough."""
    (file,) = Lake(lake).snapshot("metrics").files.values()
    log = lake / f"metrics/_delta_log/{0:020d}.json"
    added = next(line for line in log.read_text().splitlines() if '"add"' in line)
    repeat_row(lake, file.path, 2_000_000)
    with log.open("a") as more:
        for number in range(4):
            shutil.copy(lake / "metrics" / file.path, lake / f"metrics/{number}.parquet")
            more.write(added.replace(file.path, f"{number}.parquet") + "\n")
    Lake(lake).rows("metrics", file)
    for words in ("show lake:lake", "lake compact lake"):
        said = run_cli(*words.split())
        assert said.exit_code, words
        assert "its rows have more than" in str(said.exception), words


def test_page_that_unpacks_to_far_more_is_not_unpacked(lake: Path) -> None:
    """Arrow unpacks a page at once, whatever is asked of it: its head says how long it gets."""
    import pyarrow as pa
    from pyarrow import parquet

    (file,) = Lake(lake).snapshot("events").files.values()
    first = Lake(lake).rows("events", file).slice(0, 1)
    rows = {
        name: pa.array(["a" * (1 << 20)] * 300) if name == "record" else first[name].take(pa.array([0] * 300))
        for name in first.column_names
    }
    how: dict[str, Any] = {"compression": "zstd", "use_dictionary": False, "data_page_size": 2_000_000_000}
    path = lake / "events" / file.path
    parquet.write_table(pa.table(rows), path, write_batch_size=100_000, **how)
    with pytest.raises(Damaged, match="its pages have more than 268,435,456 bytes, in a file of"):
        Lake(lake).rows("events", file)
    for version in ("1.0", "2.0"):
        parquet.write_table(pa.table(rows).slice(0, 9), path, data_page_version=version, **how)
        assert len(Lake(lake).rows("events", file)) == 9


@pytest.mark.parametrize("head", [b"", b"\x15" + b"\xff" * 20, b"\x19\x00", b"\x1c" * 5000, b"\x18\xff\xff\xff\x7f"])
def test_head_of_a_page_that_is_none(head: bytes) -> None:
    """Neither a number nor a nesting has no end."""
    with pytest.raises((IndexError, ValueError)):
        unpacked._page(head)


def test_long_commits_are_held_one_by_one(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred of them, each as long as one may be, would take as many times the memory."""
    seen = Lake(lake)
    seen.snapshot("runs")
    for version in range(1, 12):
        path = lake / f"runs/_delta_log/{version:020d}.json"
        path.write_text(json.dumps({"commitInfo": {"operation": "x" * (2500 if version % 3 else 10)}}) + "\n")
    monkeypatch.setattr(delta, "MOST_LOG_BYTES", 8000)
    asked: list[int] = []
    get = Store.get
    monkeypatch.setattr(Store, "get", lambda self, name, most: asked.append(most) or get(self, name, most))
    assert Lake(lake).snapshot("runs").version == 11
    assert seen.snapshot("runs").version == 11
    assert len(Lake(lake).snapshot("runs").files) == 1
    assert asked.count(8000 // delta.TOGETHER) > 20
    assert delta._together((version, bytes(3000)) for version in range(3)) is None
    monkeypatch.setattr(delta, "MOST_LINE_BYTES", 2400)
    with pytest.raises(Damaged, match=r"version 1 of its log has a line of 2,5\d\d bytes"):
        Lake(lake).snapshot("runs")


def test_log_that_names_too_much_is_damage(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each name takes ten times its length in memory."""
    monkeypatch.setattr(delta, "MOST_NAMED", 10)
    log = lake / f"runs/_delta_log/{0:020d}.json"
    before = log.read_text()
    runs = json.dumps([["p", str(number), ""] for number in range(9)])
    for lines in (
        [{"add": {"path": str(number), "size": 1}} for number in range(6)],
        [{"remove": {"path": str(number)}} for number in range(11)],
        [{"add": {"path": "a", "size": 1, "tags": {"trackers.runs": runs}}}],
    ):
        log.write_text(before + "".join(json.dumps(line) + "\n" for line in lines))
        with pytest.raises(Damaged, match="its log names more than 10 runs, or files"):
            Lake(lake).snapshot("runs")
    again = [{"add": {"path": "a", "size": 1}}, {"remove": {"path": "a"}}] * 20
    log.write_text(before + "".join(json.dumps(line) + "\n" for line in again))
    assert len(Lake(lake).snapshot("runs").files) == 1


@pytest.mark.parametrize("words", ["ls lake", "compact lake", "vacuum lake", "add runs lake", "rm lake one --yes"])
def test_what_no_command_foresees_is_one_line(words: str, lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a damaged lake makes a library raise ends in a line that names the lake."""

    def fails(*_: Any, **how: Any) -> None:
        raise KeyError("part")

    monkeypatch.setattr(delta.DeltaTable, "snapshot", fails)
    said = run_cli("lake", *words.split())
    assert isinstance(said.exception, Damaged)
    assert str(said.exception) == "lake:lake is damaged: 'part' is missing"


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
