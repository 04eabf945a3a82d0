"""Who may do a job on a run's directory, without file locks: a file created exclusively, kept fresh, taken over."""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from pathlib import Path

import msgspec

from trackers import identity
from trackers.failpoints import failpoint
from trackers.rundir import replace_file

STALE_S = 60.0
"""A holder on another machine that gave no sign for so long, beyond what it asked for, is taken for dead."""
HALF_WRITTEN_S = 5.0
"""A lease that can't be read for so long was being written by a process that died: it takes microseconds."""
BEAT_S = 1.0


class Holder(msgspec.Struct, omit_defaults=True, kw_only=True):
    """Who holds a lease. allow_s: how long it may stay silent. count: grows with each sign of life."""

    token: str
    host: str = ""
    boot_id: str = ""
    pid: int = 0
    pid_start: float = 0.0
    allow_s: float = 0.0
    count: int = 0
    time: float = 0.0

    def here(self) -> bool:
        """On this machine, since its last boot."""
        return self.host == identity.host() and self.boot_id == identity.boot_id()

    def dead(self) -> bool:
        """Known to be gone. A holder elsewhere can't be known so."""
        return self.here() and not identity.alive(self.pid, self.pid_start)

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


class Lease:
    """One lease. Works where hard links and locks don't: it needs exclusive creation and rename only."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._mine: Holder | None = None
        self._beaten = 0.0
        self._seen: tuple[str, int] = ("", -1)
        self._seen_since = 0.0

    def holder(self) -> Holder | None:
        """Who holds it now, as far as the file says."""
        return read_holder(self.path)

    def acquire(self) -> bool:
        """Try to get it, once. False while somebody else has it."""
        if self._mine is not None:
            return True
        me = Holder(
            token=secrets.token_hex(8),
            host=identity.host(),
            boot_id=identity.boot_id(),
            pid=os.getpid(),
            pid_start=identity.process_start(os.getpid()),
            time=time.time(),
        )
        if self._create(self.path, me):
            self._mine = me
            return True
        other = self.holder()
        if other is None and self.path.exists() and self._silent("", -1, HALF_WRITTEN_S - STALE_S):
            with contextlib.suppress(OSError):  # half-written by somebody who died
                self.path.unlink()
            return False
        if other is None or not (other.dead() or self._silent(other.token, other.count, other.allow_s)):
            return False
        # Only one process ever gets to take over from a given holder.
        claim = self.path.with_name(f"{self.path.name}.{other.token}.taken")
        if not self._create(claim, me):
            rival = read_holder(claim)
            if rival is not None and rival.dead():
                with contextlib.suppress(OSError):
                    claim.unlink()
            return False
        now = self.holder()
        if now is None or now.token == other.token:
            with contextlib.suppress(OSError):
                replace_file(self.path, msgspec.json.encode(me))
                self._mine = me
        with contextlib.suppress(OSError):
            claim.unlink()
        return self._mine is not None

    def beat(self, allow_s: float = 0.0) -> bool:
        """Give a sign of life, at most once a second. False if the lease was lost: stop at once.

        Args:
            allow_s: how long the next sign may take (a long upload).
        """
        if self._mine is None:
            return False
        now = time.monotonic()
        if now - self._beaten < BEAT_S and self._mine.allow_s >= allow_s:
            return True
        current = self.holder()
        if (current is not None and current.token != self._mine.token) or not self.path.parent.exists():
            self._mine = None  # taken over, or the run's directory was deleted
            return False
        self._mine.count += 1
        self._mine.allow_s = allow_s
        self._mine.time = time.time()
        with contextlib.suppress(OSError):  # a full disk must not cost the lease
            replace_file(self.path, msgspec.json.encode(self._mine))
        self._beaten = now
        return True

    def release(self) -> None:
        """Give it back, if it is still ours."""
        if self._mine is None:
            return
        current = self.holder()
        if current is not None and current.token == self._mine.token:
            with contextlib.suppress(OSError):
                self.path.unlink()
        self._mine = None

    def _silent(self, token: str, count: int, allow_s: float) -> bool:
        now = time.monotonic()
        if self._seen != (token, count):
            self._seen = (token, count)
            self._seen_since = now
        return now - self._seen_since > STALE_S + allow_s

    @staticmethod
    def _create(path: Path, holder: Holder) -> bool:
        content = msgspec.json.encode(holder)
        try:
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        except OSError:  # there is one, or no space, no descriptor left: later
            return False
        failpoint("lease.create.half")
        try:
            whole = os.write(fd, content) == len(content)
        except OSError:
            whole = False
        finally:
            os.close(fd)
        if not whole:
            with contextlib.suppress(OSError):
                path.unlink()
        return whole


def read_holder(path: Path) -> Holder | None:
    """Who holds the lease in this file; None if there is none or it can't be read."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Holder)
    except (OSError, msgspec.DecodeError):
        return None
