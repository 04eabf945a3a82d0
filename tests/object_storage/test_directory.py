"""A directory as a store: what somebody else planted in it leads nowhere, and holds nobody up."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.object_storage.support import store as directory_store
from trackers.errors import NotFound, Refused
from trackers.object_storage.store import Store

pytest.importorskip("obstore", reason="the extra storage")
USES: dict[str, Callable[[Store, str], object]] = {
    "get": lambda store, name: store.get(name, 100),
    "part": lambda store, name: store.part(name, 0, 4),
    "exists": lambda store, name: store.exists(name),
    "written": lambda store, name: store.written_at(name),
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("kind", ["link", "pipe", "folder that is a link", "device"])
def test_file_that_is_none_is_refused(use: str, kind: str, tmp_path: Path) -> None:
    """A link isn't followed, and a pipe isn't waited for."""
    store, place = directory_store(tmp_path), tmp_path / "store"
    (tmp_path / "secret").write_text("kept")
    name = "a"
    if kind == "pipe":
        os.mkfifo(place / name)
    elif kind == "folder that is a link":
        (place / "up").symlink_to(tmp_path)
        name = "up/secret"
    else:
        (place / name).symlink_to("/dev/zero" if kind == "device" else tmp_path / "secret")
    with pytest.raises(Refused, match=r"is a link|regular"):
        USES[use](store, name)
    assert [one.name for one in store.objects()] == []


def test_folder_that_is_a_link_is_not_listed_written_or_emptied(tmp_path: Path) -> None:
    """Neither by its own name nor on the way to it."""
    store, theirs = directory_store(tmp_path), tmp_path / "theirs"
    (theirs / "deep").mkdir(parents=True)
    (theirs / "deep/file").write_text("kept")
    (tmp_path / "store/p").symlink_to(theirs)
    assert [list(store.objects(below)) for below in ("", "p", "p/deep")] == [[], [], []]
    for change in (lambda: store.delete(["p/deep/file"]), lambda: store.put("p/new", b"x"),
                   lambda: store.create("p/deep/new", b"x"), lambda: store.put("p/deep/file", b"x")):  # fmt: skip
        with pytest.raises(Refused, match="is a link"):
            change()
    assert sorted(path.name for path in theirs.rglob("*")) == ["deep", "file"]
    assert (theirs / "deep/file").read_text() == "kept"
    store.delete(["p"])
    assert not (tmp_path / "store/p").is_symlink()


def test_objects_are_as_a_store_has_them(tmp_path: Path) -> None:
    """Whole, with their versions; created once; unfinished ones aren't there."""
    store = directory_store(tmp_path)
    version = store.put("a b/ä#%20", b"one")
    assert [(one.name, one.size, one.version) for one in store.objects("a b")] == [("a b/ä#%20", 3, version)]
    assert (store.create("a b/c", b"x"), store.create("a b/c", b"y"), store.get("a b/c", 9)) == (True, False, b"x")
    (tmp_path / "file").write_bytes(b"two")
    assert store.put("a b/ä#%20", tmp_path / "file") != version
    (tmp_path / "store/a b/.c.0123456789abcdef.tmp").write_text("half")
    assert sorted(one.name for one in store.objects()) == ["a b/c", "a b/ä#%20"]
    assert [one.name for one in store.objects("a b", "a b/c")] == ["a b/ä#%20"]
    store.delete(["a b/c", "gone"])
    with pytest.raises(NotFound):
        store.get("a b/c", 9)
    assert [path.name for path in (tmp_path / "store/a b").iterdir() if not path.name.startswith(".")] == ["ä#%20"]
