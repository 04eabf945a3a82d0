"""Files as they are now, kept with a run although their owner may overwrite them later.

How: a reflink where the filesystem has them (btrfs, XFS, bcachefs, some NFS: at once, and no space), else a copy,
hashed on the way. A hard link only with ``policy="link"``: it keeps the old content when the file is *replaced*
(written elsewhere, then renamed), not when it is rewritten in place, as ``torch.save(path)`` does.

A copy's digest is that of its content, so the same content is kept once. A reflink or link isn't read; its digest
is made of the file's identity, size and times, and starts with ``stat:``.
"""

from __future__ import annotations

import itertools
import os
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from trackers.errors import UsageError
from trackers.media.base import MediaStore, holds, move
from trackers.records import ArtifactFile
from trackers.support import confined
from trackers.support.clock import monotonic
from trackers.support.interruption import pass_on, suppress

POLICIES = ("copy", "link")

CHUNK_BYTES = 4 << 20
ANNOUNCE_S = 1.0
"""A copy that takes longer is announced, because training waits for it."""
COPIES = 2
"""Maximum number of copies of a file that changes while it is copied."""

FICLONE = 0x40049409
"""Linux, ioctl_ficlone(2)."""

_counter = itertools.count()


class Changing(UsageError):
    """A file changed each time it was copied."""


def snapshot(
    source: Path,
    store: MediaStore,
    policy: str = "copy",
    name: str | None = None,
    say: Callable[[str], object] | None = None,
    root: Path | None = None,
) -> ArtifactFile:
    """Keep one file as it is now.

    Args:
        policy: "copy", or "link" for a file that will be replaced but never rewritten.
        name: its path inside the artifact; default its own name.
        say: is told, in one line, of a copy that takes more than a second, and of one that was torn.
        root: a directory that others can write into, out of which the path mustn't lead: no link is followed.

    Raises:
        FileNotFoundError: no such file. UsageError: not a regular file, a bad name or policy.
        OSError: it can't be read, or the store can't be written.
    """
    if policy not in POLICIES:
        raise UsageError(f"policy={policy!r}: known are {', '.join(POLICIES)}")
    path = inside_name(name if name is not None else source.name)
    before = source.stat() if root is None else source.lstat()
    if not stat.S_ISREG(before.st_mode):
        raise UsageError(f"{source} is not a file")
    try:
        return _keep(source, store, policy, path, say, root, before)
    except OSError as error:
        pass_on(error)
        if store.backlog is None:
            raise
        return _hold(source, store, path, root, error)


def keep_content(content: bytes, store: MediaStore, name: str, source: Path) -> ArtifactFile:
    """Keep what a file held."""
    import hashlib

    digest = hashlib.blake2b(content, digest_size=20).hexdigest()
    file = store.put(content, _suffix(source))
    return ArtifactFile(path=name, file=file, size=len(content), digest=f"blake2b:{digest}")


def _keep(
    source: Path,
    store: MediaStore,
    policy: str,
    path: str,
    say: Callable[[str], object] | None,
    root: Path | None,
    before: os.stat_result,
) -> ArtifactFile:
    temporary = store.temporary()
    try:
        if (policy == "link" and _link(source, temporary)) or _reflink(source, temporary, root):
            # Two states of one file can share size and times within a clock tick, so no identity is used twice.
            seen = temporary.stat()
            digest = "stat:" + _identity(before)
            file = store.name(_unique(digest), _suffix(source))
        else:
            digest, seen = _copy(source, temporary, say, root)
            file = store.name(digest.partition(":")[2], _suffix(source))
        target = store.directory / file
        if not holds(target, seen.st_size):
            move(temporary, target)
        return ArtifactFile(path=path, file=file, size=seen.st_size, digest=digest)
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def _hold(source: Path, store: MediaStore, path: str, root: Path | None, error: OSError) -> ArtifactFile:
    """Leave a file to the store's backlog: its content, or where memory has no room, what copies it again."""
    import hashlib

    hashed, size, chunks = hashlib.blake2b(digest_size=20), 0, []
    backlog = store.backlog
    assert backlog is not None
    with _open(source, root) as reader:
        fits = backlog.has_room(os.fstat(reader.fileno()).st_size)
        while chunk := reader.read(CHUNK_BYTES):
            hashed.update(chunk)
            size += len(chunk)
            fits = fits and backlog.has_room(size)
            if fits:
                chunks.append(chunk)
    digest = hashed.hexdigest()

    def copy(temporary: Path) -> None:
        if _copy(source, temporary, None, root)[0] != f"blake2b:{digest}":
            raise Changing(f"{source} changed while it waited for the disk")

    name = store.name(digest, _suffix(source))
    store.hold(name, b"".join(chunks) if fits else copy, error)
    return ArtifactFile(path=path, file=name, size=size, digest=f"blake2b:{digest}")


def inside_name(name: str) -> str:
    """A path inside an artifact, with "/" between its parts.

    Raises:
        UsageError: empty, absolute, or out of the artifact ("..").
    """
    parts = [part for part in os.fspath(name).replace("\\", "/").split("/") if part not in ("", ".")]
    text = os.fspath(name)
    if not parts or ".." in parts or text.startswith(("/", "\\")) or "\0" in text or text[1:3] in (":\\", ":/"):
        raise UsageError(f"{text!r} can't be the name of a file in an artifact: give a relative path without '..'")
    return "/".join(parts)


def walk(directory: Path) -> Iterator[tuple[str, Path]]:
    """Relative name and path of each file below a directory, sorted; links are followed, but not in circles.

    Broken links, sockets, pipes and devices are left out.
    """
    yield from _walk(directory, "", frozenset())


def _walk(directory: Path, prefix: str, above: frozenset[tuple[int, int]]) -> Iterator[tuple[str, Path]]:
    here = directory.stat()
    identity = (here.st_dev, here.st_ino)
    if identity in above:
        return
    for entry in sorted(os.scandir(directory), key=lambda entry: entry.name):
        path = directory / entry.name
        if confined.is_folder(entry):
            yield from _walk(path, f"{prefix}{entry.name}/", above | {identity})
        elif os.path.isfile(path):  # a pipe would be waited for
            yield prefix + entry.name, path


def _open(source: Path, root: Path | None) -> BinaryIO:
    return open(source, "rb", buffering=0) if root is None else confined.open_file(source, buffering=0, root=root)


def _copy(
    source: Path, temporary: Path, say: Callable[[str], object] | None, root: Path | None
) -> tuple[str, os.stat_result]:
    """Copy and hash in one pass; once more if the file changes meanwhile."""
    import hashlib

    announced = False
    for _ in range(COPIES):
        began = monotonic()
        digest = hashlib.blake2b(digest_size=20)
        with _open(source, root) as reader, confined.open_file(temporary, "wb", buffering=0) as writer:
            before = os.fstat(reader.fileno())
            while chunk := reader.read(CHUNK_BYTES):
                digest.update(chunk)
                view = memoryview(chunk)
                while view:
                    view = view[writer.write(view) :]
                if say is not None and not announced and monotonic() - began > ANNOUNCE_S:
                    announced = True
                    say(
                        f"{source.name} ({before.st_size / 2**30:.1f} GiB) is being copied, training waits for it: "
                        "this filesystem has no reflinks; policy='link' is quicker for a file that is replaced, "
                        "never rewritten"
                    )
            copied = os.fstat(writer.fileno())
            # By path as well: the file may have been replaced by another one.
            if _state(before) == _state(os.fstat(reader.fileno())) == _state(source.stat()):
                return f"blake2b:{digest.hexdigest()}", copied
    raise Changing(f"{source} changed each time it was copied: log it when it is complete")


def _link(source: Path, temporary: Path) -> bool:
    try:
        os.link(source.resolve(), temporary)
    except OSError as error:  # another filesystem, or one without hard links
        pass_on(error)
        return False
    return True


def _reflink(source: Path, temporary: Path, root: Path | None) -> bool:
    if sys.platform != "linux":
        return False
    import fcntl

    with _open(source, root) as reader, confined.open_file(temporary, "wb") as writer, suppress(OSError):
        fcntl.ioctl(writer.fileno(), FICLONE, reader.fileno())
        return True
    return False


def _state(status: os.stat_result) -> tuple[int, ...]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _identity(status: os.stat_result) -> str:
    return "-".join(f"{part:x}" for part in (*_state(status), status.st_ctime_ns))


def _unique(digest: str) -> str:
    import hashlib

    text = f"{digest} {os.getpid()} {next(_counter)} {os.urandom(8).hex()}"
    return hashlib.blake2b(text.encode(), digest_size=20).hexdigest()


def _suffix(source: Path) -> str:
    suffix = source.suffix[1:]
    return suffix if suffix.isascii() and suffix.isalnum() and len(suffix) <= 16 else ""
