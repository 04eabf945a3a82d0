"""Rate limiting shared by all deliveries of a user on a machine: after a server answers 429, all slow down.

A server's limit counts the requests of all runs, and a delivery doesn't know of the others. So the first one that is
rate-limited writes a file for that server: until when nobody sends requests, and the gap between requests from then on.
Each delivery reserves the next free time in it before a request, so that requests don't come all at once after the
pause. The gap doubles with each further 429, and shrinks by half repeatedly while there is none.

Until a server has limited requests, there is no file, and nothing is locked.

Starts of runs have a rate of their own (:class:`BeginPace`), for servers count them apart from values, and allow few.
A refused start delays those of other runs, not their values.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import struct
import time
from collections.abc import Iterator

from trackers.support import machines
from trackers.support.runtime_directory import directory, open_directory

STATE = struct.Struct("<4d")
"""until, gap_s, next, limited_at: see :class:`Pace`; times are of the monotonic clock, which all processes share."""
PAUSE_S = 1.0
"""Pause where the server doesn't say how long, in seconds."""
MOST_PAUSE_S = 3600.0  # whatever Retry-After says
GAP_S = (0.02, 2.0)
"""The smallest gap and the largest, in seconds."""
SAME_S = 1.0
"""429s within this time, or within two gaps, count as one: requests were already under way. In seconds."""
CALM_S = 2.0
"""Time without a 429 after which the gap shrinks, in seconds."""
HALF_S = 3.0
"""Time in which the gap then halves, in seconds."""
LOCK_WAITS_S = (0.0, 0.001, 0.002, 0.005, 0.01, 0.02)
"""Waits between tries to lock the file, in seconds."""
BEGIN_GAP_S = (0.1, 8.0)
"""The smallest and the largest gap between starts of runs, each of which is several requests, in seconds."""
BEGIN_REFUSED_S = 1.0
"""The smallest gap after a refused start, in seconds."""
BEGIN_SHRINKS = (0.7, 0.85)
"""Factors of the gap at each accepted start: usually, and within a minute of a refusal."""
BEGIN_CAREFUL_S = 60.0
BEGIN_FORGET_S = 20.0
"""Time without a start after which the gap is reset, in seconds."""
SPREAD = 0.5
"""Maximum random delay, as a fraction of the gap: two machines with the same limit don't stay in step."""


class Pace:
    """One delivery's use of a server's rate limit.

    Args:
        tracker, address: name the server: the tracker and the server's address.
    """

    kind = "pace"
    most_gap_s = GAP_S[1]

    def __init__(self, tracker: str, address: str) -> None:
        key = f"{tracker} {address} {machines.boot_id()}".encode("utf-8", "surrogateescape")
        self._name = f"{self.kind}-{hashlib.sha256(key).hexdigest()[:16]}"
        self._granted_at = 0.0
        self._fd = -1
        self._looked = 0.0

    def wait(self) -> float:
        """Seconds until this delivery may send a request; 0.0: now. Takes microseconds."""
        state = self._read()
        if state is None:
            return 0.0
        now = time.monotonic()
        until, gap_s = state[0], _gap(state, now)
        if not gap_s and until <= now:
            self._granted_at = 0.0
            return 0.0
        if self._granted_at <= 0.0 or self._granted_at < until:  # none yet, or the server has limited requests again
            with self._locked() as fd:
                if fd < 0:
                    return max(0.0, until - now)
                state = self._state(fd)
                until, written_s, next_slot, limited_at = state
                gap_s = _gap(state, now)
                self._granted_at = max(now, until, next_slot)
                next_slot = self._granted_at + gap_s
                self._granted_at += gap_s * random.uniform(0.0, SPREAD)
                os.pwrite(fd, STATE.pack(until, written_s, next_slot, limited_at), 0)
        return max(0.0, self._granted_at - now)

    def slower(self, retry_after_s: float | None) -> None:
        """The server has limited requests. retry_after_s: the pause that it asks for, if it says."""
        now = time.monotonic()
        pause_s = min(PAUSE_S if retry_after_s is None else max(retry_after_s, 0.0), MOST_PAUSE_S)
        self._granted_at = 0.0
        with self._locked(make=True) as fd:
            if fd < 0:
                return
            state = self._state(fd)
            until, gap_s, next_slot, limited_at = state
            if now - limited_at > max(SAME_S, 2 * gap_s):
                gap_s = min(max(2 * _gap(state, now), GAP_S[0]), GAP_S[1])
            os.pwrite(fd, STATE.pack(max(until, now + pause_s), gap_s, next_slot, now), 0)

    def accepted(self) -> None:
        """The server has accepted a request: the next one needs a new reservation."""
        self._granted_at = 0.0

    def close(self) -> None:
        """Release the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _read(self) -> tuple[float, float, float, float] | None:
        """The file's content; None while no server has limited requests."""
        if self._fd < 0 and not self._open():
            return None
        try:
            return self._state(self._fd)
        except OSError:
            return None

    def _open(self, make: bool = False) -> bool:
        with contextlib.suppress(OSError, AttributeError):  # AttributeError: Windows lacks the flags
            flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | (os.O_CREAT if make else 0)
            folder = open_directory(directory(), make=make)
            try:
                self._fd = os.open(self._name, flags, 0o600, dir_fd=folder)
                return True
            finally:
                os.close(folder)
        return False

    def _state(self, fd: int) -> tuple[float, float, float, float]:
        content = os.pread(fd, STATE.size, 0)
        if len(content) < STATE.size:
            return 0.0, 0.0, 0.0, -1e9
        until, gap_s, next_slot, limited_at = STATE.unpack(content)
        now = time.monotonic()
        sane = until <= now + MOST_PAUSE_S and 0.0 <= gap_s <= self.most_gap_s and next_slot <= now + MOST_PAUSE_S
        return (until, gap_s, next_slot, limited_at) if sane else (0.0, 0.0, 0.0, -1e9)  # of before a reboot

    @contextlib.contextmanager
    def _locked(self, make: bool = False) -> Iterator[int]:
        """The locked file's descriptor; -1 where there is none, or a holder, who takes microseconds, is stopped."""
        fd = -1
        try:
            import fcntl

            if self._fd >= 0 or self._open(make):
                for wait_s in LOCK_WAITS_S:
                    with contextlib.suppress(BlockingIOError):
                        fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                        fd = self._fd
                        break
                    time.sleep(wait_s)
        except (ImportError, OSError):  # ImportError: Windows
            fd = -1
        try:
            yield fd
        finally:
            if fd >= 0:
                with contextlib.suppress(OSError):
                    fcntl.flock(fd, fcntl.LOCK_UN)


class BeginPace(Pace):
    """One delivery's use of the rate at which runs start on a server: one after the other, a gap apart.

    No time is reserved: a waiting delivery uses the gap as it is when it wakes. Each start that the server accepts
    shrinks the gap. So if many runs start at once, or reconnect to a server that was unreachable, the first ones see a
    refusal before the others ask, and without one all start within seconds. In the file, ``next`` is the last start.

    Args:
        apart_s: the initial gap, in seconds; 0.0: none until a server has refused a start.
    """

    kind = "begin"
    most_gap_s = BEGIN_GAP_S[1]

    def __init__(self, tracker: str, address: str, apart_s: float = 0.0) -> None:
        super().__init__(tracker, address)
        self._apart_s = apart_s

    def wait(self) -> float:
        """Seconds until this delivery may try to start its run; 0.0: now."""
        if self._granted_at > 0.0 or (self._fd < 0 and not self._open(make=self._apart_s > 0.0)):
            return 0.0
        with self._locked() as fd:
            if fd < 0:
                return 0.0
            now, until, gap_s, last, limited_at = self._now(fd)
            free = max(until, last + gap_s)
            if free > now:
                return free - now + gap_s * random.uniform(0.0, SPREAD)
            self._granted_at = now
            os.pwrite(fd, STATE.pack(until, gap_s, now, limited_at), 0)
            return 0.0

    def slower(self, retry_after_s: float | None) -> None:
        """The server has refused a start as one too many. retry_after_s: the pause that it asks for, if it says."""
        self._granted_at = 0.0
        pause_s = min(PAUSE_S if retry_after_s is None else max(retry_after_s, 0.0), MOST_PAUSE_S)
        with self._locked(make=True) as fd:
            if fd < 0:
                return
            now, until, gap_s, last, limited_at = self._now(fd)
            if now - limited_at > max(SAME_S, gap_s):
                gap_s = min(max(2 * gap_s, BEGIN_REFUSED_S), BEGIN_GAP_S[1])
            os.pwrite(fd, STATE.pack(max(until, now + pause_s), gap_s, last, now), 0)

    def accepted(self) -> None:
        """The run has started."""
        began, self._granted_at = self._granted_at > 0.0, 0.0
        if not began or self._fd < 0:
            return
        with self._locked() as fd:
            if fd < 0:
                return
            now, until, gap_s, last, limited_at = self._now(fd)
            if now - limited_at > max(CALM_S, gap_s):
                gap_s *= BEGIN_SHRINKS[now - limited_at < BEGIN_CAREFUL_S]
                os.pwrite(fd, STATE.pack(until, max(gap_s, BEGIN_GAP_S[0]), last, limited_at), 0)

    def failed(self) -> None:
        """The start failed for a reason other than their number: the retry waits again."""
        self._granted_at = 0.0

    def _now(self, fd: int) -> tuple[float, float, float, float, float]:
        """The time, and the file's current values: the end of the pause, the gap, the last start and the last 429."""
        now, (until, gap_s, last, limited_at) = time.monotonic(), self._state(fd)
        counts = gap_s > 0.0 and now - max(last, limited_at) < BEGIN_FORGET_S
        return now, until, gap_s if counts else self._apart_s, last, limited_at


def _gap(state: tuple[float, float, float, float], now: float) -> float:
    """The current gap: the stored one, halved every :data:`HALF_S` since the last 429; 0.0 for none."""
    gap_s = state[1] * 0.5 ** (max(0.0, now - state[3] - CALM_S) / HALF_S)
    return gap_s if gap_s >= GAP_S[0] / 2 else 0.0
