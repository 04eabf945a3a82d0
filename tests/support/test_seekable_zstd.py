"""Packed files read as if they weren't, from any place in them."""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trackers.errors import MissingPackage, NotFound
from trackers.support import seekable_zstd
from trackers.support.seekable_zstd import (
    PackedFile,
    UncompressedContent,
    content_of,
    open_file,
    pack,
    packed_path,
    size_of,
)


def make(content: bytes) -> Path:
    """A file that is there in packed form only; returns where the plain one was."""
    path = Path("stream.jsonl")
    path.write_bytes(content)
    pack(path, packed_path(path))
    path.unlink()
    return path


@pytest.mark.heavy
@settings(max_examples=40, deadline=None)
@given(content=st.binary(max_size=300), frame=st.integers(1, 64), data=st.data())
def test_any_part_is_what_it_was(content: bytes, frame: int, data: st.DataObject) -> None:
    """Reading from any place gives what the plain file holds there, whatever lies in one frame."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(seekable_zstd, "FRAME_BYTES", frame)
        path = make(content)
        start = data.draw(st.integers(0, len(content) + 5))
        count = data.draw(st.integers(0, 80))
        with open_file(path) as file:
            file.seek(start)
            assert file.read(count) == content[start : start + count]
            assert file.seek(0, os.SEEK_END) == len(content)
            file.seek(0)
            assert file.read() == content
        assert size_of(path) == len(content)


def test_content_is_told_with_its_digest() -> None:
    """Packing says what it read, and reading back says the same."""
    path = Path("log")
    path.write_bytes(b"line\n" * 1000)
    told = pack(path, packed_path(path))
    assert told == content_of(path) == content_of(packed_path(path))
    assert told == UncompressedContent(5000, hashlib.sha256(b"line\n" * 1000).hexdigest())
    assert packed_path(path).stat().st_size < 500
    assert packed_path(path).stat().st_mtime_ns == path.stat().st_mtime_ns


def test_plain_file_comes_first() -> None:
    """Where both forms lie, as in the middle of archiving, the plain one is read."""
    path = make(b"old")
    path.write_bytes(b"plain")
    assert open_file(path).read() == b"plain"
    assert size_of(path) == 5


@pytest.mark.parametrize("cut", [1, 20, 40])
def test_damage_is_one_line(cut: int) -> None:
    """A packed file that was cut is named, never read as an empty one."""
    path = make(b"x\n" * 500)
    whole = packed_path(path)
    whole.write_bytes(whole.read_bytes()[:-cut])
    with pytest.raises(NotFound, match=r"stream\.jsonl\.zst is damaged .*backup"):
        open_file(path)


def test_changed_byte_is_noticed() -> None:
    """A frame that doesn't unpack is damage, too."""
    path = make(os.urandom(1000))
    whole = packed_path(path)
    content = bytearray(whole.read_bytes())
    content[0] ^= 0xFF
    whole.write_bytes(content)
    with pytest.raises(NotFound, match="is damaged"), open_file(path) as file:
        file.read()


def test_missing_file_is_not_found() -> None:
    """What is there in neither form is missing, as with ``open``."""
    with pytest.raises(FileNotFoundError):
        open_file(Path("none"))
    with pytest.raises(FileNotFoundError):
        size_of(Path("none"))


def test_file_that_could_not_be_opened_closes_without_a_word() -> None:
    """Python closes each file object as it goes, also one whose file wasn't there."""
    file = PackedFile.__new__(PackedFile)
    with pytest.raises(FileNotFoundError):
        file.__init__(Path("none"))  # type: ignore[misc]
    file.close()
    assert file.closed


def test_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without Zstandard an archived run is one line that says what to install; plain files are read."""
    path = make(b"x")
    for name in ("compression.zstd", "zstandard"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingPackage, match="zstandard package: pip install 'trackers-relay\\[archive\\]'"):
        open_file(path)
    path.write_bytes(b"plain")
    assert open_file(path).read() == b"plain"
