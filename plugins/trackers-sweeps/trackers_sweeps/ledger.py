"""A sweep's files in a directory of runs: its lease, its command, and each point's output and outcome."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shlex
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from trackers.errors import UNDECODABLE, UsageError
from trackers.journal.lease import HALF_WRITTEN_S, STALE_S, Lease
from trackers.journal.run_directory import SHARES, read_small, replace_file
from trackers.support import confined, machines, processes, user_directories

SWEEPS = ".sweeps"
"""Folder of a directory of runs with a folder for each sweep."""
CLAIMS = "claims"
"""Folder of a sweep with a lease for each point that a worker has."""
LONGEST = 60
"""Maximum number of a name's characters in a file's name."""


class PointOutcome(msgspec.Struct, omit_defaults=True, kw_only=True):
    """State of a point's program. ended: finished, failed or stopped; "" while it runs, as far as was seen.

    pid, start, host, boot_id, pid_namespace: of its process. devices: the GPUs that it has.
    """

    ended: str = ""
    pid: int = 0
    start: float = 0.0
    host: str = ""
    boot_id: str = ""
    pid_namespace: str = ""
    devices: list[str] = []

    def lives(self) -> bool:
        """Whether the process is there: on this machine, and the same one."""
        return not self.ended and machines.is_here(self) and processes.alive(self.pid, self.start)


class _About(msgspec.Struct):
    name: str
    command: list[str]


class Ledger:
    """The folder of one sweep in a directory of runs.

    Args:
        root: that directory. name: the sweep's.
    """

    def __init__(self, root: Path, name: str) -> None:
        self.folder = root / SWEEPS / _folder(name)
        self._root = root
        self._name = name
        self._lease = Lease(self.folder / "lease")
        self._claims: dict[str, Lease] = {}

    def begin(self, *, shared: bool = False, share: str = "owner") -> None:
        """Take the sweep: one process trains it at a time.

        Args:
            shared: several do, each of which takes single points by :meth:`claim`.
            share: who can read it, as ``TRACKER_SHARE`` says: it has what the programs print, and their commands.

        Raises:
            UsageError: another one does. OSError: the folder can't be made or written.
        """
        confined.make_base(self._root)
        confined.make_folder(self.folder.parent, root=self._root)
        with contextlib.suppress(FileExistsError):
            self.folder.mkdir(SHARES.get(share, 0o700))
        confined.make_folder(self.folder, root=self._root)  # it is no link
        if shared:
            confined.make_folder(self.folder / CLAIMS, root=self._root)
            return
        began, first = time.monotonic(), self._lease.holder()
        while not self._lease.acquire():
            holder = self._lease.holder()
            waited = time.monotonic() - began
            if holder is None:
                may_be_gone = waited < HALF_WRITTEN_S + 1
            else:  # one elsewhere that stays silent for long enough is gone
                silent = first is None or (holder.token, holder.count) == (first.token, first.count)
                may_be_gone = not holder.is_local() and silent and waited < STALE_S + holder.allow_s + 2
            if may_be_gone:
                time.sleep(0.2)
                continue
            if holder is None:  # nobody has it: it can't be written
                confined.touch(self.folder / "lease", root=self._root)
            raise UsageError(
                f"sweep {self._name!r} is being trained by {holder or 'another process'}: wait for it, end it, "
                "or give this one another --name"
            )

    def claim(self, point_id: str) -> Any:
        """Take a point that no other worker has: its lease. None while one has it, and may live."""
        lease = self._claims.setdefault(point_id, Lease(self.folder / CLAIMS / f"{point_id}.lease"))
        return lease if lease.acquire() else None

    def told(self, point_id: str) -> str:
        """How a point has ended, by the word of whichever worker: finished, failed, or "" where nothing is known."""
        return "finished" if self.outcome(point_id).ended == "finished" else ""

    def tell(self, point_id: str, ended: str) -> None:
        """Have the workers on other machines know how a point has ended; here :meth:`note` tells all of them."""

    def read_trial(self, point_id: str) -> bytes:
        """A point's trial, of a search. Raises OSError where there is none."""
        return read_small(self.parameters(point_id, "trial"))

    def write_trial(self, point_id: str, content: bytes) -> None:
        """Write a point's trial. Raises OSError."""
        replace_file(self.parameters(point_id, "trial"), content)

    def keep(self) -> bool:
        """Refresh the lease; False if another process has taken it, since this one seemed dead."""
        return self._lease.beat()

    def end(self) -> None:
        """Release the lease."""
        self._lease.release()

    def command(self) -> list[str]:
        """The command of what was trained under this name; [] where nothing was."""
        with contextlib.suppress(OSError, *UNDECODABLE):
            return msgspec.json.decode(read_small(self.folder / "sweep.json"), type=_About).command
        return []

    def note_command(self, words: Sequence[str]) -> None:
        """Store the sweep's command, for :meth:`command`."""
        replace_file(self.folder / "sweep.json", msgspec.json.encode(_About(self._name, list(words))))

    def was_started(self, run_id: str) -> bool:
        """Whether a program was started for a run of this id."""
        return self.log(run_id).exists() or self._file(run_id).exists()

    def outcome(self, run_id: str) -> PointOutcome:
        """The recorded state of a run's program; the defaults where there is none."""
        outcome = PointOutcome()
        with contextlib.suppress(OSError, *UNDECODABLE):
            outcome = msgspec.json.decode(read_small(self._file(run_id)), type=PointOutcome)
        if not outcome.ended and not outcome.lives():
            with contextlib.suppress(OSError, ValueError):
                outcome.ended = "failed" if int(read_small(self.exit_code(run_id))) else "finished"
        return outcome

    def is_mine(self, run_id: str) -> bool:
        """Whether this user wrote the state of a run's program: nobody else says which processes get our signals."""
        with contextlib.suppress(OSError):
            return os.lstat(self._file(run_id)).st_uid == os.geteuid()
        return False

    def exit_code(self, run_id: str) -> Path:
        """A file with the exit code of a worker's program, which its shell writes into: a killed worker can't."""
        return self.folder / f"{run_id}.code"

    def note(self, run_id: str, outcome: PointOutcome) -> None:
        """Record the state of a run's program. A full disk doesn't prevent training."""
        with contextlib.suppress(OSError):
            replace_file(self._file(run_id), msgspec.json.encode(outcome))

    def _file(self, run_id: str) -> Path:
        return self.folder / f"{run_id}.state"

    def log(self, run_id: str) -> Path:
        """What a run's program printed."""
        return self.folder / f"{run_id}.log"

    def parameters(self, run_id: str, what: str) -> Path:
        """A file with a run's parameters. what: of its name, before ``.json``."""
        return self.folder / f"{run_id}.{what}.json"

    def given(self, run_id: str, what: str) -> Path:
        """A file with what a run's program is given, which nobody else can replace before it is read: of this user's
        own state where others can write to the sweep's folder. what: as for :meth:`parameters`.

        Raises:
            OSError: there is no folder for it.
        """
        folder = self.folder.absolute()
        status = folder.stat()
        if status.st_mode & 0o022 or status.st_uid != os.geteuid():
            own = hashlib.sha256(os.fsencode(folder)).hexdigest()[:16]
            folder = user_directories.of("STATE") / "sweeps" / own
            confined.make_private(folder)
        return folder / f"{run_id}.{what}.json"

    def write_parameters(self, path: Path, content: object) -> None:
        """Write a file of :meth:`parameters` or :meth:`given`.

        Raises:
            OSError: it can't be written.
        """
        replace_file(path, msgspec.json.encode(content))

    def last_line(self, run_id: str) -> str:
        """The last line that its program printed, at most 200 characters; a text that says so if there is none."""
        with contextlib.suppress(OSError), confined.open_file(self.log(run_id), root=self.folder) as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 4096))
            lines = [line for line in file.read().decode("utf-8", "replace").splitlines() if line.strip("\0 \t")]
            if lines and not lines[-1].startswith("$ "):
                return lines[-1].strip("\0 \t")[:200]
        return "it printed nothing"


def file_name_part(text: str) -> str:
    """A text as part of a file's name."""
    return re.sub(r"[^A-Za-z0-9._-]+", "_", text).strip("._-") or "sweep"


def _folder(name: str) -> str:
    """A folder's name, unique for each sweep: where characters were replaced or cut off, a digest is added."""
    short = file_name_part(name)[:LONGEST]
    return short if short == name else f"{short}-{hashlib.sha256(name.encode('utf-8', 'replace')).hexdigest()[:6]}"


def command_text(words: Sequence[str]) -> str:
    """A command as messages show it."""
    text = shlex.join(words)
    return text if len(text) <= 200 else f"{text[:200]}…"
