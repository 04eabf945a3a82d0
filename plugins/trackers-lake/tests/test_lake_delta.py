"""The log of a Delta table: versions one after the other, checkpoints, and what isn't read."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from lake_support import held, points
from pyarrow import parquet
from trackers_lake import delta, tables
from trackers_lake.tables import Lake

from trackers.errors import Damaged
from trackers.object_storage.store import Store

LOG = "lake/metrics/_delta_log"


def filled(place: Path, runs: int) -> Lake:
    lake = Lake(place / "lake", make=True)
    for number in range(runs):
        key = ("p", f"r{number}")
        lake.put("metrics", points(key, 2), {key: "m"})
    return lake


def test_checkpoint_of_many_equal_actions_is_refused(tmp_path: Path) -> None:
    """Equal values take no room in a Parquet file, and all in memory: what is claimed is held against the length."""
    lake = filled(tmp_path, 1)
    kind = pa.schema([("add", pa.struct([("path", pa.string()), ("size", pa.int64())]))])
    part = pa.table([pa.array([{"path": "a" * 64, "size": 1}] * 10**5, kind[0].type)], schema=kind)
    with parquet.ParquetWriter(tmp_path / LOG / f"{9:020d}.checkpoint.parquet", kind) as writer:
        for _ in range(11):
            writer.write_table(part)
    with pytest.raises(Damaged, match=r"checkpoint 9 claims 1,100,000 actions in [\d,]+ bytes$"):
        Lake(lake.where).snapshot("metrics")


def test_checkpoint_stands_for_the_log_before_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the commits that it sums up, the table is the same, and goes on from there."""
    monkeypatch.setattr(tables, "CHECKPOINT_EVERY", 3)
    filled(tmp_path, 5)
    before = held(tmp_path / "lake")
    assert sorted(path.name for path in (tmp_path / LOG).glob("*.parquet")) == [f"{3:020d}.checkpoint.parquet"]
    for version in range(4):
        (tmp_path / LOG / f"{version:020d}.json").unlink()
    assert held(tmp_path / "lake") == before
    lake = Lake(tmp_path / "lake")
    assert lake.snapshot("metrics").version == 4
    lake.put("metrics", points(("p", "r0"), 1), {("p", "r0"): "n"})
    assert held(tmp_path / "lake") == {**before, ("p", "r0"): 2}
    assert lake.fingerprints("metrics")["p", "r1"] == "m"


@pytest.mark.parametrize("behind", [0, 1, 4, 5, 30])
def test_writer_that_others_have_overtaken_asks_once_for_all_they_did(
    behind: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not for one commit after the other, which takes as long as there are nodes; nor where the log is gone by then."""
    lake, other = filled(tmp_path, 1), Lake(tmp_path / "lake")
    other.snapshot("metrics")
    for number in range(behind):
        key = ("p", f"s{number}")
        lake.put("metrics", points(key, 2), {key: "m"})
    asked: list[str] = []
    chunks = Store.chunks
    monkeypatch.setattr(Store, "chunks", lambda self, name, most: asked.append(name) or chunks(self, name, most))
    wanted = Lake(tmp_path / "lake").fingerprints("metrics")
    asked.clear()
    assert other.fingerprints("metrics") == wanted
    assert len(set(asked)) == len(asked) == (behind if behind > delta.FEW else behind + (behind < delta.FEW))
    for number in range(behind, behind + 8):
        key = ("p", f"s{number}")
        lake.put("metrics", points(key, 2), {key: "m"})
    lake.tables["metrics"].checkpoint(lake.snapshot("metrics"))
    for path in sorted((tmp_path / LOG).glob("*.json"))[behind + 6 : behind + 8]:
        path.unlink()
    assert len(other.fingerprints("metrics")) == behind + 9


def test_checkpoint_that_is_announced_but_not_there_is_done_without(tmp_path: Path) -> None:
    """``_last_checkpoint`` is a hint, and may be wrong or no JSON."""
    filled(tmp_path, 3)
    for hint in (b'{"version": 2}', b'{"version": 77}', b"{", b'{"version": "x"}', b"[]"):
        (tmp_path / LOG / "_last_checkpoint").write_bytes(hint)
        assert len(held(tmp_path / "lake")) == 3, hint


def test_what_was_read_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table that is looked at again reads the commits since, and sees what another process did."""
    lake = filled(tmp_path, 3)
    lake.snapshot("metrics")
    other = Lake(tmp_path / "lake")
    other.put("metrics", points(("p", "new"), 1), {("p", "new"): "m"})
    read: list[str] = []
    get = lake.store.get
    monkeypatch.setattr(lake.store, "get", lambda name, most: (read.append(name), get(name, most))[1])
    assert ("p", "new") in lake.fingerprints("metrics")
    assert [name.rpartition("/")[2] for name in read] == [f"{3:020d}.json", f"{4:020d}.json"]


@pytest.mark.heavy
@pytest.mark.parametrize(("lines", "words"), [
    ([{"protocol": {"minReaderVersion": 3, "readerFeatures": ["deletionVectors"]}}], "doesn't read: deletionVectors"),
    ([{"metaData": {"schemaString": "{", "id": "a"}}], "columns can't be read"),
    ([{"metaData": {"schemaString": "{}", "partitionColumns": ["day"]}}], "partitioned by day"),
    (["{"], "version 2 of its log is damaged"),
])  # fmt: skip
def test_log_that_cannot_be_understood_is_named(tmp_path: Path, lines: list[object], words: str) -> None:
    """Features, partitions and damage end in one line with the table's name; nothing is guessed."""
    filled(tmp_path, 2)
    content = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
    (tmp_path / LOG / f"{2:020d}.json").write_text(content)
    with pytest.raises(Damaged, match=words) as caught:
        Lake(tmp_path / "lake").snapshot("metrics")
    assert "table metrics of" in str(caught.value)


@pytest.mark.heavy
def test_gap_in_the_log_is_named(tmp_path: Path) -> None:
    """A commit that is missing may have removed rows: the table isn't read without it."""
    filled(tmp_path, 3)
    (tmp_path / LOG / f"{1:020d}.json").unlink()
    with pytest.raises(Damaged, match="lacks a commit"):
        Lake(tmp_path / "lake").snapshot("metrics")


@pytest.mark.heavy
def test_log_of_endless_length_is_not_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit is bounded in its length, and the log in the number of its commits."""
    lake = filled(tmp_path, 3)
    monkeypatch.setattr(delta, "MOST_COMMITS", 2)
    with pytest.raises(Damaged, match="more than 2 commits"):
        Lake(tmp_path / "lake").snapshot("metrics")
    monkeypatch.undo()
    monkeypatch.setattr(delta, "MOST_LOG_BYTES", 100)
    with pytest.raises(Exception, match="at most 100 were expected"):
        Lake(lake.where).snapshot("metrics")
