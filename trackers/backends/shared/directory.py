"""Directories of a tracker's files: the one that an option names, ``init``'s check that it is writable, and file locks.

``has_file_locks`` detects whether a filesystem has the file locks that the vendors' SQLite stores need.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trackers.errors import UsageError
from trackers.support.confined import local
from trackers.tracker import RunInfo, Tracker

_REFUSALS = frozenset({errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL})
"""Errors of filesystems without locks (fcntl(2)); a lock that another process holds gives EAGAIN."""


def has_file_locks(folder: Path) -> bool:
    """False where a file of its own can't be locked in this folder; True also where that can't be tried."""
    import tempfile

    try:
        import fcntl
    except ImportError:  # Windows
        return True
    try:
        fd, name = tempfile.mkstemp(prefix=".trackers-lock-", dir=folder)
    except OSError:
        return True
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno not in _REFUSALS
    finally:
        os.close(fd)
        os.unlink(name)
    return True


def option_directory(info: RunInfo, symbol: str) -> Path | None:
    """The directory that an option names, relative to where training was started; None where it is unset."""
    chosen = info.option(symbol)
    if not chosen:
        return None
    return Path(local(info.home or info.cwd or "."), Path(local(str(chosen))).expanduser()).absolute()


def check_directory(options: Mapping[str, Any], symbol: str) -> None:
    """Raise a UsageError for a directory that can't be made or written. It isn't made."""
    chosen = options.get(symbol)
    if not chosen:
        return
    asked_path = Path(local(str(chosen))).expanduser().absolute()
    nearest = next(path for path in (asked_path, *asked_path.parents) if path.exists())
    if not nearest.is_dir():
        raise UsageError(f"{symbol}={chosen}: {nearest} is not a directory; name another one")
    probe = nearest / f".trackers-{os.getpid()}"  # what the permissions say isn't all: /proc, read-only mounts, quotas
    try:
        os.close(os.open(probe, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        probe.unlink()
    except FileExistsError:  # of a killed process or another thread: it could be made
        pass
    except OSError as error:
        raise UsageError(
            f"{symbol}={chosen}: {nearest} can't be written ({error.strerror}); name another directory"
        ) from None


class FilePrecheck(Tracker):
    """A tracker that writes files to the directory that an option names, or to the run's own."""

    @classmethod
    def check(cls, options: Mapping[str, Any]) -> None:
        """Raise a UsageError for a directory that can't be written."""
        check_directory(options, cls.symbol)

    @classmethod
    def place(cls, info: RunInfo) -> str:
        """The directory that the option names; "" where it is unset and the run's own is taken."""
        return str(option_directory(info, cls.symbol) or "")
