"""Copies of a store's runs: what is new alone, checked, and nothing outside."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.object_storage.support import contents, grow, names, run_directory, store
from trackers.errors import NotFound, Refused, Unavailable
from trackers.journal.naming import runs_named
from trackers.object_storage import addresses, mirror
from trackers.object_storage.layout import Piece
from trackers.object_storage.shipping import Sender
from trackers.object_storage.store import Store

HOME = "p/abc"


@pytest.fixture
def where(tmp_path: Path) -> str:
    """A store with one run, whose directory is ``run``."""
    Sender(store(tmp_path), run_directory(tmp_path / "run"), HOME).finish()
    return f"file://{tmp_path}/store"


def loaded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the objects that are loaded from now on."""
    found: list[str] = []
    chunks = Store.chunks

    def spy(self: Store, name: str, most: int) -> object:
        found.append(name)
        return chunks(self, name, most)

    monkeypatch.setattr(Store, "chunks", spy)
    return found


def test_only_what_is_new_is_loaded(where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second copy loads nothing; after a line, the end of the last piece of one stream."""
    root = tmp_path / "copy"
    assert mirror.copy(where, root) == [str(root / HOME)]
    names = loaded(monkeypatch)
    mirror.copy(where, root)
    assert names == []
    grow(tmp_path / "run", 1)
    Sender(store(tmp_path), tmp_path / "run", HOME).send()
    mirror.copy(where, root)
    assert [name for name in names if "/streams/" in name] == []
    assert contents(root / HOME) == contents(tmp_path / "run")


def test_of_a_longer_piece_the_end_alone_is_loaded(where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the copy has of it is checked with what comes; where that isn't what its digest says, all is loaded."""
    root, parts = tmp_path / "copy", []
    mirror.copy(where, root)
    part = Store.part
    monkeypatch.setattr(Store, "part", lambda *given: parts.append(given[2:]) or part(*given))
    path = root / HOME / "streams/rank-0.1.jsonl"
    for spoilt in (False, True):
        had = path.stat().st_size
        grow(tmp_path / "run", 1)
        if spoilt:
            path.write_bytes(b"x" + path.read_bytes()[1:])
        whole = loaded(monkeypatch)
        Sender(store(tmp_path), tmp_path / "run", HOME).send()
        mirror.copy(where, root)
        assert parts.pop() == (had, path.stat().st_size)
        assert bool([name for name in whole if "/streams/" in name]) == spoilt
        assert path.read_bytes()[had:] == (tmp_path / "run/streams/rank-0.1.jsonl").read_bytes()[had:]


def test_torn_copy_is_completed(where: str, tmp_path: Path) -> None:
    """A copy that ended in the middle of a line, its process killed, goes on there."""
    root = tmp_path / "copy"
    mirror.copy(where, root)
    path = root / HOME / "streams/rank-0.1.jsonl"
    path.write_bytes(path.read_bytes()[:23])
    mirror.copy(where, root)
    assert contents(root / HOME) == contents(tmp_path / "run")


def test_names_that_lead_elsewhere_are_passed_over(where: str, tmp_path: Path) -> None:
    """A store that anybody may write to puts nothing outside of the copy, and nothing hidden into it."""
    found = store(tmp_path)
    (tmp_path / "outside").write_text("mine")
    for name in ("p/abc/.versions", "p/.hidden/run.json", "p/abc/@evil/x", ".x/abc/run.json", "p/abc/a\\b"):
        found.put(name, b"evil")
    root = tmp_path / "copy"
    mirror.copy(where, root)
    assert not any(b"evil" in file.read_bytes() for file in root.rglob("*") if file.is_file())


def test_link_in_the_copy_isn_t_followed(where: str, tmp_path: Path) -> None:
    """A link that somebody put into the copy: what it points to isn't written."""
    root = tmp_path / "copy"
    (root / HOME).mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    (root / HOME / "streams").symlink_to(tmp_path / "outside")
    with pytest.raises(OSError, match="link"):
        mirror.copy(where, root)
    assert list((tmp_path / "outside").iterdir()) == []


def test_damaged_piece_is_named(where: str, tmp_path: Path) -> None:
    """Its name has the digest of what was sent: other bytes aren't taken."""
    (name,) = (name for name in names(store(tmp_path)) if "/streams/" in name)
    content = b"".join(store(tmp_path).chunks(name, 10**6))
    store(tmp_path).put(name, b"X" + content[1:])
    with pytest.raises(Unavailable, match="aren't those that its name has the digest of"):
        mirror.copy(where, tmp_path / "copy")


def test_lost_piece_is_named_once(where: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What follows a piece that the store has lost can't be read, and isn't left out in silence."""
    (name,) = (name for name in names(store(tmp_path)) if "/streams/" in name)
    rest = b"".join(store(tmp_path).chunks(name, 10**6))[20:]
    store(tmp_path).delete([name])
    store(tmp_path).put(f"{name.rpartition('/')[0]}/{Piece.of(20, rest)}", rest)
    for _ in range(2):
        mirror.copy(where, tmp_path / "copy")
    assert len(re.findall(r"p/abc lacks bytes 0 to 20 of streams/rank-0\.1\.jsonl: ", capsys.readouterr().err)) == 1


def test_piece_of_another_length_is_no_piece(where: str, tmp_path: Path) -> None:
    """As if it weren't there: what it claims to hold is got elsewhere, or not yet."""
    store(tmp_path).put(f"p/abc/streams/rank-0.1.jsonl/{Piece.of(0, b'y' * 900)}", b"short")
    mirror.copy(where, tmp_path / "copy")
    assert contents(tmp_path / "copy" / HOME) == contents(tmp_path / "run")


def test_full_disk_is_said(where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is loaded that there is no room for."""
    monkeypatch.setattr(mirror, "KEPT_FREE", 1 << 62)
    with pytest.raises(OSError, match="No space left"):
        mirror.copy(where, tmp_path / "copy")


def test_deleted_run_goes_from_the_copy(where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy shows what the store has; another directory of that name, which isn't a copy, stays."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    root = mirror.update_copy(where)
    (root / "p" / "own").mkdir()
    found = store(tmp_path)
    found.delete(list(names(found)))
    mirror.update_copy(where)
    assert not (root / HOME).exists()
    assert (root / "p" / "own").exists()


def test_store_that_is_away_leaves_the_copy(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a line that says so; without a copy it is an error."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    root = mirror.update_copy(where)

    def away(*_: object) -> object:
        raise Unavailable("no route")

    monkeypatch.setattr(Store, "objects", away)
    assert mirror.update_copy(where) == root
    assert "no route; what was copied before is shown" in capsys.readouterr().err
    with pytest.raises(Unavailable):
        mirror.update_copy(f"file://{tmp_path}/other")


def test_longer_object_than_it_was_listed_as_is_refused(where: str, tmp_path: Path) -> None:
    """A file that grew between the listing and the loading isn't taken for the one that was listed."""
    store(tmp_path).put("p/abc/run.json", b"x" * 100)
    with pytest.raises(Refused, match="at most 10 were expected"):
        b"".join(store(tmp_path).chunks("p/abc/run.json", 10))


def test_file_that_grows_as_it_is_copied_keeps_no_other_away(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A training that goes on replaces files between the listing and the loading: the next copy has them."""
    objects = Store.objects

    def earlier(self: Store, below: str = "") -> object:
        listed = list(objects(self, below))
        store(tmp_path).put(f"{HOME}/config.json", b"longer than before")
        return iter(listed)

    store(tmp_path).put(f"{HOME}/config.json", b"short")
    monkeypatch.setattr(Store, "objects", earlier)
    root = tmp_path / "copy"
    assert mirror.copy(where, root) == [str(root / HOME)]
    assert contents(root / HOME) == contents(tmp_path / "run")
    mirror.copy(where, root)
    assert (root / HOME / "config.json").read_bytes() == b"longer than before"


@pytest.mark.parametrize(
    ("text", "expected"),
    [("s3://b/p/", "s3://b/p"), ("s3:/b/p", "s3://b/p"), ("S3://b", "s3://b"), ("gcs://b/x", "gs://b/x"),
     ("file:///a/b/", "file:///a/b")],
)  # fmt: skip
def test_address_has_one_spelling(text: str, expected: str) -> None:
    """Also as ``Path`` writes it, with one slash."""
    assert addresses.is_address(text)
    assert addresses.normalize(text) == expected


@pytest.mark.parametrize(
    "text", ["s3://", "s3://key:secret@bucket/p", "s3://b/../c", "s3://b?x=1", "runs", "http://a/b"]
)
def test_what_is_no_address(text: str) -> None:
    """No bucket, a password in it, a way up, a query: one line says what to give."""
    with pytest.raises(ValueError, match="give"):
        addresses.normalize(text)


def test_outage_while_a_command_lasts_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And that it is over: what a page shows doesn't change meanwhile, and nothing else says so."""
    answers: list[Exception | None] = [None, Unavailable("no route"), Unavailable("refused"), None, Unavailable("away")]

    def refresh(where: str, root: Path) -> None:
        if not answers:
            raise RuntimeError("the process ends")
        if (answer := answers.pop(0)) is not None:
            raise answer

    monkeypatch.setattr(mirror, "refresh", refresh)
    monkeypatch.setattr(mirror, "FOLLOW_S", 0.0)
    mirror.Following("s3://bucket/runs", tmp_path).run()
    assert capsys.readouterr().err.splitlines() == [
        "trackers: no route; what was copied before is shown, and it is tried again every 0 s",
        "trackers: s3://bucket/runs is read again",
        "trackers: away; what was copied before is shown, and it is tried again every 0 s",
    ]


def test_copy_is_named_by_its_store(tmp_path: Path) -> None:
    """Where a run isn't found in it, or it has none: nobody looks for runs in a cache."""
    where = f"file://{tmp_path}/store"
    root = mirror.update_copy(where, str(tmp_path / "reader"))
    assert addresses.display_name(root) == where
    with pytest.raises(NotFound, match=f"no runs in {re.escape(where)}: "):
        runs_named("abc", root)
    Sender(Store(where), run_directory(tmp_path / "run"), HOME).finish()
    mirror.copy(where, root)
    with pytest.raises(NotFound, match=f"no run 'xyz' in {re.escape(where)}"):
        runs_named("xyz", root)
    assert addresses.display_name(tmp_path) == str(tmp_path)
    (tmp_path / addresses.COPY_MARKER).write_bytes(b"\xff\n")
    assert addresses.display_name(tmp_path) == str(tmp_path)
