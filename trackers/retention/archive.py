"""Archiving a run: its journal and logs packed, each where it lay; and restoring them, byte for byte.

What is packed is read back whole and compared before anything is removed; a process that is killed leaves every file
in at least one of its forms, and the next call goes on. ``archive.json`` says what was packed: with it, the run is
archived. Media, what trackers wrote here, and the accounts of deliveries stay as they are.
"""

from __future__ import annotations

import contextlib
import fnmatch
import hashlib
import io
import os
import secrets
import tarfile
import time
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import BinaryIO, NamedTuple

import msgspec

from trackers.errors import UNDECODABLE, NotFound, TrackersError, UsageError
from trackers.journal.run_directory import RunDirectory, StreamName, replace_file
from trackers.records import is_time
from trackers.retention.lock import locked, why_kept
from trackers.retention.sizes import walk
from trackers.support import atomic_write, confined
from trackers.support.failpoints import failpoint
from trackers.support.seekable_zstd import (
    FRAME_BYTES,
    SUFFIX,
    UncompressedContent,
    blocks_of,
    content_of,
    need_zstd,
    pack,
    packed_path,
)

VERSION = 1
_PART = ".part"


class ArchivedFile(msgspec.Struct):
    """A packed file: its path in the run's directory, and what it was: bytes, SHA-256, time, permissions."""

    path: str
    size: int
    sha256: str
    mtime_ns: int
    mode: int


class ArchiveManifest(msgspec.Struct):
    """The content of ``archive.json``."""

    version: int = VERSION
    files: list[ArchivedFile] = []


class SizeChange(msgspec.Struct):
    """A change made to a run, or planned: bytes of its files before and after (after: 0 while that isn't known)."""

    before: int
    after: int = 0


def packable(run: RunDirectory) -> list[Path]:
    """The files that an archive packs and that aren't packed: streams, the relay's log and its messages."""
    streams = [run.stream(name) for name in run.stream_names()]
    return [path for path in (*streams, run.relay_log, run.messages) if path.is_file()]


def read_manifest(run: RunDirectory) -> ArchiveManifest:
    """What was packed.

    Raises:
        NotFound: the run isn't archived, or the file is damaged.
    """
    try:
        manifest = msgspec.json.decode(confined.read(run.archive), type=ArchiveManifest)
    except FileNotFoundError:
        raise NotFound(f"run {run.path} isn't archived: there is nothing to restore") from None
    except (OSError, *UNDECODABLE) as error:
        raise NotFound(f"{run.archive} can't be read ({error}): put it back from a backup") from None
    if manifest.version > VERSION:
        raise UsageError(f"{run.archive} was written by a newer version ({manifest.version}): update trackers")
    for entry in manifest.files:
        if not _is_packable(run, entry.path) or entry.size < 0:
            raise NotFound(
                f"{run.archive} names {entry.path!r:.200}, which no archive packs: nothing is restored by it"
            )
    return manifest


def _is_packable(run: RunDirectory, path: str) -> bool:
    """Whether a path in a manifest is one of the files that an archive packs: the file may say anything."""
    if path in (run.relay_log.name, run.messages.name):
        return True
    folder, _, name = path.partition("/")
    return folder == run.streams.name and name.endswith(".jsonl") and bool(StreamName.parse(name[: -len(".jsonl")]))


def archive(run: RunDirectory, older_than_s: float = 0.0) -> SizeChange:
    """Pack a run's files, read them back, and only then remove what was packed.

    Raises:
        UsageError: it must stay as it is, or another process works on it. MissingPackage: no Zstandard here.
        Damaged: a file has a long hole. OSError: no space, say: everything is as it was, or the next call goes on.
    """
    need_zstd()
    with locked(run) as hold:
        reason = why_kept(run, older_than_s, held=True)  # a new attempt may have begun since somebody looked
        if reason:
            raise UsageError(f"run {run.path} stays as it is: {reason}")
        before = {entry.path: entry for entry in read_manifest(run).files} if run.archived() else {}
        packed: list[tuple[Path, ArchivedFile, os.stat_result]] = []
        for path in packable(run):
            packed.append((path, *_packed(run, path)))
            hold.beat()
        entries = {**before, **{entry.path: entry for _, entry, _ in packed}}
        _sync_folders(run)
        failpoint("archive.manifest.before")
        _write(run, ArchiveManifest(files=list(entries.values())))
        failpoint("archive.manifest.after")
        hold.beat()
        if set(packable(run)) != {path for path, _, _ in packed}:  # an attempt that saw no archive begins
            _withdraw(run, before, [path for path, _, _ in packed])
            raise UsageError(f"run {run.path} stays as it is: it goes on")
        for path, _, seen in packed:
            if _changed(path, seen):
                raise UsageError(f"{path} has changed meanwhile: it stays as it is; `trackers archive` again")
            confined.remove(path)
            failpoint("archive.unlink.after")
        _sync_folders(run)
    return SizeChange(
        before=sum(entry.size for entry in entries.values()),
        after=sum(packed_path(run.path / entry.path).stat().st_size for entry in entries.values()),
    )


def restore(run: RunDirectory) -> SizeChange:
    """Put a run's files back as they were; the packed ones are removed once all are back.

    Raises:
        NotFound: the run isn't archived, or a packed file is damaged. UsageError: another process works on it, or a
            file is there that differs: nothing is overwritten. OSError: no space, say; the next call goes on.
    """
    manifest = read_manifest(run)
    with locked(run) as hold:
        packed = 0
        for entry in manifest.files:
            target = run.path / entry.path
            with contextlib.suppress(FileNotFoundError):
                packed += packed_path(target).stat().st_size
            if target.exists():
                is_same = target.stat().st_size == entry.size
                if not is_same or content_of(target) != UncompressedContent(entry.size, entry.sha256):
                    raise UsageError(f"{target} differs from the archived file: neither is touched; move one away")
            else:
                _unpack(target, entry)
            hold.beat()
        _sync_folders(run)
        failpoint("restore.unlink.before")
        for entry in manifest.files:
            with contextlib.suppress(FileNotFoundError):
                confined.remove(packed_path(run.path / entry.path))
            failpoint("restore.unlink.after")
        confined.remove(run.archive)
        for partial in _partial_files(run):
            confined.remove(partial)
        _sync_folders(run)
    return SizeChange(before=packed, after=sum(entry.size for entry in manifest.files))


def _withdraw(run: RunDirectory, before: dict[str, ArchivedFile], plain: list[Path]) -> None:
    """Have the run as it was: those files are there unpacked."""
    for path in plain:
        with contextlib.suppress(FileNotFoundError):
            confined.remove(packed_path(path))
    if before:
        _write(run, ArchiveManifest(files=[entry for entry in before.values() if run.path / entry.path not in plain]))
    else:
        confined.remove(run.archive)


def _packed(run: RunDirectory, path: Path) -> tuple[ArchivedFile, os.stat_result]:
    """Pack a file beside itself and read that back."""
    seen = os.stat(path)
    target = packed_path(path)
    part = target.with_name(f".{path.name}.{secrets.token_hex(8)}{_PART}{SUFFIX}")
    try:
        content = pack(path, part)
        failpoint("archive.packed")
        if content_of(part) != content:
            raise UsageError(f"{target} doesn't read back as it was written: {path} stays; look after this disk")
        failpoint("archive.rename.before")
        confined.replace(part, target)
    except BaseException:
        with contextlib.suppress(OSError):
            confined.remove(part)
        raise
    failpoint("archive.rename.after")
    return ArchivedFile(str(path.relative_to(run.path)), *content, seen.st_mtime_ns, seen.st_mode & 0o7777), seen


def _unpack(target: Path, entry: ArchivedFile) -> None:
    part = target.with_name(f".{target.name}.{secrets.token_hex(8)}{_PART}")
    source = packed_path(target)
    try:
        with confined.open_file(part, "xb") as file:
            left = entry.size
            for block in blocks_of(source):
                left -= len(block)
                if left < 0:  # a small file can claim to unpack to any length
                    break
                file.write(block)
            file.flush()
            os.fsync(file.fileno())
            failpoint("restore.unpacked")
            if content_of(part) != UncompressedContent(entry.size, entry.sha256):
                raise NotFound(f"{source} is damaged (not what was packed): put it back from a backup")
            _restore_metadata(file.fileno(), entry)
        confined.replace(part, target)
    except FileNotFoundError:
        raise NotFound(f"{source} is missing: put it back from a backup") from None
    finally:
        with contextlib.suppress(OSError):
            confined.remove(part)
    failpoint("restore.rename.after")


def _restore_metadata(fd: int, entry: ArchivedFile) -> None:
    """Give a file its permissions, without those that let a program run as somebody else, and its time."""
    os.fchmod(fd, entry.mode & 0o777)
    with contextlib.suppress(OverflowError, ValueError):
        os.utime(fd, ns=(entry.mtime_ns, entry.mtime_ns))


def _changed(path: Path, seen: os.stat_result) -> bool:
    now = os.stat(path)
    return (now.st_ino, now.st_size, now.st_mtime_ns) != (seen.st_ino, seen.st_size, seen.st_mtime_ns)


def _write(run: RunDirectory, manifest: ArchiveManifest) -> None:
    replace_file(run.archive, msgspec.json.format(msgspec.json.encode(manifest)) + b"\n")
    with confined.open_file(run.archive) as file:
        os.fsync(file.fileno())
    for partial in _partial_files(run):
        confined.remove(partial)


def _partial_files(run: RunDirectory) -> Iterator[Path]:
    """Partial files that a killed process left."""
    for folder in (run.path, run.streams):
        yield from folder.glob(f".*{_PART}")
        yield from folder.glob(f".*{_PART}{SUFFIX}")


def _sync_folders(run: RunDirectory) -> None:
    """Have the names of files on the disk before others are removed."""
    for folder in (run.streams, run.path):
        with contextlib.suppress(OSError):  # not every filesystem can
            fd = os.open(folder, os.O_RDONLY)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)


KINDS = {"minimal": ("benchmark_*.json", "comparison_report.md"), "full": ("*",)}
"""The names of the files that each takes, from the directory and those below it."""
_NAMES = {"minimal": "benchmarks_backup_%Y%m%d.tar.gz", "full": "benchmarks_full_%Y%m%d.tar.gz"}
_ENDINGS = (".tar.gz", ".tgz")


class Restored(NamedTuple):
    """files: put back, by name. same: were there already. differ: other files are there, and stay."""

    files: list[str]
    same: list[str]
    differ: list[str]


def is_backup(name: str) -> bool:
    """Whether a name is that of a backup."""
    return name.endswith(_ENDINGS)


def default_name(kind: str) -> Path:
    """What a backup of today is called."""
    return Path(time.strftime(_NAMES[kind]))


def members(folder: Path, kind: str) -> list[tuple[Path, int]]:
    """The files that a backup takes, with their lengths.

    Raises:
        UsageError: another kind than :data:`KINDS`. NotFound: no such directory, or nothing in it.
    """
    if kind not in KINDS:
        raise UsageError(f"backup {kind!r}: known are {', '.join(KINDS)}")
    if not folder.is_dir():
        raise NotFound(f"no directory {folder}: name the one to back up")
    files = [
        (path, size)
        for path, size in walk(folder)
        if any(fnmatch.fnmatchcase(path.name, pattern) for pattern in KINDS[kind]) and not path.name.endswith(".part")
    ]
    if not files:
        raise NotFound(f"nothing to back up in {folder}: a {kind} backup takes {', '.join(KINDS[kind])}")
    return files


def make(folder: Path, kind: str, target: Path) -> int:
    """Write a backup, read it back whole, and only then give it its name; return its length in bytes.

    Names in it begin with the directory's own, so that ``tar -xzf`` beside the directory puts it back.

    Raises:
        UsageError: the file is there already, or it doesn't read back. NotFound: see :func:`members`.
        OSError: it can't be written, or a file became shorter while it was read.
    """
    target = atomic_write.real(target)
    if target.exists():
        raise UsageError(f"{target} exists: it stays; name another file with -o")
    if not target.parent.is_dir():
        raise NotFound(f"no directory {target.parent} for the backup: make it, or name another with -o")
    part = target.with_name(f".{target.name}.{secrets.token_hex(8)}.part")
    digests: dict[str, str] = {}
    try:
        with confined.open_file(part, "xb", root=part.parent) as out:
            with tarfile.open(fileobj=out, mode="w:gz") as tar:
                base = folder.resolve()
                for path, _ in members(base, kind):
                    name = str(PurePosixPath(base.name, *path.relative_to(base).parts))
                    with confined.open_file(path, root=base) as file:
                        head = tar.gettarinfo(arcname=name, fileobj=file)
                        hashed = _Hashed(file)
                        tar.addfile(head, hashed)
                    digests[name] = hashed.digest.hexdigest()
            out.flush()
            os.fsync(out.fileno())
        with tarfile.open(part, "r:gz") as tar:
            back = {head.name: _digest(tar, head) for head in tar}
        if back != digests:
            raise UsageError(f"{target} doesn't read back as it was written: nothing was kept; look after this disk")
        os.replace(part, target)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    return target.stat().st_size


def put_back(source: Path, into: Path, *, yes: bool) -> Restored:
    """Put the files of a backup back, with their times; nothing is overwritten.

    Args:
        into: the directory that has the backed-up one. yes: False says only what would be done.

    Raises:
        NotFound: no such file, or it is damaged. UsageError: it holds what no backup of ours does.
    """
    restored, top = Restored([], [], []), ""
    try:
        with tarfile.open(source, "r:gz") as tar:
            for head in tar:
                if head.isdir():
                    continue
                name = str(PurePosixPath(head.name))
                first, *below = PurePosixPath(head.name).parts or ("",)
                top = top or first
                is_own = below and first == top and first[:1] != "." and ".git" not in map(str.lower, below)
                if not is_own or not head.isreg() or head.issparse() or not confined.is_inside(name):
                    raise UsageError(f"{source} has {head.name!r}, which no backup of results has: unpack it yourself")
                target = into / name
                for folder in list(target.relative_to(into).parents)[:-1]:
                    if (into / folder).is_symlink():
                        raise UsageError(
                            f"{into / folder} is a link, and a backup is put back through none: remove it, or name the "
                            "directory with --into"
                        )
                if target.exists() or target.is_symlink():
                    same = (
                        not target.is_symlink() and target.is_file() and content_of(target).sha256 == _digest(tar, head)
                    )
                    (restored.same if same else restored.differ).append(str(target))
                    continue
                restored.files.append(str(target))
                if yes:
                    _extract(tar, head, target, into)
    except FileNotFoundError:
        raise NotFound(f"no file {source}") from None
    except TrackersError:
        raise
    except (tarfile.TarError, zlib.error, EOFError, OSError, *UNDECODABLE, ArithmeticError, LookupError) as error:
        raise NotFound(f"{source} can't be restored whole ({error})") from None
    return restored


def _extract(tar: tarfile.TarFile, head: tarfile.TarInfo, target: Path, root: Path) -> None:
    """Write a file of a backup; below ``root``, the directory that gets it, no link is followed."""
    root.mkdir(parents=True, exist_ok=True)
    target = root.resolve() / target.relative_to(root)
    root = root.resolve()
    if target.parent != root:
        confined.make_folder(target.parent, root=root)
    part = target.with_name(f".{target.name}.{secrets.token_hex(8)}.part")
    try:
        with confined.open_file(part, "xb", root=root) as out:
            file = tar.extractfile(head) or io.BytesIO()
            while block := file.read(FRAME_BYTES):
                out.write(block)
            out.flush()
            os.fsync(out.fileno())
            new = os.fstat(out.fileno()).st_mode  # what the umask leaves a new file
            os.fchmod(out.fileno(), head.mode & (new | (new & 0o444) >> 2) & 0o777)
            if is_time(head.mtime):
                os.utime(out.fileno(), (head.mtime, head.mtime))
        confined.replace(part, target, root=root)
    except BaseException:
        with contextlib.suppress(OSError):
            confined.remove(part, root=root)
        raise


def _digest(tar: tarfile.TarFile, head: tarfile.TarInfo) -> str:
    digest = hashlib.sha256()
    file = tar.extractfile(head) or io.BytesIO()
    while block := file.read(FRAME_BYTES):
        digest.update(block)
    return digest.hexdigest()


class _Hashed:
    """A file that is hashed as it is read."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.digest = hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        block = self._file.read(size)
        self.digest.update(block)
        return block
