"""Files that programs write where people say: whole or not at all, and over nothing that would be missed.

One rule for every output (docs/plots.md):

1. It is written beside its place and put there at the end: whoever reads sees the old file or the new one, and a full
   disk leaves what was there.
2. It never takes the place of what is read: not under the same name, and not through a link to it.
3. A drawing, which the same command makes again, takes the place of an earlier drawing of its kind. What can't be made
   again (a recording, a result of another run), and what these programs didn't write, stays, unless ``force`` is given.
"""

from __future__ import annotations

import contextlib
import errno
import glob
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from trackers.errors import UsageError
from trackers.support.interruption import pass_on, suppress

HEAD_BYTES = 65536
SIGNATURE = "made by trackers"
"""Text in a file's first HEAD_BYTES bytes or at its end: this package wrote it and may replace it."""
_SIGNATURES = (SIGNATURE.encode(), b'"generator" content="trackers"')
_MAGIC: dict[str, tuple[bytes, ...]] = {".png": (b"\x89PNG\r\n",), ".pdf": (b"%PDF-",), ".svg": (b"<svg", b"<?xml")}
FORCE = "--force replaces it"


def drawing(path: Path, head: bytes) -> bool:
    """True if a file's first bytes are those of a drawing of the kind that its name says."""
    known = _MAGIC.get(path.suffix.lower())
    return head.lstrip().startswith(known) if known is not None else any(signature in head for signature in _SIGNATURES)


def never(path: Path, head: bytes) -> bool:
    """Nothing may be replaced: what these programs measured can't be measured again."""
    return False


Ours = Callable[[Path, bytes], bool]
"""Predicate on a file's path and first bytes: True if it may be replaced."""


def check(path: Path, *, inputs: Iterable[str | Path] = (), ours: Ours = drawing, force: bool = False) -> None:
    """See whether an output may be written, before any work is done for it.

    Args:
        inputs: what is read: files, directories and patterns of them, with or without a scheme (``json:out/*.json``).
        ours: whether a file that is there may be replaced.
        force: it may be replaced, whatever it is, but no input.

    Raises:
        UsageError: it is an input, a directory, or a file that stays.
    """
    try:
        status = path.stat()
    except OSError as error:
        pass_on(error)
        return
    if stat.S_ISDIR(status.st_mode):
        raise UsageError(f"{path} can't be written: it is a directory; name a file in it")
    if not stat.S_ISREG(status.st_mode):  # /dev/stdout, a pipe
        return
    head = _head(path, status.st_size)
    replaced = not status.st_size or ours(path, head)
    # What is drawn into a directory that is read can be drawn again; what else lies there may be read.
    read = next((file for file in _files(inputs, inside=not replaced) if _same(file, status)), None)
    if read is not None:
        link = f" (the same file as {read})" if str(read) != str(path) else ""
        raise UsageError(f"{path} is one of the files that are read{link}: name another output")
    if not replaced and not force:
        raise UsageError(f"{path} exists and stays: name another output; {FORCE}")


def write(path: Path, make: Callable[[Path], object]) -> None:
    """Let ``make`` write a file beside the path, then put it there; the directory is made.

    A link is followed (see :func:`real`), and the permissions of a file that is replaced stay. What is no file
    (``/dev/stdout``, a pipe) is written to.

    Raises:
        UsageError: it can't be written; what was there is as it was.
    """
    try:
        real(path).parent.mkdir(parents=True, exist_ok=True)
        with replacing_file(path) as partial:
            make(partial)
    except OSError as error:
        pass_on(error)
        raise UsageError(f"{path} can't be written: {error.strerror or error}") from None


def write_text(path: Path, text: str) -> None:
    """Write a text, in UTF-8; see :func:`write`. What UTF-8 has no form for is escaped."""
    write(path, lambda partial: partial.write_bytes(text.encode("utf-8", "backslashreplace")))


def real(path: Path) -> Path:
    """Where a path leads: not by another account's link to what isn't that account's, nor to its pipe.

    Raises:
        OSError: it does; the system itself refuses so in folders with the sticky bit alone.
    """
    own = getattr(os, "geteuid", int)(), os.stat(os.sep).st_uid
    for part in filter(os.path.lexists, (path, *path.parents)):
        there = os.lstat(part)
        leads = stat.S_ISLNK(there.st_mode) and not (part.exists() and part.stat().st_uid == there.st_uid)
        if (leads or stat.S_ISFIFO(there.st_mode)) and there.st_uid not in own:
            raise OSError(errno.ELOOP, "is another account's link or pipe", str(part))
    return Path(os.path.realpath(path))


@contextlib.contextmanager
def replacing_file(path: Path, *, follow: bool = True) -> Iterator[Path]:
    """Open a new file to write to, which replaces the one at the path when the block ends without an error.

    Args:
        follow: a link, and what is no file; else they are refused.

    Raises:
        OSError: it can't be written; what was there is as it was.
    """
    path = real(path) if follow else path
    mode = None
    with contextlib.suppress(FileNotFoundError):
        status = os.stat(path, follow_symlinks=follow)
        if not stat.S_ISREG(status.st_mode):
            if not follow:
                raise OSError(errno.ELOOP, "is no regular file", str(path))
            yield path
            return
        mode = stat.S_IMODE(status.st_mode)
    partial = path.with_name(f".trackers-{secrets.token_hex(6)}.tmp")
    os.close(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
    try:
        yield partial
        with open(partial, "rb") as file:
            os.fsync(file.fileno())
        if mode is not None:
            with suppress(OSError):
                partial.chmod(mode)
        os.replace(partial, path)
    finally:
        with suppress(OSError):
            partial.unlink()


def _head(path: Path, size: int) -> bytes:
    """What a file begins and ends with; b"" where it can't be read."""
    with suppress(OSError), path.open("rb") as file:
        head = file.read(HEAD_BYTES)
        file.seek(max(0, size - 4 * len(SIGNATURE)))
        return head + file.read(4 * len(SIGNATURE))
    return b""


def _files(inputs: Iterable[str | Path], *, inside: bool) -> Iterator[Path]:
    """Every file that the inputs name; ``inside``: and those in the directories that they name."""
    for source in inputs:
        text = os.path.expanduser(str(source))
        for pattern in dict.fromkeys((text, re.sub(r"^[A-Za-z][A-Za-z0-9_-]+:", "", text))):
            for name in [pattern] if os.path.lexists(pattern) else glob.iglob(pattern, recursive=True):
                if not os.path.isdir(name):
                    yield Path(name)
                elif inside:
                    for folder, _, names in os.walk(name):
                        yield from (Path(folder, name) for name in names)


def _same(path: Path, status: os.stat_result) -> bool:
    with suppress(OSError, ValueError):
        return os.path.samestat(path.stat(), status)
    return False
