"""Keeps what exactly ran (:mod:`trackers.provenance`) in a run's directory: a process beside training and its relay.

It takes tenths of a second of a processor, so the relay, which training waits for when it ends, doesn't do it itself.
It is started when the run has begun, and again when more modules were imported; then it reads files of data.
"""

from __future__ import annotations

import contextlib
import os
import platform
import subprocess
import time
from collections.abc import Callable, Mapping

import msgspec

from trackers.errors import Damaged, NotFound
from trackers.journal import helper_process, trust
from trackers.journal.helper_process import DONE, STOPPED
from trackers.journal.run_directory import RunDirectory
from trackers.provenance import data, manifest, modules, packages, places, snapshot, surroundings
from trackers.provenance.manifest import Manifest
from trackers.support import confined
from trackers.tracker import RunInfo

FIRST_S = 1.0
"""Until the first look: training and deliveries have begun by then."""
LOOK_S = 10.0
"""Between two looks for modules that were imported meanwhile, in seconds."""
YOUNG_S = 5.0
NICE = 19
"""Its niceness while training runs."""
AWAITED_S = 3.0
"""Time after the end of training in which ``finish`` may wait for it."""
MOST_DEATHS = 3
UNREAD = "its files of data weren't all read"


class Task(msgspec.Struct):
    """attempt: whose code. parent: the process that wants it; where that is gone, nothing more is read."""

    attempt: int
    parent: int


def keep(
    run: RunDirectory,
    task: Task,
    installed: Mapping[str, str] | None = None,
    go_on: Callable[[], bool] | None = None,
) -> int:
    """Keep what there is so far, and go on with what an earlier process kept; the exit code.

    Args:
        installed: packages and their versions; default: those of this Python.
        go_on: asked while files of data are read, whether to read on; default: while the process that wants it lives.
    """
    info, _ = trust.delivered(run)
    if info.foreign:
        return STOPPED
    try:
        found, earlier = manifest.read(run, task.attempt), True
    except NotFound:
        found, earlier = _described(info, task.attempt, packages.installed() if installed is None else installed), False
    patterns = [part.strip() for part in str(info.option("TRACKER_DATA", "")).split(",") if part.strip()]
    _take(run, info, found, earlier, [UNREAD] if patterns and not found.data else [])
    if patterns and not found.data:
        digests = data.Digests(go_on or (lambda: os.getppid() == task.parent))
        with contextlib.suppress(data.Stopped):
            read = [digests.of(path) for path in data.files(patterns, info.cwd)]
            found.data = [msgspec.structs.replace(one, path=_text(one.path)) for one in read]
            found.notes = [note for note in found.notes if note != UNREAD]
            manifest.write(run, found, None, _mode(info))
        digests.save()
    return DONE


def unread(run: RunDirectory, attempt: int) -> bool:
    """Whether a record lacks files of data that weren't all read."""
    with contextlib.suppress(NotFound):
        return UNREAD in manifest.read(run, attempt).notes
    return False


def _described(info: RunInfo, attempt: int, installed: Mapping[str, str]) -> Manifest:
    entry = next((one for one in info.attempts if one.get("number") == attempt), {})
    ranks = int(entry.get("ranks", 1))
    return Manifest(
        run=info.id,
        attempt=attempt,
        time=time.time(),
        program=_text(info.program),
        argv=[_text(word) for word in info.argv],
        cwd=_text(info.cwd),
        python=_text(info.python),
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


def _take(run: RunDirectory, info: RunInfo, found: Manifest, earlier: bool, notes: list[str]) -> None:
    """Take the files, and write the record. earlier: what it has was taken before, and is nearer to what ran."""
    head, told = modules.read(run, found.attempt)
    if head is not None:
        found.root, found.flags, found.variables = head.root, head.flags, head.variables
    archive = None
    if found.root:
        before = _whole(run, found) if earlier else None
        kept = None if before is None else found.files
        taken = snapshot.take(
            found.root, told, found.program, found.root == info.git.get("root"), _wanted(run, info), kept
        )
        found.files = taken.files
        if before is None:
            found.untracked, found.notes, found.submodules = taken.untracked, taken.notes, taken.submodules
        else:
            named = {file.path for file in found.files}
            found.untracked = [path for path in found.untracked if path not in named]
        paths = [modules.import_path(module, found.root) for module in told]
        found.import_paths = list(dict.fromkeys([*found.import_paths, *(path for path in paths if path is not None)]))
        if taken.contents:
            archive = manifest.pack({**(before or {}), **taken.contents})
    found.notes = [note for note in found.notes if note != UNREAD] + notes
    manifest.write(run, found, archive, _mode(info))


def _whole(run: RunDirectory, found: Manifest) -> dict[str, bytes] | None:
    """The contents of a record by their digests; None where they aren't all there, and are taken anew."""
    archive = manifest.Archive(run, found)
    try:
        return {file.digest: archive.read(file) for file in found.files if file.kept}
    except Damaged:
        return None


def _wanted(run: RunDirectory, info: RunInfo) -> snapshot.Wanted:
    untracked = [part.strip() for part in str(info.option("TRACKER_CODE_UNTRACKED", "")).split(",") if part.strip()]
    return snapshot.Wanted(
        untracked,
        float(info.option("TRACKER_CODE_MAX_MB", 10)),
        bool(info.option("TRACKER_CODE_SUBMODULES", True)),
        os.path.abspath(run.path.parent.parent),
    )


def _mode(info: RunInfo) -> int:
    return 0o600 if info.option("TRACKER_PRIVATE", True) else 0o666


def _text(word: str) -> str:
    return word.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


class CodeKeeper:
    """Looks after that process, for one attempt.

    Args:
        say: called with what the user must know.
    """

    def __init__(self, run: RunDirectory, info: RunInfo, attempt: int, say: Callable[[str], None]) -> None:
        self._run, self._info, self._attempt, self._say = run, info, attempt, say
        self._process: subprocess.Popen[bytes] | None = None
        self._wanted = False
        self._told = self._telling = -1
        self._looked = -LOOK_S
        self._started = 0.0
        self._gave_way = self._dropped = False
        self._deaths = 0
        self._spool = run.path / manifest.name(attempt, places.ENDING)

    def begin(self) -> None:
        """Have it kept from now on, where training has said what it imported."""
        self._wanted = bool(self._info.option("TRACKER_CODE", True)) and self._size() >= 0
        self._looked = time.monotonic() - LOOK_S + FIRST_S

    def poll(self, over: bool, crowded: bool = False) -> None:
        """Start the process where there is something new, now and then. Takes microseconds.

        Args:
            over: training has ended. crowded: deliveries wait for others to end; nothing is started now.
        """
        if not self._wanted:
            return
        if self._process is not None:
            code = self._process.poll()
            if code is None:
                return
            self._process, dropped, self._dropped = None, self._dropped, False
            if not dropped or code == DONE:
                self._reap(code)
        now = time.monotonic()
        if not crowded and (over or now - self._looked >= LOOK_S) and self._deaths < MOST_DEATHS:
            self._looked = now
            size = self._size()
            if size != self._told:
                self._start(size, 0 if over else NICE)
        if over and self.idle:
            self.close()  # by what it removes, the delivery to a store sees that the code can be sent

    def awaited(self, ended_s: float) -> bool:
        """Whether it works while training waits for its end. ended_s: since the end of training."""
        return self._process is not None and ended_s < AWAITED_S

    def give_way(self) -> None:
        """Training has ended, and waits for deliveries: a process that has just begun is begun again after them."""
        self._gave_way, before = True, self._gave_way
        if self._process is not None and not before and time.monotonic() - self._started < YOUNG_S:
            self._process.kill()  # not waited for: it may be at the disk
            self._dropped = True

    @property
    def idle(self) -> bool:
        """Whether all is kept that was told."""
        done = self._deaths >= MOST_DEATHS or self._size() == self._told
        return not self._wanted or (self._process is None and done)

    def close(self) -> None:
        """End it; what training told is removed if all of it is kept."""
        if not self._wanted:
            return
        whole = self.idle and self._deaths < MOST_DEATHS
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
        if whole:
            with contextlib.suppress(OSError):
                confined.remove(self._spool)
        self._wanted = False

    def _start(self, size: int, nice: int) -> None:
        self._telling, self._started = size, time.monotonic()
        task = Task(self._attempt, os.getpid())
        arguments = ["code", str(self._run.path.resolve()), msgspec.json.encode(task).decode()]
        avoid = (self._info.cwd, os.path.dirname(self._info.program) if self._info.program else "")
        try:
            self._process = helper_process.start(
                self._run, arguments, avoid=avoid, new_session=False, info=self._info, nice=nice,
                fresh=self._deaths > 0,
            )  # fmt: skip
        except OSError as error:
            self._fail(str(error))

    def _reap(self, code: int) -> None:
        if code == DONE:
            self._told = self._telling
        else:
            self._fail(f"exit code {code}; see {self._run.relay_log}")

    def _fail(self, why: str) -> None:
        self._deaths += 1
        self._looked = time.monotonic()
        if self._deaths >= MOST_DEATHS:
            self._say(f"the code that ran isn't kept: {why}")

    def _size(self) -> int:
        with contextlib.suppress(OSError):
            return os.lstat(self._spool).st_size
        return -1
