"""The door of all text files: what is packed or in another Unicode reads as the plain text; damage is said."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from trackers.errors import MissingPackage
from trackers.formats import text_file

PACKINGS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes, ".gz": gzip.compress, ".xz": lzma.compress, ".bz2": bz2.compress, ".zst": zstandard.compress,
}  # fmt: skip
ENCODINGS = ("utf-8", "utf-8-sig", "utf-16", "utf-32")
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\ufeff"), max_size=2000)


def read(content: bytes) -> bytes:
    return text_file.as_text(io.BufferedReader(io.BytesIO(content))).read()


@given(TEXT, st.sampled_from(sorted(PACKINGS)), st.sampled_from(ENCODINGS))
def test_text_is_the_same_however_it_is_packed_and_encoded(text: str, packing: str, encoding: str) -> None:
    """Any text comes out as UTF-8, but for what itself looks packed or encoded."""
    if encoding == "utf-16" and text.startswith("\0"):
        return  # with that, its mark is UTF-32's
    plain = text.encode()
    if text_file._form(plain) or text_file._encoding(plain):
        return
    assert read(PACKINGS[packing](text.encode(encoding))) == plain


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_ascii_in_utf_16_needs_no_mark(encoding: str) -> None:
    """The first three characters say it."""
    assert read('{"step": 1, "ü": 2}\n'.encode(encoding)) == '{"step": 1, "ü": 2}\n'.encode()


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-16-be", "utf-32"])
def test_half_a_character_at_the_end_is_left_out(tmp_path: Path, encoding: str) -> None:
    """A file that is still being written, or was cut, says what is before it; damage elsewhere is an error."""
    path, text = tmp_path / "a", 'step: 1 "ü": 2é'
    path.write_bytes(text.encode(encoding)[:-1])
    assert text_file.read_text(path) == text[:-1]
    path.write_bytes(b"a\xc3b")
    with pytest.raises(UnicodeDecodeError):
        text_file.read_text(path)


def test_plain_file_is_itself(tmp_path: Path) -> None:
    """Nothing stands between a reader and a file of UTF-8; one with a mark isn't plain."""
    file = io.BufferedReader(io.BytesIO(b"step,loss\n"))
    assert text_file.as_text(file) is file
    for content, plain in ((b"step,loss\n", True), (b"\xef\xbb\xbfa", False), (gzip.compress(b"a"), False)):
        (tmp_path / "a").write_bytes(content)
        assert text_file.is_plain(tmp_path / "a") is plain


@pytest.mark.parametrize("packing", [".gz", ".xz", ".bz2", ".zst"])
def test_lines_before_a_cut_are_read(packing: str) -> None:
    """Of a file that is cut the whole lines before come first, then an error, each time it is asked."""
    lines = [f"{number}: {number * 7919 % 10007:x}\n".encode() for number in range(200_000)]
    packed = PACKINGS[packing](b"".join(lines))
    file = text_file.as_text(io.BufferedReader(io.BytesIO(packed[: len(packed) * 3 // 4])))
    found = list(text_file.undamaged(iter(file.readline, b"")))
    assert 1000 < len(found) < len(lines)
    assert found == lines[: len(found)]
    for _ in range(2):
        with pytest.raises(text_file.PackedError, match="cut or damaged"):
            file.read()


@pytest.mark.parametrize("packing", [".gz", ".xz", ".bz2", ".zst"])
def test_files_one_behind_the_other_are_one(packing: str) -> None:
    """As ``cat a.gz b.gz`` makes them."""
    pack = PACKINGS[packing]
    assert read(pack(b"step,loss\n") + pack(b"1,0.5\n")) == b"step,loss\n1,0.5\n"


def test_file_that_unpacks_to_far_too_much_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is read up to the bound, in little memory."""
    monkeypatch.setattr(text_file, "GROWTH_FROM", 1 << 20)
    file = text_file.as_text(io.BufferedReader(io.BytesIO(gzip.compress(bytes(1 << 24)))))
    assert len(list(text_file.undamaged(iter(lambda: file.read(1 << 16), b"")))) < 1 << 8
    with pytest.raises(text_file.PackedError, match="more than 200 times"):
        file.read(1)


def test_errors_of_the_disk_stay_what_they_are() -> None:
    """They aren't taken for damage."""

    class Broken(io.RawIOBase):
        served = False

        def readable(self) -> bool:
            return True

        def readinto(self, buffer: bytearray) -> int:
            if self.served:
                raise OSError(5, "Input/output error")
            self.served = True
            head = bz2.compress(b"a" * 10_000)[:20]
            buffer[: len(head)] = head
            return len(head)

    with pytest.raises(OSError, match="Input/output error"):
        text_file.as_text(io.BufferedReader(Broken())).read()


def test_what_cannot_be_unpacked_here_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the package for Zstandard, or in a Python that was built without bzip2."""
    monkeypatch.setitem(sys.modules, "zstandard", None)
    monkeypatch.setitem(sys.modules, "compression.zstd", None)
    with pytest.raises(MissingPackage, match="zstandard"):
        read(zstandard.compress(b"a"))
    monkeypatch.setitem(sys.modules, "bz2", None)
    with pytest.raises(MissingPackage, match="can't unpack"):
        read(bz2.compress(b"a"))


def test_names_lose_the_suffix_of_a_packed_file() -> None:
    """One of them, in small or capital letters."""
    assert [text_file.bare_name(name) for name in ("a.csv.gz", "a.log.ZST", "a.json", "gz")] == [
        "a.csv", "a.log", "a.json", "gz",
    ]  # fmt: skip
