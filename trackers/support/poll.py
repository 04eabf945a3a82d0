"""Waiting until a descriptor can be read: ``select`` alone fails for descriptors from 1024 on."""

from __future__ import annotations

import select


def readable(fd: int, timeout_s: float) -> bool:
    """Wait until ``fd`` has something to read or has ended, at most ``timeout_s`` seconds; whether it has."""
    if not hasattr(select, "poll"):
        return bool(select.select([fd], [], [], timeout_s)[0])
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(max(timeout_s, 0) * 1000))
