"""Backups of a directory of results, as ``tar`` reads them, and putting one back."""

from __future__ import annotations

import contextlib
import fnmatch
import hashlib
import io
import os
import secrets
import tarfile
import time
from pathlib import Path, PurePosixPath
from typing import BinaryIO, NamedTuple

from trackers.errors import NotFound, UsageError
from trackers.retention.sizes import walk
from trackers.support import confined
from trackers.support.seekable_zstd import FRAME_BYTES, content_of

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
    found = [
        (path, size)
        for path, size in walk(folder)
        if any(fnmatch.fnmatchcase(path.name, pattern) for pattern in KINDS[kind]) and not path.name.endswith(".part")
    ]
    if not found:
        raise NotFound(f"nothing to back up in {folder}: a {kind} backup takes {', '.join(KINDS[kind])}")
    return found


def make(folder: Path, kind: str, target: Path) -> int:
    """Write a backup, read it back whole, and only then give it its name; return its length in bytes.

    Names in it begin with the directory's own, so that ``tar -xzf`` beside the directory puts it back.

    Raises:
        UsageError: the file is there already, or it doesn't read back. NotFound: see :func:`members`.
        OSError: it can't be written, or a file became shorter while it was read.
    """
    target = Path(os.path.realpath(target))
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
    restored = Restored([], [], [])
    try:
        with tarfile.open(source, "r:gz") as tar:
            for head in tar:
                if head.isdir():
                    continue
                path = PurePosixPath(head.name)
                if not head.isreg() or head.issparse() or path.is_absolute() or ".." in path.parts:
                    raise UsageError(f"{source} has {head.name!r}, which no backup of results has: unpack it yourself")
                target = into.joinpath(*path.parts)
                if target.exists() or target.is_symlink():
                    same = (
                        not target.is_symlink() and target.is_file() and content_of(target).sha256 == _digest(tar, head)
                    )
                    (restored.same if same else restored.differ).append(str(target))
                    continue
                restored.files.append(str(target))
                if yes:
                    _extract(tar, head, target, into if len(path.parts) == 1 else into / path.parts[0])
    except FileNotFoundError:
        raise NotFound(f"no file {source}") from None
    except (tarfile.TarError, EOFError, OSError) as error:
        raise NotFound(f"{source} can't be restored whole ({error})") from None
    return restored


def _extract(tar: tarfile.TarFile, head: tarfile.TarInfo, target: Path, root: Path) -> None:
    """Write a file of a backup; below ``root``, the directory that was backed up, no link is followed."""
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
            os.fchmod(out.fileno(), head.mode & 0o777)
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
