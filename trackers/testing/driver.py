"""Deliver records to one tracker as the relay does, here or in a process that can be killed.

The cursor and the tracker's state lie in one file that is replaced after each ``write``; a driver started on the
same file goes on from it, in this process or another.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from trackers.backends import registry
from trackers.records import Record, decode, encode, on_axis
from trackers.tracker import Cursor, RunInfo, State, Status, Tracker

PROCESS_TIMEOUT_S = 120
"""Timeout of a delivery of a few hundred records, in seconds."""


class Driver:
    """One tracker object and the cursor and state that outlive it.

    Args:
        file: where the cursor and the state are kept; goes on from it when it exists.
        wrote: called with the batch's number after ``write`` returned, before the cursor is committed.
    """

    def __init__(
        self, cls: type[Tracker], info: RunInfo, file: Path, wrote: Callable[[int], None] | None = None
    ) -> None:
        self.cls, self.info, self.file, self._wrote = cls, info, file, wrote
        saved: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {"cursor": 0, "state": {}}
        self.cursor: int = saved["cursor"]
        self.state = State(saved["state"], save=self._save)
        self.tracker: Tracker | None = None

    def open(self) -> None:
        """A new tracker object, opened with what was committed."""
        self.tracker = self.cls()
        answer = self.tracker.open(self.info, self.state)
        if answer is not None:
            self.cursor = min(self.cursor, answer.seq)
        self._save()

    def write(self, records: Sequence[Record], batch: int = 100, before: Callable[[int], None] | None = None) -> None:
        """Write what lies behind the cursor, a batch at a time, and commit after each."""
        assert self.tracker is not None, "open first"
        batch = min(batch, self.tracker.batch_records)
        waiting = [record for record in records if record.seq > self.cursor]
        for number, start in enumerate(range(0, len(waiting), batch)):
            part = waiting[start : start + batch]
            if before:
                before(number)
            self.tracker.write(self.accepted(part), Cursor(part[-1].seq))
            if self._wrote:
                self._wrote(number)
            self.cursor = part[-1].seq
            self._save()
            self.tracker.tick()

    def close(self, status: Status) -> None:
        """Close the tracker and forget the object."""
        assert self.tracker is not None, "open first"
        self.tracker.close(status)
        self._save()
        self.tracker = None

    def accepted(self, records: Sequence[Record]) -> list[Record]:
        """The records of the kinds that the tracker declares, on its axis if it has one only."""
        accepted = [record for record in records if type(record) in self.cls.accepts]
        return [part for one in accepted for part in on_axis(one)] if self.cls.single_axis else accepted

    def _save(self) -> None:
        self.file.parent.mkdir(parents=True, exist_ok=True)
        new = self.file.with_suffix(".new")
        new.write_text(json.dumps({"cursor": self.cursor, "state": dict(self.state)}))
        os.replace(new, self.file)


class DriverJob(msgspec.Struct, kw_only=True):
    """Instructions for a delivering process: see ``trackers.testing.drive``.

    die_after: the number of the batch after whose ``write``, and before whose commit, the process kills itself.
    hold_after: the same, but it waits there to be killed.
    status: how to close; None: leave without closing.
    """

    tracker: str
    info: RunInfo
    records: str
    file: str
    batch: int = 100
    die_after: int | None = None
    hold_after: int | None = None
    status: Status | None = None

    def run(self, say: Callable[[int, float], None]) -> None:
        """Deliver; ``say`` is told of each batch as it begins, and how many seconds the one before took."""
        records = number(decode(line) for line in Path(self.records).read_bytes().splitlines())
        driver = Driver(resolve(self.tracker), self.info, Path(self.file), self._stop)
        driver.open()
        began = time.monotonic()

        def before(batch: int) -> None:
            nonlocal began
            previous, began = began, time.monotonic()
            say(batch, began - previous)

        driver.write(records, self.batch, before)
        if self.status is not None:
            driver.close(self.status)

    def _stop(self, batch: int) -> None:
        if batch == self.die_after:
            os.kill(os.getpid(), getattr(signal, "SIGKILL", signal.SIGTERM))
        if batch == self.hold_after:
            time.sleep(PROCESS_TIMEOUT_S)
            raise TimeoutError("nobody killed this process")


def number(records: Any, first: int = 1) -> list[Record]:
    """Records with the ``id`` and ``seq`` that a reader of the journal would give them."""
    return [
        msgspec.structs.replace(record, id=f"rank-0.1:{seq * 100}", seq=seq)
        for seq, record in enumerate((record for record in records if record is not None), first)
    ]


def resolve(tracker: str) -> type[Tracker]:
    """A tracker class by registered name, or by ``"package.module:Class"``."""
    module, colon, attribute = tracker.partition(":")
    if not colon:
        return registry.load(tracker)
    target: Any = importlib.import_module(module)
    for part in attribute.split("."):
        target = getattr(target, part)
    return registry.as_tracker(target.name, target)


def import_path(tracker: type[Tracker] | str) -> str:
    """What :func:`resolve` in another process needs to find the same class."""
    return tracker if isinstance(tracker, str) else f"{tracker.__module__}:{tracker.__qualname__}"


class Process:
    """A delivery in a process of its own, with this process's environment and import path.

    Raises ``AssertionError`` with the end of the process's stderr when it fails of itself.
    """

    def __init__(self, job: DriverJob, directory: Path, records: Sequence[Record]) -> None:
        Path(job.records).write_bytes(b"".join(encode(record) for record in records))
        file = directory / "job.json"
        file.write_bytes(msgspec.json.encode(job))
        self._errors = directory / "stderr.txt"
        with self._errors.open("ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "trackers.testing.drive", str(file)],
                stdout=subprocess.PIPE,
                stderr=errors,
                stdin=subprocess.DEVNULL,
                cwd=directory,
                env=python_path(),
            )

    def wait(self) -> None:
        """Until it ends; it must end well."""
        code = self._end()
        assert code == 0, f"the delivering process ended with {code}:\n{self._tail()}"

    def wait_until_dead(self) -> None:
        """Until it is dead; it must have been killed."""
        code = self._end()
        assert code < 0, f"the delivering process ended with {code} before it could be killed:\n{self._tail()}"

    def kill_in(self, batch: int, part: float) -> None:
        """SIGKILL it within that batch, after ``part`` of the time that the batch before took."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            number, previous_s = line.split()
            if int(number) == batch:
                time.sleep(part * float(previous_s))
                self._process.kill()
                break
        self.wait_until_dead()

    def _end(self) -> int:
        try:
            self._process.communicate(timeout=PROCESS_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
            raise AssertionError(f"no end after {PROCESS_TIMEOUT_S} s:\n{self._tail()}") from None
        return self._process.returncode

    def _tail(self) -> str:
        return self._errors.read_text(errors="replace")[-3000:]


def python_path() -> dict[str, str]:
    """This process's environment, with an import path that finds what this process finds."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(os.path.abspath(path) for path in sys.path)}
