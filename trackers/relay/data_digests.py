"""The process that reads files of data for their digests (``TRACKER_DATA``), and who looks after it.

It appends a JSON line for each file to ``code-<attempt>.data`` of the run, which goes into the record of the code.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from pathlib import Path

import msgspec

from trackers.errors import UNDECODABLE
from trackers.journal import helper_process
from trackers.journal.helper_process import DONE
from trackers.journal.run_directory import RunDirectory
from trackers.provenance import data, manifest
from trackers.provenance.manifest import Data
from trackers.support import confined
from trackers.tracker import RunInfo

ENDING = "data"


class Task(msgspec.Struct):
    """attempt: whose. patterns: of files, from ``cwd``. parent: the process that wants to know."""

    attempt: int
    patterns: list[str]
    cwd: str
    parent: int


def digest(run: RunDirectory, task: Task) -> int:
    """Read the files; the exit code. It ends when its parent has gone."""
    helper_process.lower_priority(19)
    digests = data.Digests(lambda: os.getppid() == task.parent)
    path = run.path / manifest.name(task.attempt, ENDING)
    with contextlib.suppress(data.Stopped), confined.open_file(path, "ab") as file:
        for one in data.files(task.patterns, task.cwd):
            file.write(_line(digests.of(one)))
            file.flush()
    digests.save()
    return DONE


def _line(found: Data) -> bytes:
    path = found.path.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return msgspec.json.encode(msgspec.structs.replace(found, path=path)) + b"\n"


class DataDigests:
    """Looks after the process of one attempt."""

    def __init__(self, run: RunDirectory, info: RunInfo, attempt: int) -> None:
        self._run, self._info, self._attempt = run, info, attempt
        text = str(info.option("TRACKER_DATA", ""))
        self._patterns = [part.strip() for part in text.split(",") if part.strip()]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def path(self) -> Path:
        return self._run.path / manifest.name(self._attempt, ENDING)

    def begin(self) -> None:
        """Start it, if files were named."""
        if not self._patterns:
            return
        task = Task(self._attempt, self._patterns, self._info.cwd, os.getpid())
        arguments = ["digest", str(self._run.path.resolve()), msgspec.json.encode(task).decode()]
        avoid = (self._info.cwd, os.path.dirname(self._info.program) if self._info.program else "")
        with contextlib.suppress(OSError):
            self._process = helper_process.start(
                self._run, arguments, avoid=avoid, new_session=False, info=self._info, nice=19
            )

    @property
    def idle(self) -> bool:
        """Whether there is nothing to wait for."""
        if self._process is not None and self._process.poll() is not None:
            self._process = None
        return self._process is None

    def found(self) -> list[Data]:
        """What was read so far."""
        if not self._patterns:
            return []
        lines: list[bytes] = []
        with contextlib.suppress(OSError):
            lines = confined.read(self.path, root=self._run.path).split(b"\n")[:-1]
        read = []
        for line in lines:
            with contextlib.suppress(*UNDECODABLE):
                read.append(msgspec.json.decode(line, type=Data))
        return read

    def close(self) -> None:
        """End it; what it read stays."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
