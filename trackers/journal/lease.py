"""Leases on a run's directory without file locks: a file that is created exclusively, refreshed, and taken over."""

from __future__ import annotations

import os
import re
import secrets
import time
from pathlib import Path

import msgspec

from trackers.errors import UNDECODABLE
from trackers.journal.run_directory import read_small, replace_file
from trackers.support import confined, machines, processes, sightings
from trackers.support.clock import monotonic
from trackers.support.failpoints import failpoint
from trackers.support.interruption import pass_on, suppress

STALE_S = 60.0
"""Silence after which a holder on another machine counts as dead, by who waits, in seconds, plus what it asked for."""
HALF_WRITTEN_S = 5.0
"""Time after which an unreadable lease counts as left by a dead writer, in seconds; writing takes microseconds."""
BEAT_S = 1.0
_TOKEN = re.compile(r"[A-Za-z0-9-]{1,64}")


class Holder(msgspec.Struct, omit_defaults=True, kw_only=True):
    """The holder of a lease. allow_s: how long it may stay silent. count: grows with each sign of life."""

    token: str
    host: str = ""
    boot_id: str = ""
    pid_namespace: str = ""
    pid: int = 0
    pid_start: float = 0.0
    allow_s: float = 0.0
    count: int = 0
    time: float = 0.0

    def is_local(self) -> bool:
        """Whether the holder is on this machine, since its last boot, and in this PID namespace."""
        return machines.is_here(self)

    def dead(self) -> bool:
        """Known to be gone. A holder elsewhere can't be known so."""
        return self.is_local() and not processes.alive(self.pid, self.pid_start)

    def sign(self) -> str:
        """What each sign of life changes."""
        return f"{self.token} {self.count}"

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


class Lease:
    """One lease. Works where hard links and locks don't: it needs exclusive creation and rename only."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._mine: Holder | None = None
        self._beaten = 0.0
        self._seen: dict[Path, tuple[str, float]] = {}

    def holder(self) -> Holder | None:
        """Who holds it now, as far as the file says."""
        return read_holder(self.path)

    def acquire(self) -> bool:
        """Try to get it, once. False while somebody else has it."""
        if self._mine is not None:
            return True
        here = machines.machine()
        me = Holder(
            token=secrets.token_hex(8),
            host=here.host,
            boot_id=here.boot_id,
            pid_namespace=here.pid_namespace,
            pid=os.getpid(),
            pid_start=processes.process_start(os.getpid()),
            time=time.time(),
        )
        if self._create(self.path, me):
            self._mine = me
            return True
        other = self._dead_holder(self.path)
        if other is not None:
            self._take_over(other, me)
        return self._mine is not None

    def _take_over(self, other: Holder, me: Holder) -> None:
        """Take the lease over from a holder that is gone; only one process can."""
        takeover, passed = self._takeover_path(other), {other.token}
        while not self._create(takeover, me):
            # A process that died in the middle of this is succeeded by one process again, and so on. A takeover file is
            # never taken away from another process: it may be a new one by then.
            rival = self._dead_holder(takeover)
            if rival is None or rival.token in passed:  # files that name each other have no end
                return
            takeover = self._takeover_path(rival)
            passed.add(rival.token)
        failpoint("lease.claim.after")
        now = _read(self.path)
        if now is None:
            self._mine = me if self._create(self.path, me) else None
        elif now.token == other.token:
            with suppress(OSError):
                replace_file(self.path, msgspec.json.encode(me))
                self._mine = me
        # Takeover files of those who aren't the holder any more mean nothing.
        for void in self.path.parent.glob(f"{self.path.name}.*.taken") if self._mine else [takeover]:
            with suppress(OSError):
                confined.remove(void)

    def _takeover_path(self, other: Holder) -> Path:
        return self.path.with_name(f"{self.path.name}.{other.token}.taken")

    def _dead_holder(self, path: Path) -> Holder | None:
        """The holder that a file names, if it is dead or silent for too long; None if it may live."""
        holder = _read(path)
        if holder is None:
            return None
        return holder if holder.dead() or self._silent(path, holder) > _patience_s(holder) else None

    def beat(self, allow_s: float = 0.0) -> bool:
        """Give a sign of life, at most once a second. False if the lease was lost: stop at once.

        Args:
            allow_s: how long the next sign may take (a long upload).
        """
        if self._mine is None:
            return False
        now = monotonic()
        if now - self._beaten < BEAT_S and self._mine.allow_s >= allow_s:  # a longer silence is announced at once
            return True
        current = self.holder()
        if (current is not None and current.token != self._mine.token) or not self.path.parent.exists():
            self._mine = None  # taken over, or the run's directory was deleted
            return False
        self._mine.count += 1
        self._mine.allow_s = allow_s
        self._mine.time = time.time()
        with suppress(OSError):  # a full disk must not cost the lease
            replace_file(self.path, msgspec.json.encode(self._mine))
        self._beaten = now
        return True

    def release(self) -> None:
        """Give it back, if it is still ours."""
        if self._mine is None:
            return
        current = self.holder()
        if current is not None and current.token == self._mine.token:
            with suppress(OSError):
                confined.remove(self.path)
        self._mine = None

    def _silent(self, path: Path, holder: Holder) -> float:
        """For how long this machine has seen no sign of life, in seconds."""
        now = monotonic()
        sign, since = self._seen.get(path, ("", now))
        if sign != holder.sign():
            since = now - (0.0 if holder.is_local() else sightings.look(path, holder.sign()).still_s)
            self._seen[path] = holder.sign(), since
        return now - since

    @staticmethod
    def _create(path: Path, holder: Holder) -> bool:
        content = msgspec.json.encode(holder)
        try:
            fd = confined.open_fd(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        except OSError as error:  # there is one, or no space, no descriptor left: later
            pass_on(error)
            return False
        failpoint("lease.create.half")
        try:
            whole = os.write(fd, content) == len(content)
        except OSError as error:
            pass_on(error)
            whole = False
        finally:
            os.close(fd)
        if not whole:  # half a lease would hold others up for seconds
            with suppress(OSError):
                confined.remove(path)
        return whole


def read_holder(path: Path) -> Holder | None:
    """Who holds the lease in this file; None if there is none or it can't be read."""
    try:
        holder = msgspec.json.decode(read_small(path), type=Holder)
    except (OSError, *UNDECODABLE) as error:
        pass_on(error)
        return None
    return holder if _TOKEN.fullmatch(holder.token) else None  # it becomes part of a file's name


def living_holder(path: Path) -> Holder | None:
    """Who holds the lease in this file, unless it is known to be gone: dead here, or silent for too long elsewhere."""
    holder = read_holder(path)
    if holder is None or holder.dead():
        return None
    if not holder.is_local() and sightings.look(path, holder.sign()).still_s > _patience_s(holder):
        return None
    return holder


def _patience_s(holder: Holder) -> float:
    """How long a holder may be silent, in seconds."""
    return STALE_S + holder.allow_s if holder.pid else HALF_WRITTEN_S


def _read(path: Path) -> Holder | None:
    """As :func:`read_holder`; a file that can't be read has a holder without a process, with a token of its own."""
    holder = read_holder(path)
    if holder is None:
        with suppress(OSError):
            status = path.lstat()
            return Holder(token=f"half-{status.st_ino}-{status.st_mtime_ns}")
    return holder
