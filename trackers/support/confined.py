"""The one door to files of a run: opened beneath the run's directory, without following links, regular files only.

Whoever can write into a run's directory can put a link there, or a pipe, or swap a folder for a link while it is used.
So a path below a run is opened part by part from the run's directory, each with O_NOFOLLOW and relative to the one
before, as ``openat2`` does with RESOLVE_BENEATH and RESOLVE_NO_SYMLINKS; what isn't a regular file is refused. (That
call itself needs ctypes, whose import costs training more than it saves.) New files get names that nobody can guess.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, TextIO, cast

from trackers.support.interruption import pass_on, suppress

FOLDERS = frozenset(
    {
        "benchmark", "benchmark_results", "console", "delivery", "json", "media", "nccl", "ranks", "session", "streams",
        "tensor_inspect", "tensorboard",
    }
)  # fmt: skip
"""Folders of a run's directory: what lies above one of them in a path is the run's directory."""
LAUNCHES = ".ranks"
"""Folder beside projects of runs in which the ranks of launches write."""
READ_BYTES = 256 * 1024 * 1024
"""Default maximum size of a file that is read whole."""
DEPTH = 3
"""Maximum depth of a run's own files below its directory."""

_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)
_ALWAYS = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_DIRECTORY = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | _ALWAYS
_LOOK = _DIRECTORY | getattr(os, "O_PATH", 0)
"""Flags that need no permission to list a directory."""
_MODES = {
    "rb": os.O_RDONLY,
    "ab": os.O_WRONLY | os.O_CREAT | os.O_APPEND,
    "wb": os.O_WRONLY | os.O_CREAT | os.O_TRUNC,
    "xb": os.O_WRONLY | os.O_CREAT | os.O_EXCL,
}
_HAS_DIR_FD = os.open in os.supports_dir_fd

_NOT_UTF8 = os.name == "posix" and sys.getfilesystemencoding().lower() not in ("utf-8", "utf8")


def local(text: str) -> str:
    """Text as a path of this process: its UTF-8 bytes on every machine, also where the locale says ASCII."""
    return os.fsdecode(text.encode("utf-8", "surrogateescape")) if _NOT_UTF8 and not text.isascii() else text


def is_plain_name(name: object) -> bool:
    """Whether a name from an untrusted source is one part of a path: no directory, nothing hidden from a listing."""
    return (
        isinstance(name, str)
        and 0 < len(os.fsencode(name.encode("utf-8", "replace").decode())) <= 255
        and name not in (".", "..")
        and not any(sign in name for sign in ("/", "\\", "\0", "\n", "\r"))
    )


def is_folder(entry: os.DirEntry[str]) -> bool:
    """Whether an entry of a folder is one, or leads to one: a link to itself, or to where one may not look, isn't."""
    return os.path.isdir(entry.path) if entry.is_symlink() else entry.is_dir()


def is_inside(path: object) -> bool:
    """Whether a path from an untrusted source, with "/" between its parts, stays below what it is joined to."""
    return isinstance(path, str) and all(map(is_plain_name, path.split("/")))


def parts(path: str) -> list[str]:
    """The parts of a path that was given somewhere, without those that lead elsewhere; "\\" separates, too."""
    return [part for part in path.replace("\\", "/").split("/") if part not in ("", ".", "..")]


def split(path: Path | str, root: Path | None = None) -> tuple[Path, str]:
    """The directory that a file must lie beneath, and its path from there.

    Args:
        root: that directory; default: the one above the outermost of :data:`FOLDERS` among the last parts of the
            path, else the file's own.

    Raises:
        OSError: the path leads out of ``root``.
    """
    path = path if isinstance(path, Path) else Path(path)
    if root is not None:
        root = root if isinstance(root, Path) else Path(root)
        above, own = root.parts, path.parts
        relative = own[len(above) :]
        if own[: len(above)] != above:
            raise _refused(path, f"isn't in {root}")
        if not relative or ".." in relative:
            raise _refused(path, f"isn't in {root}")
        return root, os.sep.join(relative)
    parts = path.parts
    levels = min(DEPTH, len(parts) - bool(path.anchor))
    base = path.parent
    relative = parts[-1:]
    for level in range(levels - 1):
        if parts[-2 - level] in FOLDERS:
            base, relative = path.parents[level + 1], parts[-2 - level :]
    if not relative or ".." in relative:
        raise _refused(path, "leads out of its directory")
    return base, os.sep.join(relative)


def launch_folder(run: Path, launch: str) -> Path | None:
    """A launch's folder as ``run.json`` names it, relative to the run's; None if it can't be one.

    The file may say anything. A launch's folder is ``.ranks/<launch>`` beside a run's project, or lies beside the run;
    it is no link and no part of another run.
    """
    if not launch:
        return None
    own = Path(os.path.abspath(run))
    folder = Path(os.path.normpath(own / launch))
    ranks = folder.parent.name == LAUNCHES and folder.parent.parent in own.parents
    beside = folder.parent == own.parent and folder != own
    if not (ranks or beside) or (folder.parent.is_symlink() and ranks) or folder.is_symlink():
        return None
    return None if (folder / "run.json").exists() else folder


def open_fd(path: Path | str, flags: int, mode: int = 0o666, *, root: Path | None = None) -> int:
    """A descriptor of a regular file, as ``os.open`` gives it; see the module's text for what is refused.

    Args:
        mode: of a new file; of its bits those that its directory (``root``) has, too: in a directory that only its
            owner can read, files are their owner's, also when they are moved. Bits for set-user-id, set-group-id and
            sticky are dropped.
        root: see :func:`split`.

    Raises:
        OSError: as ``os.open``; ELOOP where a part of the path is a link; EINVAL where it is no regular file.
    """
    base, relative = split(path, root)
    flags |= _ALWAYS | getattr(os, "O_NONBLOCK", 0)  # a pipe must not hold us until somebody else opens it
    with _directory(base) as folder:
        fd = _open_at(folder, base, relative, flags & ~os.O_TRUNC, mode & _bits(folder) if flags & os.O_CREAT else 0)
        try:
            _check(fd, folder, flags, path)
            if base.parent.name == LAUNCHES and flags & (os.O_WRONLY | os.O_RDWR):
                _need_own(folder, folder, base)
            if flags & os.O_TRUNC:  # not before it was checked
                os.ftruncate(fd, 0)
        except BaseException:
            os.close(fd)
            raise
    return fd


def open_file(
    path: Path | str, mode: str = "rb", *, buffering: int = -1, root: Path | None = None, most: int | None = None
) -> BinaryIO:
    """A regular file as a binary stream: ``rb``, ``ab``, ``wb``, or ``xb`` (which must not exist yet).

    Args:
        most: maximum number of bytes; a sparse file can have any length.

    Raises:
        OSError: see :func:`open_fd`; EFBIG where it is longer.
    """
    fd = open_fd(path, _MODES[mode], root=root)
    if most is not None and os.fstat(fd).st_size > most:
        os.close(fd)
        raise OSError(errno.EFBIG, f"is longer than {most:,} bytes", str(path))
    return cast(BinaryIO, os.fdopen(fd, mode.replace("x", "w"), buffering))


def open_text(path: Path | str, *, root: Path | None = None) -> TextIO:
    """A regular file as a text stream for reading, UTF-8, its line ends as they are.

    Raises:
        OSError: see :func:`open_fd`.
    """
    return os.fdopen(open_fd(path, os.O_RDONLY, root=root), "r", encoding="utf-8", newline="")


def read(path: Path | str, *, root: Path | None = None, most: int = READ_BYTES, own: bool = False) -> bytes:
    """A regular file's content.

    Args:
        own: another account's isn't read.

    Raises:
        OSError: see :func:`open_file`.
    """
    with open_file(path, root=root, most=most) as file:
        if own:
            with _directory(split(path, root)[0]) as folder:
                _need_own(file.fileno(), folder, path)
        return file.read(most)


def touch(path: Path, *, root: Path | None = None) -> None:
    """Make an empty file, if there is none.

    Raises:
        OSError: see :func:`open_fd`.
    """
    os.close(open_fd(path, os.O_WRONLY | os.O_CREAT, root=root))


def write_new(path: Path, content: bytes, *, root: Path | None = None, mode: int = 0o666) -> None:
    """Write a file that isn't there yet, with the bits of ``mode`` that the umask allows.

    Raises:
        OSError: see :func:`open_fd`; FileExistsError where something has that name.
    """
    with os.fdopen(open_fd(path, _MODES["xb"], mode, root=root), "wb") as file:
        file.write(content)


def is_file(path: Path | str, *, root: Path | None = None, most: int | None = None) -> bool:
    """Whether a regular file is there that may be opened for reading, of at most so many bytes."""
    try:
        open_file(path, root=root, most=most).close()
    except OSError as error:
        pass_on(error)
        return False
    return True


def temporary(path: Path) -> Path:
    """A hidden name beside a file that nobody can guess: ``.<name>.<random>.tmp``."""
    return path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")


def replace(source: Path, target: Path, *, root: Path | None = None) -> None:
    """Rename a file beneath a directory, over another one where there is one; no part of either path is a link.

    Raises:
        OSError: see :func:`open_fd`.
    """
    with _parent(source, root) as (before, old), _parent(target, root) as (after, new):
        os.replace(old, new, src_dir_fd=before, dst_dir_fd=after)


def move(source: Path, target: Path, *, root: Path | None = None) -> None:
    """Rename a file from anywhere to a name beneath a directory, over another one where there is one.

    Raises:
        OSError: see :func:`open_fd`.
    """
    with _parent(target, root) as (folder, name):
        os.replace(source, name, dst_dir_fd=folder)


def link(path: Path, target: str, *, root: Path | None = None) -> None:
    """Make a symbolic link to a folder; no part of the path to it is a link.

    Args:
        target: as it is to stand in the link.

    Raises:
        OSError: see :func:`open_fd`.
    """
    with _parent(path, root) as (folder, name):
        os.symlink(target, name, target_is_directory=True, dir_fd=folder)


@contextlib.contextmanager
def pinned(path: Path, *, root: Path) -> Iterator[Path]:
    """A path to what lies, or is to lie, beneath a directory, through no link. It leads there though somebody puts a
    link into a folder's place meanwhile, on systems with /proc.

    Raises:
        OSError: see :func:`open_fd`.
    """
    with _parent(path, root) as (folder, name):
        own = Path(f"/proc/self/fd/{folder}", name)
        yield own if own.parent.exists() else path


def remove(path: Path, *, root: Path | None = None) -> None:
    """Remove a file; a link is removed itself, not what it points to.

    Raises:
        OSError: see :func:`open_fd`.
    """
    with _parent(path, root) as (folder, name):
        os.unlink(name, dir_fd=folder)


def remove_folder(folder: Path, last: str, after: Callable[[], None] = lambda: None) -> None:
    """Remove a folder with all that is in it, through no link: who can write beside it may swap it meanwhile.

    Args:
        last: the file in it that goes last, without which it isn't the one that is meant. after: called after each of
            the others.

    Raises:
        OSError: the rest goes with the next call.
    """
    with _directory(folder) as fd:
        if fd < 0:
            shutil.rmtree(folder)
            return
        os.stat(last, dir_fd=fd, follow_symlinks=False)
        for name in sorted(os.listdir(fd)):
            if name != last:
                _remove_tree(fd, name)
                after()
        os.unlink(last, dir_fd=fd)
    folder.rmdir()


def make_folder(path: Path, *, root: Path | None = None) -> None:
    """Make a folder and those above it, up to ``root``; existing ones are fine, links in their place are not.

    Raises:
        OSError: see :func:`open_fd`.
    """
    base, relative = split(path, root)
    for number in range(1, len(Path(relative).parts) + 1):
        part = Path(base, *Path(relative).parts[:number])
        with _parent(part, base) as (folder, name):
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, _bits(folder), dir_fd=folder)
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if not stat.S_ISDIR(status.st_mode):
                raise _refused(part, "is a link" if stat.S_ISLNK(status.st_mode) else "is no directory")


def make_base(base: Path) -> None:
    """Make a directory that files are to lie in, and those above it, unless another account's link leads there.

    Raises:
        OSError: it does, or it can't be made.
    """
    if _HAS_DIR_FD and base.parent.exists():
        os.close(_open_own(base.parent, _LOOK))  # as where files are opened below it: nothing is left there, then
    base.mkdir(parents=True, exist_ok=True)


def make_private(path: Path, mode: int = 0o700) -> None:
    """Make a directory and those above it that aren't there, for their owner alone; existing ones are fine.

    Raises:
        OSError: it can't be made.
    """
    for folder in (*reversed(path.parents), path):
        if not folder.is_dir():
            folder.mkdir(mode, exist_ok=True)


def make_own(path: Path, mode: int = 0o700) -> None:
    """Make a directory that is its owner's alone (or ``mode``'s), and those above it as the umask says; an existing
    one is fine, but for a link in the place of a launch's folder, or of the one around that, and another account's.

    Raises:
        OSError: it can't be made.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.parent.name != LAUNCHES:
        path.mkdir(mode, exist_ok=True)
        return
    with _parent(path, path.parents[1]) as (folder, name), contextlib.suppress(FileExistsError):
        os.mkdir(name, mode, dir_fd=folder)
    with _directory(path) as fd:
        _need_own(fd, fd, path)


def set_mode(path: Path, mode: int | None) -> None:
    """Give a directory other permissions (None: the same), if it is ours; a link in a launch's place isn't followed.

    Raises:
        OSError: it can't be opened.
    """
    with _directory(path) as fd, contextlib.suppress(PermissionError):
        if mode is not None and fd >= 0 and stat.S_IMODE(os.fstat(fd).st_mode) != mode:
            os.fchmod(fd, mode)


def write_whole(
    path: Path,
    content: bytes,
    *,
    root: Path | None = None,
    before: Callable[[], None] | None = None,
    mode: int = 0o666,
) -> None:
    """Replace a file whole: a reader sees the old or the new content, never a part.

    Args:
        before: called before the new file gets its name.
        mode: of the new file, as for :func:`write_new`.

    Raises:
        OSError: nothing was changed; no temporary file is left behind.
    """
    new = temporary(path)
    try:
        write_new(new, content, root=root, mode=mode)
        if before is not None:
            before()
        replace(new, path, root=root)
    except BaseException:
        with suppress(OSError):
            remove(new, root=root)
        raise


@contextlib.contextmanager
def _directory(base: Path) -> Iterator[int]:
    if not _HAS_DIR_FD:
        yield -1
        return
    if base.parent.name == LAUNCHES:  # others can guess its name, and may have put a link there
        with _directory(base.parents[1]) as top:
            fd = _open_at(top, base.parents[1], os.path.join(LAUNCHES, base.name), _DIRECTORY, 0)
    else:
        above = _open_own(base.parent, _LOOK)  # that of the project, which others may share, too
        try:
            fd = _open_own(base, _DIRECTORY, above)
        finally:
            os.close(above)
    try:
        yield fd
    finally:
        os.close(fd)


def _open_own(folder: Path, flags: int, above: int | None = None) -> int:
    """A descriptor of a directory; a link in its place must be ours, the system's, or by the owner of what it leads to.

    Args:
        above: a descriptor of the directory that it lies in.
    """
    name = folder.name if above is not None and folder.name else folder
    link = os.stat(name, dir_fd=above, follow_symlinks=False)
    if not stat.S_ISLNK(link.st_mode):
        return os.open(name, flags | _NO_FOLLOW, dir_fd=above)
    fd = os.open(name, flags, dir_fd=above)
    if link.st_uid not in (os.geteuid(), os.stat(os.sep).st_uid, os.fstat(fd).st_uid):
        os.close(fd)
        raise _refused(folder, "is another account's link to what isn't that account's")
    return fd


@contextlib.contextmanager
def _parent(path: Path, root: Path | None) -> Iterator[tuple[int | None, str]]:
    """A descriptor of the directory that a file lies in, and the file's name in it; None and its path on Windows."""
    base, relative = split(path, root)
    folder, name = os.path.split(relative)
    with _directory(base) as top:
        fd = _open_at(top, base, folder, _DIRECTORY, 0) if folder else top
        try:
            yield (fd, name) if _HAS_DIR_FD else (None, str(path))
        finally:
            if fd != top:
                os.close(fd)


def _remove_tree(folder: int, name: str) -> None:
    try:
        fd = os.open(name, _DIRECTORY | _NO_FOLLOW, dir_fd=folder)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENOTDIR):
            raise
        os.unlink(name, dir_fd=folder)
        return
    try:
        for entry in os.listdir(fd):
            _remove_tree(fd, entry)
    finally:
        os.close(fd)
    os.rmdir(name, dir_fd=folder)


def _open_at(folder: int, base: Path, relative: str, flags: int, mode: int) -> int:
    """Open part by part; a part that is a link is refused by the system itself, so nothing can be swapped meanwhile."""
    *folders, name = relative.split(os.sep)
    if ".." in folders or name == ".." or os.path.isabs(relative):
        raise _refused(base / relative, "leads out")
    if not _HAS_DIR_FD:  # Windows, where links need a privilege
        if any(Path(base, *folders[:number]).is_symlink() for number in range(1, len(folders) + 1)):
            raise _refused(base / relative, "leads through a link")
        if Path(base, relative).is_symlink():
            raise _refused(base / relative, "is a link")
        return os.open(base / relative, flags, mode)
    opened: list[int] = []
    try:
        for part in folders:
            folder = os.open(part, _DIRECTORY | _NO_FOLLOW, dir_fd=folder)
            opened.append(folder)
        return os.open(name, flags | _NO_FOLLOW, mode, dir_fd=folder)
    except OSError as error:
        pass_on(error)
        if error.errno in (errno.ELOOP, errno.ENOTDIR):  # the systems differ in which of both a link to a folder is
            _name_link(folder, [*folders, name][len(opened)], base.joinpath(*folders[: len(opened)]))
        error.filename = str(base / relative)
        raise
    finally:
        for fd in opened:
            os.close(fd)


def _name_link(folder: int, part: str, above: Path) -> None:
    """Raise the error that names the part of a path which is a link, if it is one."""
    with contextlib.suppress(FileNotFoundError):
        if stat.S_ISLNK(os.stat(part, dir_fd=folder, follow_symlinks=False).st_mode):
            raise _refused(above / part, "is a link")


def _bits(folder: int | None) -> int:
    """What a directory gives to whom; all where that isn't known."""
    return os.fstat(folder).st_mode & 0o777 if folder is not None and folder >= 0 else 0o777


def _need_own(fd: int, folder: int, path: Path | str) -> None:
    """Refuse what another account put in the place of a folder or file whose name it can guess.

    Args:
        folder: a descriptor of it, or of where it lies: a new file tells as whom a file server has this account.
    """
    if folder < 0 or (owner := os.fstat(fd).st_uid) in (os.geteuid(), 0):
        return
    name = temporary(Path("own")).name
    own = os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY | _ALWAYS, 0o600, dir_fd=folder)
    try:
        if os.fstat(own).st_uid != owner:
            raise PermissionError(errno.EPERM, "is another account's", str(path))
    finally:
        os.close(own)
        os.unlink(name, dir_fd=folder)


def _check(fd: int, folder: int, flags: int, path: Path | str) -> None:
    """Refuse what isn't a regular file, and for writing a file that is somewhere else, too, in a stranger's folder."""
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "isn't a regular file", str(path))
    writes = flags & (os.O_WRONLY | os.O_RDWR)
    if writes and status.st_nlink > 1 and folder >= 0 and os.fstat(folder).st_uid not in (os.geteuid(), 0):
        raise OSError(errno.EMLINK, "has other names, too", str(path))


def _refused(path: Path | str, why: str) -> OSError:
    return OSError(errno.ELOOP, why, str(path))
