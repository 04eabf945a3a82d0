"""One door for every text file that is read: unpacked where it is packed, and UTF-8 whatever Unicode it was written in.

What a file is, its first bytes say, not its name: gzip, xz, bzip2, Zstandard; a byte-order mark of UTF-8, UTF-16 or
UTF-32, or UTF-16 without one whose first characters are ASCII.
"""

from __future__ import annotations

import codecs
import contextlib
import importlib
import io
import re
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, TypeVar, cast

from trackers.errors import MissingPackage
from trackers.support.seekable_zstd import need_zstd

T = TypeVar("T")

SUFFIXES = (".gz", ".xz", ".bz2", ".zst")
GROWTH_FROM = 64 * 1024 * 1024
GROWTH_MOST = 200
"""Maximum expansion of a packed text above that size; a log of nothing but one line packs to about a hundredth."""
BLOCK = 1 << 16
ZSTD_BLOCK = 1 << 10
"""Packed bytes taken at once: they unpack to 32 MB at most."""

_GZIP, _XZ, _BZIP2 = b"\x1f\x8b", b"\xfd7zXZ\x00", b"BZh"
_ZSTD = re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18")
_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32-le"), (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"),
)  # fmt: skip
_UNMARKED = ((re.compile(rb"(?:[\t\n\r -~]\0){3}"), "utf-16-le"), (re.compile(rb"(?:\0[\t\n\r -~]){3}"), "utf-16-be"))


def narrowed(line: bytes) -> bytes:
    """A line of UTF-16 in a file that is UTF-8 before it, as PowerShell's ``>>`` leaves it; any other as it is.

    A line ends within its last character, whose rest the next one begins with.
    """
    wide = line.removeprefix(b"\0").removeprefix(codecs.BOM_UTF16_LE)
    if not _UNMARKED[0][0].match(wide):
        return line
    text = wide.removesuffix(b"\n")
    return text.decode("utf-16-le", "replace").encode() + wide[len(text) :]


class PackedError(ValueError):
    """A packed file is cut or damaged, or unpacks to far too much: what came before it has been read."""


def bare_name(name: str) -> str:
    """A file's name without the suffix of a packed one."""
    return next((name[: -len(suffix)] for suffix in SUFFIXES if name.lower().endswith(suffix)), name)


def is_plain(path: Path) -> bool:
    """Whether a file's bytes are its text: neither packed nor with a mark at its beginning."""
    with path.open("rb") as file:
        return _form(file.peek(8)) == "" and _encoding(file.peek(8)) == ""


def as_text(file: Any) -> BinaryIO:
    """A buffered binary file as the bytes of its text in UTF-8; the file itself where it is that.

    Raises, from the reading: PackedError, see there. MissingPackage: nothing here unpacks Zstandard.
    """
    form = _form(file.peek(8))
    if form:
        file = io.BufferedReader(_Unpacked(file, form), BLOCK)
    try:
        encoding = _encoding(file.peek(8))
    except PackedError:  # which reading it says again
        encoding = ""
    if encoding == "utf-8":
        file.read(len(codecs.BOM_UTF8))
    elif encoding:
        file = io.BufferedReader(_Recoded(file, encoding), BLOCK)
    return cast(BinaryIO, file)


@contextlib.contextmanager
def open_bytes(path: Path) -> Iterator[BinaryIO]:
    """A file as the bytes of its text; errors as :func:`as_text`."""
    with path.open("rb") as file:
        yield as_text(file)


@contextlib.contextmanager
def open_text(path: Path) -> Iterator[io.TextIOWrapper]:
    """A file as text, its line ends as they are; half a character at its end is left out.

    Raises, from the reading: UnicodeDecodeError: it isn't UTF-8. Else as :func:`as_text`.
    """
    with open_bytes(path) as file:
        text = io.TextIOWrapper(file, encoding="utf-8", errors=_LEAVE_CUT, newline="")
        try:
            yield text
        finally:
            with contextlib.suppress(ValueError, OSError):
                text.detach()


def _leave_cut(error: UnicodeError) -> tuple[str, int]:
    if isinstance(error, UnicodeDecodeError) and error.reason == "unexpected end of data":
        return "", error.end
    raise error


_LEAVE_CUT = "trackers-leave-cut"
codecs.register_error(_LEAVE_CUT, _leave_cut)


def read_text(path: Path) -> str:
    """The whole text of a file; errors as :func:`open_text`."""
    with open_text(path) as file:
        return file.read()


def undamaged(items: Iterable[T]) -> Iterator[T]:
    """Items up to where a packed file is damaged: for a first look at what it holds."""
    with contextlib.suppress(PackedError):
        yield from items


def _form(head: bytes) -> str:
    if head.startswith(_GZIP):
        return "gzip"
    if head.startswith(_XZ):
        return "lzma"
    if head.startswith(_BZIP2) and head[3:4] in b"123456789" and len(head) > 3:
        return "bz2"
    return "zstd" if _ZSTD.match(head) else ""


def _encoding(head: bytes) -> str:
    if head.startswith(codecs.BOM_UTF8):
        return "utf-8"
    named = next((name for mark, name in _MARKS if head.startswith(mark)), "")
    return named or next((name for pattern, name in _UNMARKED if pattern.match(head)), "")


class _CountedFile(io.RawIOBase):
    """A file that counts what is read of it: a pipe doesn't tell where it is."""

    def __init__(self, file: Any) -> None:
        self._file, self.count = file, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        block = self._file.read1(len(buffer)) if hasattr(self._file, "read1") else self._file.read(len(buffer))
        buffer[: len(block)] = block
        self.count += len(block)
        return len(block)


class _Unpacked(io.RawIOBase):
    """What a packed file holds, up to where it unpacks to more than any text does."""

    def __init__(self, packed: Any, form: str) -> None:
        self._packed = _CountedFile(packed)
        self._size, self._damage = 0, ""
        self._errors: tuple[type[Exception], ...] = (EOFError, zlib.error)
        if form == "zstd":
            zstd = need_zstd("files of Zstandard")
            self._errors += (zstd.ZstdError,)
            self._file: Any = _Zstd(self._packed, zstd)
            return
        try:
            module = importlib.import_module(form)
        except ImportError as error:  # a Python that was built without it
            raise MissingPackage(f"this Python can't unpack the file: {error}") from None
        if form == "lzma":
            self._errors += (module.LZMAError,)
        buffered = io.BufferedReader(self._packed, BLOCK)
        opened = {"gzip": "GzipFile", "bz2": "BZ2File", "lzma": "LZMAFile"}[form]
        self._file = getattr(module, opened)(**{"fileobj" if form == "gzip" else "filename": buffered})

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if self._damage:
            raise PackedError(self._damage)
        try:
            block = self._file.read1(len(buffer))  # or what came before the damage would be lost with it
        except self._errors as error:
            self._damage = f"the packed file is cut or damaged: {error}"
            raise PackedError(self._damage) from None
        except OSError as error:
            if error.errno is not None:  # of the disk
                raise
            self._damage = f"the packed file is cut or damaged: {error}"
            raise PackedError(self._damage) from None
        self._size += len(block)
        if self._size > GROWTH_FROM and self._size > GROWTH_MOST * self._packed.count:
            self._damage = f"the packed file unpacks to more than {GROWTH_MOST} times its length"
            raise PackedError(self._damage)
        buffer[: len(block)] = block
        return len(block)


class _Zstd:
    """The frames of a file of Zstandard's, one behind the other."""

    def __init__(self, packed: Any, zstd: Any) -> None:
        self._packed, self._zstd = packed, zstd
        self._frame: Any = None
        self._rest, self._ready = b"", memoryview(b"")

    def read1(self, size: int) -> bytes:
        while not self._ready:
            block = self._rest or self._packed.read(ZSTD_BLOCK)
            self._rest = b""
            if not block:
                if self._frame is not None:
                    raise EOFError("its end is missing")
                return b""
            if self._frame is None:
                decompressor = self._zstd.ZstdDecompressor()
                self._frame = decompressor.decompressobj() if hasattr(decompressor, "decompressobj") else decompressor
            self._ready = memoryview(self._frame.decompress(block))
            if self._frame.eof:
                self._rest, self._frame = self._frame.unused_data, None
        block, self._ready = bytes(self._ready[:size]), self._ready[size:]
        return block


class _Recoded(io.RawIOBase):
    """A text of another encoding as UTF-8; what isn't a character is U+FFFD."""

    def __init__(self, file: Any, encoding: str) -> None:
        self._file = file
        self._decoder = codecs.getincrementaldecoder(encoding)(errors="replace")
        self._ready = b""
        self._begun = self._ended = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._ready and not self._ended:
            block = self._file.read(BLOCK)
            self._ended = not block
            text = self._decoder.decode(block)  # half a character at the end is none
            if text and not self._begun:
                text, self._begun = text.removeprefix("\ufeff"), True
            self._ready = text.encode("utf-8")
        part, self._ready = self._ready[: len(buffer)], self._ready[len(buffer) :]
        buffer[: len(part)] = part
        return len(part)
