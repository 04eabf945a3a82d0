"""How often one server is asked by all deliveries of a user on a machine: where it answers 429, all slow down.

A server's limit counts what all runs ask together, and each delivery alone can't know of the others. So the first one
that is told to ask less writes it down, in a file for each server: until when nobody asks, and how far apart requests
are from then on. Each delivery reserves the next free moment there before it asks. So they come one after the other,
not all at once when the pause is over. The gap doubles with each further 429, and halves again and again while there is
none.

While no server has asked for that, there is no file, and nothing is locked.

Runs begin at a pace of their own (:class:`BeginPace`), for servers count beginnings apart from values, and take few. A
refused beginning puts off those of other runs, not their values.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import struct
import time
from collections.abc import Iterator

from trackers.support import process_info
from trackers.support.runtime_directory import directory, open_directory

STATE = struct.Struct("<4d")
"""until, gap_s, next, limited_at: see :class:`Pace`; times are of the monotonic clock, which all processes share."""
PAUSE_S = 1.0
"""Pause where the server doesn't say how long, in seconds."""
MOST_PAUSE_S = 3600.0
GAP_S = (0.02, 2.0)
"""The smallest gap and the largest, in seconds."""
SAME_S = 1.0
"""Answers within this time, or within two gaps, are of one moment: of requests that were on their way, in seconds."""
CALM_S = 2.0
"""Time without a 429 after which the gap shrinks, in seconds."""
HALF_S = 3.0
"""Time in which it halves then, in seconds."""
LOCK_WAITS_S = (0.0, 0.001, 0.002, 0.005, 0.01, 0.02)
"""Waits between tries to lock the file, in seconds."""
BEGIN_GAP_S = (0.1, 8.0)
"""The smallest gap between beginnings of runs, each of which is several requests, and the largest, in seconds."""
BEGIN_REFUSED_S = 1.0
"""The smallest one after a refusal, in seconds."""
BEGIN_SHRINKS = (0.7, 0.85)
"""By what it is multiplied with each beginning that the server has taken, and within a minute of a refusal."""
BEGIN_CAREFUL_S = 60.0
BEGIN_FORGET_S = 20.0
"""Time without a beginning after which it is what it was at first, in seconds."""
SPREAD = 0.5
"""By how much of a gap, at most, a moment is put off at random: two machines with the same limit don't stay in step."""


class Pace:
    """One delivery's part in it.

    Args:
        tracker, place: which server: the tracker's name, and its address.
    """

    kind = "pace"
    most_gap_s = GAP_S[1]

    def __init__(self, tracker: str, place: str) -> None:
        key = f"{tracker} {place} {process_info.boot_id()}".encode("utf-8", "surrogateescape")
        self._name = f"{self.kind}-{hashlib.sha256(key).hexdigest()[:16]}"
        self._slot = 0.0
        self._fd = -1
        self._looked = 0.0

    def wait(self) -> float:
        """How long this delivery waits until it may ask, in seconds; 0.0: now. Takes microseconds."""
        state = self._read()
        if state is None:
            return 0.0
        now = time.monotonic()
        until, gap_s = state[0], _gap(state, now)
        if not gap_s and until <= now:
            self._slot = 0.0
            return 0.0
        if self._slot <= 0.0 or self._slot < until:  # none yet, or the server has spoken again
            with self._locked() as fd:
                if fd < 0:
                    return max(0.0, until - now)
                state = self._state(fd)
                until, written_s, following, limited_at = state
                gap_s = _gap(state, now)
                self._slot = max(now, until, following)
                following = self._slot + gap_s
                self._slot += gap_s * random.uniform(0.0, SPREAD)
                os.pwrite(fd, STATE.pack(until, written_s, following, limited_at), 0)
        return max(0.0, self._slot - now)

    def slower(self, retry_after_s: float | None) -> None:
        """The server has asked for fewer requests. retry_after_s: when to come back, if it says."""
        now = time.monotonic()
        pause_s = min(PAUSE_S if retry_after_s is None else max(retry_after_s, 0.0), MOST_PAUSE_S)
        self._slot = 0.0
        with self._locked(make=True) as fd:
            if fd < 0:
                return
            state = self._state(fd)
            until, gap_s, following, limited_at = state
            if now - limited_at > max(SAME_S, 2 * gap_s):
                gap_s = min(max(2 * _gap(state, now), GAP_S[0]), GAP_S[1])
            os.pwrite(fd, STATE.pack(max(until, now + pause_s), gap_s, following, now), 0)

    def taken(self) -> None:
        """The server has taken what was asked: the next time has another moment."""
        self._slot = 0.0

    def close(self) -> None:
        """Release the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _read(self) -> tuple[float, float, float, float] | None:
        """What is written down; None while no server has asked for less."""
        if self._fd < 0 and not self._open():
            return None
        try:
            return self._state(self._fd)
        except OSError:
            return None

    def _open(self, make: bool = False) -> bool:
        flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | (os.O_CREAT if make else 0)
        with contextlib.suppress(OSError, AttributeError):
            folder = open_directory(directory(), make=make)
            try:
                self._fd = os.open(self._name, flags, 0o600, dir_fd=folder)
                return True
            finally:
                os.close(folder)
        return False

    def _state(self, fd: int) -> tuple[float, float, float, float]:
        found = os.pread(fd, STATE.size, 0)
        if len(found) < STATE.size:
            return 0.0, 0.0, 0.0, -1e9
        until, gap_s, following, limited_at = STATE.unpack(found)
        now = time.monotonic()
        sane = until <= now + MOST_PAUSE_S and 0.0 <= gap_s <= self.most_gap_s and following <= now + MOST_PAUSE_S
        return (until, gap_s, following, limited_at) if sane else (0.0, 0.0, 0.0, -1e9)

    @contextlib.contextmanager
    def _locked(self, make: bool = False) -> Iterator[int]:
        """The file, while nobody else changes it; -1 where there is none, or it can't be locked soon: who has it takes
        microseconds, or was stopped."""
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
        except (ImportError, OSError):
            fd = -1
        try:
            yield fd
        finally:
            if fd >= 0:
                with contextlib.suppress(OSError):
                    fcntl.flock(fd, fcntl.LOCK_UN)


class BeginPace(Pace):
    """One delivery's part in when runs begin: one after the other, a gap apart.

    No moment is reserved: whoever waits sees the gap as it is then. Each beginning that the server has taken makes it
    smaller. So where many runs start at once, or come back to a server that was away, the first ones hear of a refusal
    before the others ask, and without one all have begun in seconds. In the file, ``next`` is when the last one began.

    Args:
        apart_s: the gap at first, in seconds; 0.0: none before a server has refused a beginning.
    """

    kind = "begin"
    most_gap_s = BEGIN_GAP_S[1]

    def __init__(self, tracker: str, place: str, apart_s: float = 0.0) -> None:
        super().__init__(tracker, place)
        self._apart_s = apart_s

    def wait(self) -> float:
        """How long this delivery waits until it may ask whether to begin, in seconds; 0.0: it begins now."""
        if self._slot > 0.0 or (self._fd < 0 and not self._open(make=self._apart_s > 0.0)):
            return 0.0
        with self._locked() as fd:
            if fd < 0:
                return 0.0
            now, until, gap_s, last, limited_at = self._now(fd)
            free = max(until, last + gap_s)
            if free > now:
                return free - now + gap_s * random.uniform(0.0, SPREAD)
            self._slot = now
            os.pwrite(fd, STATE.pack(until, gap_s, now, limited_at), 0)
            return 0.0

    def slower(self, retry_after_s: float | None) -> None:
        """The server has refused a beginning for their number. retry_after_s: when to come back, if it says."""
        self._slot = 0.0
        pause_s = min(PAUSE_S if retry_after_s is None else max(retry_after_s, 0.0), MOST_PAUSE_S)
        with self._locked(make=True) as fd:
            if fd < 0:
                return
            now, until, gap_s, last, limited_at = self._now(fd)
            if now - limited_at > max(SAME_S, gap_s):
                gap_s = min(max(2 * gap_s, BEGIN_REFUSED_S), BEGIN_GAP_S[1])
            os.pwrite(fd, STATE.pack(max(until, now + pause_s), gap_s, last, now), 0)

    def taken(self) -> None:
        """The run has begun."""
        began, self._slot = self._slot > 0.0, 0.0
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
        """It hasn't, for another reason than their number: the next try has another turn."""
        self._slot = 0.0

    def _now(self, fd: int) -> tuple[float, float, float, float, float]:
        """The time, and what is written down as it counts now: the pause's end, the gap, the last beginning and 429."""
        now, (until, gap_s, last, limited_at) = time.monotonic(), self._state(fd)
        counts = gap_s > 0.0 and now - max(last, limited_at) < BEGIN_FORGET_S
        return now, until, gap_s if counts else self._apart_s, last, limited_at


def _gap(state: tuple[float, float, float, float], now: float) -> float:
    """The gap now: what was written down, halved since the last 429 again and again; 0.0 for none."""
    gap_s = state[1] * 0.5 ** (max(0.0, now - state[3] - CALM_S) / HALF_S)
    return gap_s if gap_s >= GAP_S[0] / 2 else 0.0
