"""A directory of this user's alone on this machine, for what the user's processes share while they run."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def directory() -> Path:
    """Where it is: below ``XDG_RUNTIME_DIR``, else below the directory for temporary files.

    Where the variable names no directory that this user can write to, as in jobs and containers that inherited it, it
    doesn't count.
    """
    if _is_usable(runtime := os.environ.get("XDG_RUNTIME_DIR", "")):
        return Path(runtime, "trackers")
    temporary = os.environ.get("TMPDIR", "")
    return Path(temporary if _is_usable(temporary) else "/tmp", f"trackers-{os.geteuid()}")  # noqa: S108 - see open_directory


def _is_usable(path: str) -> bool:
    return os.path.isabs(path) and os.path.isdir(path) and os.access(path, os.W_OK | os.X_OK)


def open_directory(path: Path, *, make: bool = False) -> int:
    """A descriptor of the directory, which is this user's alone.

    Raises:
        OSError: there is none, or others could have put something there.
    """
    if make:
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, 0o700)
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    status = os.fstat(fd)
    if status.st_uid != os.geteuid() or status.st_mode & 0o077:
        os.close(fd)
        raise PermissionError(f"{path} isn't this user's alone")
    return fd
