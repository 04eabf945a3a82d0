"""Where a lake is, and who begins it."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
from lake_support import held, points
from trackers_lake import location
from trackers_lake.tables import Lake

from trackers.errors import NotFound, UsageError
from trackers.object_storage.store import Listed, Store


def begin(where: Path, run: str) -> None:
    Lake(where, make=True).put("metrics", points(("p", run)), {("p", run): "m"})


@pytest.mark.parametrize("moment", ["before it lists", "before it writes the marker"])
@pytest.mark.parametrize("make", [True, False])
def test_lake_that_another_writer_begins_meanwhile(
    moment: str, make: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its marker and its first rows appear between two looks of this process: it is a lake, and both runs are in it."""
    where, others = tmp_path / "lake", ["other"]
    where.mkdir()
    listed, create = Store.objects, Store.create

    def begin_other() -> None:
        if others:
            begin(where, others.pop())

    def objects(self: Store, *arguments: Any) -> Iterator[Listed]:
        if moment == "before it lists":
            begin_other()
        return listed(self, *arguments)

    def created(self: Store, name: str, content: bytes) -> bool:
        if name == location.MARKER_FILE:
            begin_other()
        return create(self, name, content)

    monkeypatch.setattr(Store, "objects", objects)
    monkeypatch.setattr(Store, "create", created)
    if not make and moment != "before it lists":
        with pytest.raises(NotFound, match="no lake in"):
            Lake(where)
        return
    lake = Lake(where, make=make)
    lake.put("metrics", points(("p", "own")), {("p", "own"): "m"})
    assert held(where) == {("p", "other"): 10, ("p", "own"): 10}


def test_writers_that_begin_a_lake_together(tmp_path: Path) -> None:
    """Eight at the same moment: none is refused, and all runs are there."""
    together = Barrier(8)

    def write(number: int) -> None:
        together.wait()
        begin(tmp_path / "lake", f"r{number}")

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(write, range(8))) == [None] * 8
    assert held(tmp_path / "lake") == {("p", f"r{number}"): 10 for number in range(8)}


@pytest.mark.parametrize("make", [True, False])
def test_place_with_something_else_is_refused(make: bool, tmp_path: Path) -> None:
    """Files of anything else are left alone, whoever looks how often."""
    place = tmp_path / "place"
    place.mkdir()
    (place / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match="has files and is no lake"):
        location.open_store(place, make=make)
    assert [path.name for path in place.iterdir()] == ["notes.txt"]
