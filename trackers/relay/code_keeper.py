"""Captures the code that ran (:mod:`trackers.provenance`) in a run's directory, in a process of its own.

This takes tenths of a second of CPU time, so the relay, which training waits for at its end, doesn't do it itself. The
process is started when the run has begun, and again when more modules were imported; then it reads data files.
"""

from __future__ import annotations

import contextlib
import os
import platform
import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from trackers.errors import Damaged, NotFound
from trackers.formats.word_list import split_words
from trackers.journal import helper_process, trust
from trackers.journal.helper_process import AGAIN, DONE, STOPPED
from trackers.journal.run_directory import RunDirectory
from trackers.provenance import data, manifest, modules, packages, paths, snapshot, surroundings
from trackers.provenance.manifest import Manifest
from trackers.relay.parts.helper import Helper, avoided_by, how_it_died
from trackers.relay.parts.part import TRAINING, Beside, RelayMoment, RelayPart, short_pause
from trackers.relay.parts.plans import arguments
from trackers.support import confined
from trackers.support.interruption import pass_on, suppress
from trackers.tracker import RunInfo

FIRST_S = 1.0
"""Time until the first check, in seconds: training and deliveries have begun by then."""
LOOK_S = 10.0
"""Interval between checks for newly imported modules, in seconds."""
LATER_S = 5.0
"""Time after the end of training in which deliveries that use all processors go first, in seconds."""
YOUNG_S = 5.0
NICE = 19
"""Its niceness while training runs."""
AWAITED_S = 3.0
"""Time after the end of training in which ``finish`` may wait for it."""
DISK_PATIENCE_S = 60.0
"""Time after the end of training in which the disk is waited for, in seconds."""
MOST_DEATHS = 3
UNREAD = "its files of data weren't all read"


class CaptureTask(msgspec.Struct):
    """attempt: whose code is captured. parent: pid of the relay; once it is gone, no more data files are read."""

    attempt: int
    parent: int


def keep(
    run: RunDirectory,
    task: CaptureTask,
    installed: Mapping[str, str] | None = None,
    go_on: Callable[[], bool] | None = None,
) -> int:
    """Capture the code that ran so far, adding to what an earlier process captured; returns the exit code: AGAIN where
    the disk refuses it.

    Args:
        installed: packages and their versions; default: those of this Python.
        go_on: called while data files are read; False stops reading. Default: while the parent process lives.
    """
    info, _ = trust.delivered(run)
    if info.foreign:  # it could name any file of this account
        return STOPPED
    try:
        record, earlier = manifest.read(run, task.attempt), True
    except NotFound:
        record, earlier = (
            _new_record(info, task.attempt, packages.installed() if installed is None else installed),
            False,
        )
    patterns = split_words(str(info.option("TRACKER_DATA", "")))
    try:
        _capture(run, info, record, earlier, [UNREAD] if patterns and not record.data else [])
    except OSError as error:  # of reading a file nothing is raised
        pass_on(error)
        return AGAIN
    if patterns and not record.data:
        digests = data.Digests(go_on or (lambda: os.getppid() == task.parent))
        with contextlib.suppress(data.Stopped):
            files = [digests.describe(path) for path in data.files(patterns, info.cwd)]
            record.data = [msgspec.structs.replace(file, path=_valid_text(file.path)) for file in files]
            record.notes = [note for note in record.notes if note != UNREAD]
            try:
                manifest.write(run, record, None, _file_mode(info))
            except OSError as error:
                pass_on(error)
                return AGAIN
        digests.save()
    return DONE


def unread(run: RunDirectory, attempt: int) -> bool:
    """Whether a manifest notes that not all data files were read."""
    with contextlib.suppress(NotFound):
        return UNREAD in manifest.read(run, attempt).notes
    return False


def _new_record(info: RunInfo, attempt: int, installed: Mapping[str, str]) -> Manifest:
    entry = next((attempted for attempted in info.attempts if attempted.get("number") == attempt), {})
    ranks = int(entry.get("ranks", 1))
    return Manifest(
        run=info.id,
        attempt=attempt,
        time=time.time(),
        program=_valid_text(info.program),
        argv=[_valid_text(word) for word in info.argv],
        cwd=_valid_text(info.cwd),
        python=_valid_text(info.python),
        entry=packages.entry(info.program),
        python_version=platform.python_version(),
        ranks=ranks,
        nodes=int(entry.get("nodes", 1)),
        launcher=surroundings.launcher(info.pid) if ranks > 1 else None,
        git={name: value for name, value in info.git.items() if name != "root"},
        packages=dict(installed),
        origins=packages.origins(),
        container=surroundings.container(),
    )


def _capture(run: RunDirectory, info: RunInfo, record: Manifest, earlier: bool, notes: list[str]) -> None:
    """Copy source files and write the manifest.

    Args:
        earlier: the record was captured before; its files are kept, for they are closer to what ran.
    """
    head, imported = modules.read(run, record.attempt)
    if head is not None:
        record.root, record.flags, record.variables = head.root, head.flags, head.variables
    archive = None
    if record.root:
        contents = _contents(run, record) if earlier else None
        kept_files = None if contents is None else record.files
        captured = snapshot.take(
            record.root,
            imported,
            record.program,
            record.root == info.git.get("root"),
            _selection(run, info),
            kept_files,
        )
        record.files = captured.files
        if contents is None:
            record.untracked, record.notes, record.submodules = captured.untracked, captured.notes, captured.submodules
        else:
            captured_paths = {file.path for file in record.files}
            record.untracked = [path for path in record.untracked if path not in captured_paths]
        paths = [modules.import_path(module, record.root) for module in imported]
        record.import_paths = list(dict.fromkeys([*record.import_paths, *(path for path in paths if path is not None)]))
        if captured.contents:
            archive = manifest.pack({**(contents or {}), **captured.contents})
    record.notes = [note for note in record.notes if note != UNREAD] + notes
    manifest.write(run, record, archive, _file_mode(info))


def _contents(run: RunDirectory, record: Manifest) -> dict[str, bytes] | None:
    """Contents of a record's files by digest; None if some are missing, so that all are captured again."""
    archive = manifest.Archive(run, record)
    try:
        return {file.digest: archive.read(file) for file in record.files if file.kept}
    except Damaged:
        return None


def _selection(run: RunDirectory, info: RunInfo) -> snapshot.SnapshotOptions:
    untracked = split_words(str(info.option("TRACKER_CODE_UNTRACKED", "")))
    return snapshot.SnapshotOptions(
        untracked,
        float(info.option("TRACKER_CODE_MAX_MB", 10)),
        bool(info.option("TRACKER_CODE_SUBMODULES", True)),
        os.path.abspath(run.path.parent.parent),
    )


def _file_mode(info: RunInfo) -> int:
    return 0o600 if info.option("TRACKER_PRIVATE", True) else 0o666


def _valid_text(word: str) -> str:
    return word.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


class CodeKeeper(RelayPart):
    """Starts and supervises that process for one attempt, from the relay."""

    name = "code"

    def __init__(self, beside: Beside) -> None:
        self._run, self._info, self._attempt, self._beside = beside.run, beside.info, beside.attempt, beside
        self._helper = Helper(self._start, (LOOK_S,), self._give_up, most=MOST_DEATHS)
        self._enabled = False
        self._kept_size = self._reading_size = -1
        self._looked = -LOOK_S
        self._started = 0.0
        self._nice = NICE
        self._gave_way = self._dropped = False
        self._is_refused = False
        self._patient_until = 0.0
        self._spool = beside.run.path / manifest.name(beside.attempt, paths.ENDING)

    def begin(self) -> None:
        """Capture from now on, if training has written the list of its imports."""
        self._enabled = bool(self._info.option("TRACKER_CODE", True)) and self._size() >= 0
        self._looked = time.monotonic() - LOOK_S + FIRST_S

    def poll(self, moment: RelayMoment = TRAINING) -> None:
        """Start the process when training has imported more; checks every :data:`LOOK_S`.

        While deliveries wait for a slot, or training exits, nothing is started; when training has ended, and they have
        the processors, nothing for :data:`LATER_S`.
        """
        over = moment.phase == "over"
        if not self._enabled or moment.phase == "leaving" or (over and moment.crowded and moment.ended_s <= LATER_S):
            return
        now = time.monotonic()
        code = self._helper.poll(now)
        if code is not None:
            dropped, self._dropped = self._dropped, False
            if not dropped or code == DONE:
                self._reap(now, code)
        if self._helper.process is not None:
            return
        if over and self._is_refused:
            self._patient_until = self._patient_until or now + DISK_PATIENCE_S
            if now > self._patient_until:
                self._give_up("the disk refuses it")
        at_once = over and not self._is_refused
        is_due = (at_once or now - self._looked >= LOOK_S) and not self._helper.is_given_up
        if is_due and (over or not moment.crowded):
            self._looked = now
            size = self._size()
            if size != self._kept_size:
                self._reading_size, self._started, self._nice = size, now, 0 if over else NICE
                self._helper.start(now, "its process can't be started")
        if over and self.idle:
            self.close()  # by what it removes, the delivery to a store sees that the code can be sent

    def pause(self, moment: RelayMoment) -> bool:
        """``finish`` waits for the process for a while."""
        waits = moment.phase != "training" and self._helper.process is not None and moment.ended_s < AWAITED_S
        return waits and short_pause(0.005)

    def give_way(self) -> None:
        """Kill a process that has just started: deliveries, which training waits for, go first. It is restarted."""
        self._gave_way, gave_way_before = True, self._gave_way
        if self._helper.process is not None and not gave_way_before and time.monotonic() - self._started < YOUNG_S:
            self._helper.process.kill()  # not waited for: it may be at the disk
            self._dropped = True

    @property
    def idle(self) -> bool:
        """Whether everything that training has listed is captured."""
        done = self._helper.is_given_up or self._size() == self._kept_size
        return not self._enabled or (self._helper.process is None and done)

    def close(self) -> None:
        """End the process; the list of imports is removed if everything in it is captured."""
        if not self._enabled:
            return
        whole = self.idle and not self._helper.is_given_up
        self._helper.kill()
        if whole:
            with suppress(OSError):
                confined.remove(self._spool)
        self._enabled = False

    def _start(self, deaths: int) -> Any:
        task = CaptureTask(self._attempt, os.getpid())
        return helper_process.start(
            self._run,
            arguments("code", self._run.path.absolute(), task),
            avoid=avoided_by(self._info),
            new_session=False,
            info=self._info,
            nice=self._nice,
            fresh=deaths > 0,
        )

    def _reap(self, now: float, code: int) -> None:
        self._is_refused = code == AGAIN
        if code == DONE:
            self._kept_size = self._reading_size
        else:
            self._looked = now
            if code != AGAIN:
                self._helper.died(now, f"{how_it_died(code)}; see {self._run.relay_log}")

    def _give_up(self, reason: str) -> None:
        self._helper.deaths, self._is_refused = MOST_DEATHS, False
        self._beside.say(f"the code that ran isn't kept: {reason}", "")

    def _size(self) -> int:
        with suppress(OSError):
            return os.lstat(self._spool).st_size
        return -1
