"""One writer for all runs of a user on a machine: what is new of them becomes one commit of each table a round.

Deliveries to one lake share a folder of this user's on this machine. Each has a note of its run there. Whoever finds
that nobody holds the folder's lock starts a writer, a process of its own, to which the lock is handed: it ends with
that process, however that dies, and the next one begins by the same rule. When a round has put a run in, the note gets
a new time; when it has put in a run that has ended, the note is removed, and its delivery waits for that. A delivery
that sees neither in time puts its run in by itself: two writers of one run do the same work twice, and the lake has it
once (:mod:`trackers_lake.tables`).
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import msgspec

from trackers._version import __version__
from trackers.errors import UNDECODABLE, DeliveryError, TrackersError
from trackers.journal.run_directory import RunDirectory
from trackers.support import confined, runtime_directory
from trackers.support.failpoints import failpoint

FOLDER = "lakes"
LOCK = "writer.lock"
LOG = "writer.log"
NOTE, ENDED = ".run", ".ended"
SILENT_ROUNDS = 3
"""A run that wasn't put in for so many rounds puts itself in."""
END_S = 30.0
"""How long a run that has ended waits for the writer, in seconds."""
EARLY = 6
"""For runs that have ended a round may begin after this part of the pause."""
LOOK_S = 0.5
PAUSES_S = (0.0, 1.0, 5.0, 30.0)
"""Before a writer is started again, by how many died in a row."""
ENVIRONMENT = ("AWS_", "AZURE_", "GOOGLE_", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "SSL_", "TRACKER_PLUGINS")
"""Beginnings of the variables that a writer reads: runs that differ in them have writers of their own."""


class Lakes(NamedTuple):
    """What runs that share a writer have in common. where: the lake. every_s: between rounds. keep_days: as
    ``trackers lake add`` has it."""

    where: str
    every_s: float
    keep_days: float

    def folder(self) -> Path:
        """Where they meet; made if it isn't there.

        Raises:
            OSError: there can be none.
        """
        variables = sorted(
            (name, value) for name, value in os.environ.items() if name.upper().startswith(ENVIRONMENT)
        )  # fmt: skip
        mounts = os.stat("/proc/self/ns/mnt").st_ino if os.path.exists("/proc/self/ns/mnt") else 0
        common = (*self, __version__, __file__, sys.executable, mounts, variables)
        base = runtime_directory.directory()
        os.close(runtime_directory.open_directory(base, make=True))
        folder = base / FOLDER / hashlib.sha256(msgspec.json.encode(common)).hexdigest()[:24]
        confined.make_private(folder)
        return folder


class Member:
    """A run of a node that has one writer.

    Args:
        run: its directory, absolute. environment: of a writer that it starts.

    Raises:
        OSError: no folder can be had.
    """

    def __init__(self, run: Path, lakes: Lakes, environment: dict[str, str]) -> None:
        self._run, self._lakes, self._environment = run, lakes, environment
        self._folder = lakes.folder()
        name = hashlib.sha256(os.fsencode(run)).hexdigest()[:24]
        self._note, self._ended = self._folder / f"{name}{NOTE}", self._folder / f"{name}{ENDED}"
        self._seen = 0
        self._served = time.monotonic()
        self._looked, self._is_served = -LOOK_S, True
        self._writer: subprocess.Popen[bytes] | None = None
        self._deaths, self._due = 0, 0.0
        with contextlib.suppress(OSError):
            self._ended.unlink()

    def is_served(self) -> bool:
        """Whether the run is put in by the node's writer; one is started where there is none."""
        now = time.monotonic()
        if now - self._looked >= LOOK_S:
            self._looked, self._is_served = now, self._look(now)
        return self._is_served

    def _look(self, now: float) -> bool:
        try:
            self._leave_note()
            self._look_after_writer(now)
            written = self._note.stat().st_mtime_ns
        except OSError:
            return False
        if written != self._seen:
            self._seen, self._served = written, now
        return now - self._served < SILENT_ROUNDS * self._lakes.every_s

    def finish(self, pause: Callable[[float], None] = time.sleep) -> bool:
        """The run has ended: wait until the writer has put it in; False: it hasn't, and the run has to."""
        until = time.monotonic() + END_S
        try:
            self._leave_note()
            self._ended.touch()
            while time.monotonic() < until:
                if not self._note.exists():
                    return True
                self._look_after_writer(time.monotonic())
                pause(LOOK_S)
        except OSError:
            return False
        return False

    def leave(self) -> None:
        """The run needs no writer any more."""
        for path in (self._note, self._ended):
            with contextlib.suppress(OSError):
                path.unlink()

    def _leave_note(self) -> None:
        if not self._note.exists():
            confined.make_private(self._folder)
            confined.write_whole(self._note, os.fsencode(self._run), root=self._folder)
            self._seen = self._note.stat().st_mtime_ns

    def _look_after_writer(self, now: float) -> None:
        if self._writer is not None and self._writer.poll() is not None:
            self._deaths = self._deaths + 1 if self._writer.returncode else 0
            self._writer, self._due = None, now + PAUSES_S[min(self._deaths, len(PAUSES_S) - 1)]
        if self._writer is not None or now < self._due:
            return
        fd = os.open(self._folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            command = [sys.executable, "-m", "trackers_lake.node", str(self._folder), str(fd), self._lakes.where,
                       str(self._lakes.every_s), str(self._lakes.keep_days)]  # fmt: skip
            with (self._folder / LOG).open("wb") as log:
                self._writer = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log, cwd=self._folder,
                    env=self._environment, pass_fds=[fd], start_new_session=True,
                )  # fmt: skip
        except BlockingIOError:
            pass
        finally:
            os.close(fd)


class Writer:
    """The node's writer. It ends when there was no run for a whole pause.

    Args:
        folder: where the runs' notes are. wait: waits for so many seconds; True: stop.
    """

    def __init__(self, folder: Path, lakes: Lakes, wait: Callable[[float], bool]) -> None:
        from trackers_lake import into_lake

        self._folder, self._lakes, self._wait = folder, lakes, wait
        self._looks: into_lake.Looks = {}

    def run(self) -> None:
        """Put runs in, round after round."""
        from trackers_lake.tables import DAY_S, Lake

        lake: Lake | None = None
        idle_since = time.monotonic()
        while True:
            began = time.monotonic()
            notes = self._notes()
            if notes:
                idle_since = began
                try:
                    lake = lake or Lake(self._lakes.where, make=True, keep_s=self._lakes.keep_days * DAY_S)
                    self._round(lake, notes)
                except DeliveryError as error:  # the runs say so themselves, when they aren't served any more
                    print(error, file=sys.stderr, flush=True)
            elif began - idle_since >= self._lakes.every_s:
                return
            if self._pause(began):
                return

    def _round(self, lake: object, notes: dict[Path, bool]) -> None:
        from trackers_lake import into_lake
        from trackers_lake.tables import Lake

        assert isinstance(lake, Lake)
        entries = {}
        for note in notes:
            entry = into_lake.candidate(RunDirectory(Path(os.fsdecode(note.read_bytes()))))
            if entry is None:
                self._forget(note)
            else:
                entries[note] = entry
        for key in self._looks.keys() - {entry.key for entry in entries.values()}:
            del self._looks[key]
        done = into_lake.fill(lake, list(entries.values()), looks=self._looks)
        for problem in done.problems:
            print(problem, file=sys.stderr, flush=True)
        failpoint("lake.node.round")
        for note, entry in entries.items():
            if entry.key in done.left_out:
                continue
            if notes[note] or entry.run.status != "running":  # else it lives: its delivery leaves another note
                self._forget(note)
            else:
                with contextlib.suppress(OSError):
                    os.utime(note)

    def _notes(self) -> dict[Path, bool]:
        """The runs' notes, and whether a run has ended."""
        return {note: note.with_suffix(ENDED).exists() for note in sorted(self._folder.glob(f"*{NOTE}"))}

    def _forget(self, note: Path) -> None:
        for path in (note.with_suffix(ENDED), note):
            with contextlib.suppress(OSError):
                path.unlink()

    def _pause(self, began: float) -> bool:
        """Wait for the next round; True: stop."""
        every_s = self._lakes.every_s
        while (passed := time.monotonic() - began) < every_s:
            if passed >= every_s / EARLY and any(self._notes().values()):
                return False
            if self._wait(min(LOOK_S, every_s - passed)):
                return True
        return False


def main(arguments: list[str]) -> int:
    """What a writer does."""
    folder, fd, where, every_s, keep_days = arguments
    os.set_inheritable(int(fd), False)
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    try:
        Writer(Path(folder), Lakes(where, float(every_s), float(keep_days)), stopped.wait).run()
    except (TrackersError, OSError, *UNDECODABLE) as error:
        print(error, file=sys.stderr, flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
