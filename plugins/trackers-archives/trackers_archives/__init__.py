"""Archives that a vendor's own client uploads, written without that client and exact.

``<key>/<lines>`` grows by whole batches, and its committed length is in the state, so that it is cut back to it when it
is opened again. ``<key>.zip`` is made from it when the run ends: with what only the end can tell (name, tags, results,
status), and with the files that the lines name. A run that goes on after its end gets another archive in its place. A
rewind to a checkpoint writes the lines anew: each such file has a number, its generation, in its first line, so that a
kill before the commit is seen.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shlex
import time
import zipfile
import zlib
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

import msgspec

from trackers.backends.shared import media_files
from trackers.backends.shared.append_file import (
    DIGESTS,
    READ_BYTES,
    FileShrunk,
    OwnedFile,
    digests,
    make_folder,
    path_key,
    remove_temporary,
    take_with_rewinds,
    unavailable,
    unseen,
    verified,
)
from trackers.backends.shared.directory import option_directory
from trackers.backends.shared.kept_file import keep
from trackers.records import ALL_KINDS, ArtifactRecord, Info, Record, Summary, final_name, name_floats, take_results
from trackers.support import confined
from trackers.tracker import Cursor, RunInfo, State, Status, Tracker, Verified

KEY_CHARS = 32
"""Length of an archive's key, and of the names of its files: hexadecimal digits."""


class CommittedState(msgspec.Struct):
    """The tracker's state, from which a new process continues.

    length, generation: of the lines, committed. seq: highest record taken. num: of the last line. rewound: the newest
    attempt whose rewind was written. name, group, tags, notes: the run's newest ones. results: by name. archived: the
    status, the length and the highest record that the archive was made of.
    """

    length: int = 0
    generation: int = 0
    seq: int = 0
    num: int = 0
    rewound: int = 0
    name: str = ""
    group: str | None = None
    tags: list[str] = []
    notes: str | None = None
    results: dict[str, Any] = {}
    archived: list[Any] = []


class ArchiveTracker(Tracker):
    """A tracker that writes ``<symbol>/<key>.zip``, or ``<name>/<key>.zip`` in the run's directory, as the run ends.

    Attributes:
        name, symbol: of its precheck.
        lines: name of the file of lines. key_prefix: how keys begin. command: what uploads an archive.
    """

    lines: ClassVar[str]
    command: ClassVar[str]
    key_prefix: ClassVar[str] = ""
    deadline_s = 1800.0
    accepts = ALL_KINDS

    @abstractmethod
    def _head(self, state: CommittedState) -> bytes:
        """The first line: JSON with the number ``generation``."""

    @abstractmethod
    def _lines(self, record: Record, draft: CommittedState) -> Iterator[bytes]:
        """A record as lines; ``draft`` is what the state becomes. Results and attributes are taken by the caller."""

    @abstractmethod
    def _is_superseded(self, line: bytes, last_step: int) -> bool:
        """Whether a line has a step above the last one that counts."""

    @abstractmethod
    def _file_of(self, line: bytes) -> str:
        """The file beside the lines that a line names, or ""."""

    @abstractmethod
    def _fill(self, archive: zipfile.ZipFile, lines: Iterator[bytes], status: Status) -> None:
        """Put the lines, head included, their files, and what only the end can tell into an archive."""

    @classmethod
    def _key_of(cls, info: RunInfo) -> str:
        digest = hashlib.sha256(f"{info.project}\0{info.id}\0{info.created}".encode()).hexdigest()
        return f"{cls.key_prefix}{digest[:KEY_CHARS]}"

    @classmethod
    def own_files(cls, info: RunInfo, state: State) -> list[Path]:
        """What of the run lies outside of its directory (:class:`trackers.tracker.Tracker`)."""
        chosen, key = option_directory(info, cls.symbol), cls._key_of(info)
        return [] if chosen is None else [chosen / key, chosen / f"{key}.zip"]

    def open(self, info: RunInfo, state: State) -> Cursor | None:
        """Cut the lines back to what was committed; those that don't match the state are written anew."""
        self._info, self._state = info, state
        chosen = option_directory(info, self.symbol)
        self._root = Path(info.directory) if chosen is None else chosen
        parent = info.path(self.name) if chosen is None else chosen
        self._key = self._key_of(info)
        self._directory, self._archive = parent / self._key, parent / f"{self._key}.zip"
        self._digests = digests(state)
        self._file = OwnedFile(self._directory / self.lines, self._root, self._digests)
        self._temporary = self._directory / f".{Path(self.lines).stem}.tmp"
        for temporary in (self._temporary, self._archive.with_name(f".{self._key}.tmp")):
            remove_temporary(temporary)
        self._committed = msgspec.convert(dict(state).get("marks", {}), CommittedState)
        state["url"] = f"{self.command} {shlex.quote(str(self._archive))}"
        answer = None
        try:
            if self._committed.length:
                self._check_generation()
                self._file.open(self._committed.length)
                return None
        except FileShrunk:
            answer = Cursor(0)
        self._committed = CommittedState(name=info.name, group=info.group, tags=list(info.tags), notes=info.notes)
        self._committed.generation, self._committed.num = time.time_ns(), 1
        self._file.open()
        self._file.append(self._head(self._committed))
        self._committed.length = self._file.length
        return answer

    def write(self, records: Sequence[Record], cursor: Cursor) -> None:
        """Append the batch's lines, all of them or none."""
        take_with_rewinds(unseen(records, self._committed.seq), self._committed.rewound, self._take, self._rewind)
        self._commit()

    def verify(self) -> Verified:
        """Read lines, files and archive back, as :class:`trackers.tracker.Tracker` says. Damage: all anew."""
        files = [(self._file.path, self._root)]
        if self._committed.archived:
            files.append((self._archive, self._root))
        result = verified(files, self._digests)
        bad = list(result.damaged)
        if not bad:
            bad = [str(path) for path in self._named_files() if not self._holds(path)]
        if bad:
            with contextlib.suppress(FileNotFoundError):
                confined.remove(self._file.path, root=self._root)
        return Verified(result.checked, bad, Cursor(0) if bad else None)

    def close(self, status: Status) -> None:
        """Make the archive, unless the run goes on or it is there already."""
        self._file.check()
        if status.name != "running":
            made_of = [status.name, self._committed.length, self._committed.seq]
            if self._committed.archived != made_of or not confined.is_file(self._archive, root=self._root):
                self._make_archive(status)
                self._committed = msgspec.structs.replace(self._committed, archived=made_of)
                self._commit()
        self._file.close()

    def _keep_content(self, content: bytes, suffix: str) -> str:
        """Write a file of this content beside the lines; its name, which is its checksum."""
        inside = f"{hashlib.sha256(content).hexdigest()[:KEY_CHARS]}.{suffix}"
        path = self._directory / inside
        try:
            make_folder(self._directory, self._root)
            confined.write_whole(path, content, root=self._root)
        except OSError as error:
            raise unavailable("write", path, error) from error
        return inside

    def _keep_file(self, record: ArtifactRecord, index: int) -> tuple[str, Path]:
        """Put a file of an artifact beside the lines; its name there, without a suffix, and the run's own file."""
        local = media_files.path(self._info, record.files[index])
        key = f"{record.id}\0{record.seq}\0{index}\0{record.files[index].file}"
        inside = hashlib.sha256(key.encode("utf-8", "replace")).hexdigest()[:KEY_CHARS]
        keep(self._info, local, self._directory / inside, self._root, self._temporary)
        return inside, local

    def _add_file(self, archive: zipfile.ZipFile, inside: str, name: str) -> None:
        """Put a file from beside the lines into an archive."""
        with confined.open_file(self._directory / inside, root=self._root) as file:
            self._add(archive, name, _pieces(file), compressed=False)  # media are

    def _add(self, archive: zipfile.ZipFile, name: str, pieces: Iterator[bytes], *, compressed: bool = True) -> None:
        entry = zipfile.ZipInfo(name, time.gmtime(max(self._info.created, _FIRST_ZIP_TIME))[:6])
        entry.compress_type = zipfile.ZIP_DEFLATED if compressed else zipfile.ZIP_STORED
        with archive.open(entry, "w", force_zip64=True) as member:  # the size isn't known yet
            for piece in pieces:
                member.write(piece)

    def _named_files(self) -> Iterator[Path]:
        """The files that the lines name."""
        with confined.open_file(self._file.path, root=self._root) as lines:
            for inside in filter(None, map(self._file_of, lines)):
                yield self._directory / inside

    def _holds(self, path: Path) -> bool:
        """Whether a file is there; that it is what its name says, where the name is its checksum."""
        try:
            with confined.open_file(path, root=self._root) as file:
                if not path.suffix:
                    return True
                digest = hashlib.sha256()
                for piece in _pieces(file):
                    digest.update(piece)
        except OSError:
            return False
        return digest.hexdigest()[:KEY_CHARS] == path.stem

    def _commit(self) -> None:
        self._state["marks"] = name_floats(msgspec.to_builtins(self._committed))
        self._state[DIGESTS] = dict(self._digests)

    def _take(self, batch: Sequence[Record]) -> None:
        if not batch:
            return
        draft = msgspec.structs.replace(self._committed)
        lines: list[bytes] = []
        for record in batch:
            lines += self._lines(record, draft)
            if isinstance(record, Summary):
                draft.results = take_results(dict(draft.results), record, final_name)
            elif isinstance(record, Info):
                for name, value in record.changes().items():
                    setattr(draft, name, value)
        draft.seq = max(draft.seq, *(record.seq for record in batch))
        self._file.append(b"".join(lines))
        draft.length = self._file.length
        self._committed = draft

    def _check_generation(self) -> None:
        """Raise FileShrunk when the lines are others than the state's: a kill came between the two."""
        try:
            with confined.open_file(self._file.path, root=self._root) as file:
                first = json.loads(file.readline(READ_BYTES))
                generation = first["generation"]
        except FileNotFoundError as error:
            raise FileShrunk(str(error)) from error
        except (ValueError, LookupError, TypeError, AttributeError):
            generation = None
        except OSError as error:
            raise unavailable("read", self._file.path, error) from error
        if generation != self._committed.generation:
            raise FileShrunk(f"{self._file.path} isn't what was committed")

    def _rewind(self, last_step: int, attempt: int) -> None:
        """The lines anew, without those above ``last_step``."""
        state = msgspec.structs.replace(self._committed, rewound=attempt, generation=time.time_ns())
        self._file.rewrite(self._anew(state, last_step), self._temporary)
        self._committed = msgspec.structs.replace(state, length=self._file.length)

    def _anew(self, state: CommittedState, last_step: int) -> Iterator[bytes]:
        yield self._head(state)
        with confined.open_file(self._file.path, root=self._root) as file:
            lines = self._committed_lines(file)
            next(lines, None)
            yield from (line for line in lines if not self._is_superseded(line, last_step))

    def _committed_lines(self, file: BinaryIO) -> Iterator[bytes]:
        """The lines of an open file, as far as they are committed."""
        left = self._committed.length
        for line in file:
            left -= len(line)
            if left < 0:
                return
            yield line

    def _make_archive(self, status: Status) -> None:
        """Write the archive beside the old one and put it in its place.

        Raises:
            Unavailable: it can't be written.
        """
        temporary = confined.temporary(self._archive)
        try:
            make_folder(self._archive.parent, self._root)
            try:
                with (
                    confined.open_file(temporary, "xb", root=self._root) as out,
                    zipfile.ZipFile(out, "w") as archive,
                    confined.open_file(self._file.path, root=self._root) as written,
                ):
                    self._fill(archive, self._committed_lines(written), status)
                with confined.open_file(temporary, root=self._root) as made:
                    crc = size = 0
                    for piece in _pieces(made):
                        crc, size = zlib.crc32(piece, crc), size + len(piece)
                confined.replace(temporary, self._archive, root=self._root)
                self._digests[path_key(self._archive)] = (size, crc)
            except BaseException:
                confined.remove(temporary, root=self._root)
                raise
        except OSError as error:
            raise unavailable("write", self._archive, error) from error


def ending(status: Status) -> str:
    """How a run ended, on one line: status, exit code and reason."""
    code = "" if status.exit_code is None else f" (exit code {status.exit_code})"
    return f"{status.name}{code}: {status.reason}".rstrip(": ")


def _pieces(file: BinaryIO) -> Iterator[bytes]:
    while piece := file.read(READ_BYTES):
        yield piece


_FIRST_ZIP_TIME = 315619200.0
"""1980, before which no archive has times."""
