"""The JSON log's lists as append-only files beside it, and the log put together from them.

A list's file holds its items, each as ``,\\n    {…}``, so that the log is made by copying bytes: its memory stays
flat and its cost is that of reading the lists once.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from trackers.backends.shared.append_file import Digests, FileShrunk, OwnedFile
from trackers.records import name_floats
from trackers.support import confined

DOCUMENTED = ("training_iterations", "eval_steps", "checkpoints")
"""Lists that every log has, empty or not, in the format's order."""

MORE = ("samples", "text", "media", "artifacts", "alerts")
"""Lists that a log has when there is something in them."""

CHUNK_BYTES = 1 << 20
_PART = ".part"
_encoder = msgspec.json.Encoder()


class Lists:
    """The files of one log's lists, all grown or all left as they are.

    Args:
        directory: where they lie, in the run's. names: lists that the log has, empty or not. more: those that it has
            when there is something in them.
        digests: of the lists' files; see :class:`trackers.backends.shared.append_file.OwnedFile`.
    """

    def __init__(
        self,
        directory: Path,
        names: Sequence[str] = DOCUMENTED,
        more: Sequence[str] = MORE,
        digests: Digests | None = None,
    ) -> None:
        self._directory = directory
        self._root = directory.parent
        self._digests: Digests = {} if digests is None else digests
        self._names, self._more = tuple(names), tuple(more)
        self._files: dict[str, OwnedFile] = {}
        self._waiting: dict[str, bytearray] = {}

    def open(self, lengths: Mapping[str, int], generation: int) -> None:
        """Cut every list back to its length, by name, and remove what a killed process left.

        Raises:
            Damaged: a list is gone or shorter.
        """
        self.close()
        self._waiting.clear()
        self._generation = generation
        for name, length in lengths.items():
            if length and confined.is_plain_name(name):
                self._files[name] = OwnedFile(self._path(name), self._root, self._digests).open(length)
        paths = {file.path for file in self._files.values()}
        for path in self._directory.glob(f"*{_PART}"):
            if path not in paths:
                with contextlib.suppress(OSError):
                    confined.remove(path, root=self._root)
        for name in [known for known in self._digests if known.endswith(_PART)]:
            if self._directory / name not in paths:
                del self._digests[name]

    def paths(self) -> list[tuple[Path, Path]]:
        """The lists' files, each with the directory that it must lie beneath."""
        return [(file.path, self._root) for file in self._files.values()]

    def add(self, name: str, item: Mapping[str, Any]) -> None:
        """Put an item (of JSON values) at the end of a list; :meth:`flush` writes it."""
        self._waiting.setdefault(name, bytearray()).extend(encode(item))

    def flush(self) -> dict[str, int]:
        """Write what was added, all or nothing; the new lengths by name.

        Raises:
            Unavailable: a file can't be written; the lists are as before, and nothing waits.
        """
        waiting, self._waiting = self._waiting, {}
        before = self.lengths()
        try:
            for name, data in waiting.items():
                if name not in self._files:
                    self._files[name] = OwnedFile(self._path(name), self._root, self._digests).open()
                self._files[name].append(bytes(data))
        except Exception:
            for name, file in self._files.items():
                file.truncate(before.get(name, 0))
            raise
        return self.lengths()

    def drop(self) -> None:
        """Forget what was added since the last flush."""
        self._waiting.clear()

    def lengths(self) -> dict[str, int]:
        """Bytes of each list on disk, by name."""
        return {name: file.length for name, file in self._files.items() if file.length}

    def items(self, name: str) -> Iterator[dict[str, Any]]:
        """The items of a list as it is on disk; none where there is no such list."""
        file = self._files.get(name)
        return items(file.path, file.length) if file is not None else iter(())

    def rewrite(self, is_kept: Callable[[str, dict[str, Any]], bool]) -> tuple[dict[str, int], int]:
        """Rewrite all lists with the items for which ``is_kept(list's name, item)`` is true: lengths and generation.

        The former files stay until the next :meth:`open`, so that a kill before the commit costs nothing.
        """
        former, generation = self._files, self._generation
        written: dict[str, OwnedFile] = {}
        try:
            self._generation += 1
            for name, file in former.items():
                new = written[name] = OwnedFile(self._path(name), self._root, self._digests).open()
                buffer = bytearray()
                for item in items(file.path, file.length):
                    if is_kept(name, item):
                        buffer += encode(item)
                        if len(buffer) >= CHUNK_BYTES:
                            new.append(bytes(buffer))
                            buffer.clear()
                new.append(bytes(buffer))
        except Exception:
            self._generation = generation
            for new in written.values():
                new.close()
            raise
        self._files = written
        for file in former.values():
            file.close()
        return self.lengths(), self._generation

    def pieces(
        self, head: Mapping[str, Any], tail: Mapping[str, Any], more: Mapping[str, Iterable[Mapping[str, Any]]]
    ) -> Iterator[bytes]:
        """The log, in pieces of bounded size.

        Args:
            head, tail: what stands before and behind the lists.
            more: items that aren't in the lists' files yet, by list.
        """
        yield b"{\n" + b"".join(_member(name, value) for name, value in head.items())
        for name in (*self._names, *self._more):
            waiting = b"".join(encode(item) for item in more.get(name, ()))
            file = self._files.get(name)
            stored = file.length if file else 0
            if not (stored or waiting or name in self._names):
                continue
            yield f"  {json.dumps(name)}: [".encode()
            if file is not None and stored:
                yield from _chunks(file.path, stored)
                yield waiting
            else:
                yield waiting[1:]
            yield b"\n  ],\n" if stored or waiting else b"],\n"
        yield b"".join(_member(name, value) for name, value in tail.items())[:-2] + b"\n}\n"

    def close(self) -> None:
        """Close all files."""
        for file in self._files.values():
            file.close()
        self._files = {}

    def _path(self, name: str) -> Path:
        return self._directory / f"{name}.{self._generation}{_PART}"


def encode(item: Mapping[str, Any]) -> bytes:
    """An item as a list's file holds it. Without NaN and infinities: JSON has none."""
    line = _encoder.encode(item)
    if b"null" in line:  # msgspec's NaN, or a None
        line = _encoder.encode(name_floats(item))
    return b",\n    " + line


def items(path: Path, length: int) -> Iterator[dict[str, Any]]:
    """The items in the first ``length`` bytes of a list's file."""
    with confined.open_file(path, root=path.parents[1]) as lines:
        left = length
        for line in lines:
            left -= len(line)
            if left < 0:
                line = line[:left]
            item = line.strip().removesuffix(b",")
            if item:
                yield msgspec.json.decode(item)
            if left <= 0:
                return


def _chunks(path: Path, length: int) -> Iterator[bytes]:
    """A list's file without its first comma."""
    try:
        source = confined.open_file(path, root=path.parents[1])
    except FileNotFoundError:
        raise FileShrunk(f"{path} is gone") from None
    with source:
        source.seek(1)
        left = length - 1
        while left > 0:
            chunk = source.read(min(CHUNK_BYTES, left))
            if not chunk:
                raise FileShrunk(f"{path} is shorter than it was written")
            left -= len(chunk)
            yield chunk


def _member(name: str, value: Any) -> bytes:
    text = json.dumps(name_floats(value), indent=2, ensure_ascii=False, default=str)
    return f"  {json.dumps(name)}: {text}".replace("\n", "\n  ").encode("utf-8", "replace") + b",\n"
