"""Detects whether a filesystem has the file locks that the vendors' SQLite stores need."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path

_REFUSALS = frozenset({errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL})
"""Errors of filesystems without locks (fcntl(2)); a lock that another process holds gives EAGAIN."""


def has_locks(folder: Path) -> bool:
    """False where a file of its own can't be locked in this folder; True also where that can't be tried."""
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
