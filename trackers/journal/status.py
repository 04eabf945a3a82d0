"""Status of a run: as its last writer recorded it, or as observed if the process died without recording it.

A process may become a daemon: the parent exits at once and the forked child owns the run.

Each child that a program forks by itself (not those of ``multiprocessing``, which are workers) adds a line to
``forks.<attempt>``. Where training is gone with exit code 0 and without a finish record, the relay follows the newest
child that still lives, and says so in ``heir.<attempt>``: the run is that process's from then on.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from trackers.errors import NotFound, TrackersError, UsageError, examples
from trackers.journal.lease import STALE_S, Holder, living_holder, read_holder
from trackers.journal.run_directory import RunDirectory, StreamName, replace_file
from trackers.journal.stream import FAR_BYTES, NEAR_BYTES, find_finish, last_record
from trackers.object_storage import addresses
from trackers.records import EDITS, INTERRUPTED, Finish
from trackers.support import confined, machines, processes, script, sightings
from trackers.support.interruption import pass_on, suppress
from trackers.tracker import RunInfo, Status

DIGITS = 20
GRACE_S = 1.0
"""Maximum wait of the relay for a child's line, in seconds: the parent may be gone before it is written."""


def forks(run: RunDirectory, attempt: int) -> Path:
    """A file with a line for each forked child: pid and start."""
    return run.path / f"forks.{attempt}"


def heir(run: RunDirectory, attempt: int) -> Path:
    """A file that names, in the same way, the process whose run it is now."""
    return run.path / f"heir.{attempt}"


def is_worker() -> bool:
    """Whether ``multiprocessing`` is forking this process, called as it begins."""
    frame = sys._getframe()
    while frame.f_back is not None:
        frame = frame.f_back
        if str(frame.f_globals.get("__name__", "")).startswith("multiprocessing."):
            return True
    return False


def register_fork(run: RunDirectory, attempt: int) -> None:
    """Record a forked child, called in the child. On a full disk nothing is recorded and it isn't followed."""
    pid = os.getpid()
    with suppress(OSError):
        fd = confined.open_fd(forks(run, attempt), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            os.write(fd, f"{pid} {processes.process_start(pid):.0f}\n".encode())
        finally:
            os.close(fd)


def living_child(run: RunDirectory, attempt: int) -> tuple[int, float] | None:
    """The newest forked child that still lives, by pid and start."""
    for line in reversed(_lines(forks(run, attempt))):
        if processes.alive(*line):
            return line
    return None


def daemon_child(run: RunDirectory, attempt: int) -> tuple[int, float] | None:
    """As :func:`living_child`, if it lives in a session that one of the children made, as daemons do."""
    child = living_child(run, attempt)
    with suppress(OSError):
        if child is not None and os.getsid(child[0]) in [pid for pid, _ in _lines(forks(run, attempt))]:
            return child
    return None


def follow_child(run: RunDirectory, attempt: int, child: tuple[int, float]) -> None:
    """Record that the run is this process's from now on."""
    with suppress(OSError):
        replace_file(heir(run, attempt), f"{child[0]} {child[1]:.0f}\n".encode())


def named_child(run: RunDirectory, attempt: int) -> tuple[int, float] | None:
    """The process that the run belongs to, if it isn't the one that began it."""
    return next(iter(_lines(heir(run, attempt))), None)


def _lines(path: Path) -> list[tuple[int, float]]:
    processes = []
    with suppress(OSError):
        for line in confined.read(path).decode("ascii", "replace").splitlines():
            words = line.split()
            if len(words) == 2 and all(word.isdigit() and len(word) < DIGITS for word in words):
                processes.append((int(words[0]), float(words[1])))
    return processes


SILENT_S = 120.0
"""Silence of relay and streams, by this machine's clock, after which a run elsewhere counts as crashed, in seconds."""
SILENT_ALONE_S = 3600.0
"""The same for a run that was started without a relay, where nothing shows life between two calls of ``log``."""
LATELY_S = 30.0
"""A run that was seen to move within so many seconds lives; a store gets a heartbeat every 20 s."""
WATCH_S = 0.2
SAY_S = 2.0
"""Wait that isn't worth a line, in seconds: relays give a sign of life each second."""
REFRESH_S = 5.0
"""Intervals between looks for a sign of life, in seconds: at files, and at a copy that is brought up to date before."""
SILENCE = "no sign of life"
"""Prefix of the reason for a crash inferred from silence; a later record of the run disproves it."""
UNSEEN = "no sign of life from {} in the {:.0f} s since this machine looked first"
PREEMPTED = "the job was preempted"


def last_status(run: RunDirectory, back: int = NEAR_BYTES) -> Status:
    """How the newest attempt ended by its finish records, the relay's before the rank's; running without one.

    Args:
        back: how many bytes of each stream's end are searched for that record.
    """
    names = run.stream_names()
    newest = max((name.attempt for name in names), default=0)
    names = [name for name in names if name.attempt == newest]
    for writer in ("node", "rank"):
        for name in names:
            record = find_finish(run.stream(name), back) if name.writer == writer else None
            if record is not None and not (record.reason.startswith(SILENCE) and outlived(run, name)):
                return status_of(noted(run, newest, record))
    return Status("running", time=time.time())


def last_word(run: RunDirectory) -> Finish | None:
    """The finish record that ends the newest attempt for good: the relay's where one wrote, else the rank's."""
    newest = run.attempt()
    names = [name for name in run.stream_names() if name.attempt == newest]
    relay_streams = [name for name in names if name.writer == "node" and not outlived(run, name)]
    for name in relay_streams or [name for name in names if name.writer == "rank"]:
        record = find_finish(run.stream(name))
        if record is not None:
            return record
    return None


def outlived(run: RunDirectory, name: StreamName) -> bool:
    """Whether a stream ends with a crash inferred from silence, and its attempt went on logging afterwards."""
    verdict = find_finish(run.stream(name)) if name.writer == "node" else None
    if verdict is None or not verdict.reason.startswith(SILENCE):
        return False
    ranks = (n for n in run.stream_names() if n.writer == "rank" and n.attempt == name.attempt)
    return any((record := last_record(run.stream(n))) is not None and record.time > verdict.time for n in ranks)


def observe(run: RunDirectory) -> Status:
    """As :func:`last_status`, but a run whose processes are gone without a finish record has crashed.

    On the machine of the run, the process itself is looked for. Elsewhere a heartbeat that this machine has seen to
    stand still tells; until then the run counts as running, with a reason where nothing speaks for that
    (:func:`is_doubtful`).
    """
    recorded = last_status(run)
    return recorded if recorded.name != "running" else _unfinished_status(run)


def is_doubtful(status: Status) -> bool:
    """Whether a run only counts as running since this machine hasn't watched it for long enough."""
    return status.name == "running" and bool(status.reason)


def watch(
    runs: Iterable[RunDirectory], say: Callable[[str], None], *, refresh: Callable[[], object] | None = None
) -> None:
    """Watch runs elsewhere that may be gone until :func:`observe` knows of each: it moves, or was silent for too long.

    Runs without a relay aren't waited for, since minutes of silence mean nothing there.

    Args:
        say: called with one line where there is something to wait for.
        refresh: called before each further look, of copies that it brings up to date.
    """
    waiting, began, told = [run for run in runs if may_be_gone(run)], time.monotonic(), False
    while waiting:
        if not told and time.monotonic() - began >= SAY_S:
            told = True
            say(watched(waiting))
        time.sleep(REFRESH_S if refresh else WATCH_S)
        if refresh is not None:
            refresh()
        waiting = [run for run in waiting if may_be_gone(run)]


def watched(runs: Iterable[RunDirectory]) -> str:
    """What is said of runs that are watched."""
    names = examples((run.path.name for run in runs), 3)
    return f"{names}: begun elsewhere, no ending: watching for a sign of life, at most {SILENT_S:.0f} s"


def may_be_gone(run: RunDirectory) -> bool:
    """Whether a run elsewhere counts as running, and watching its relay for a while tells whether it lives."""
    with suppress(TrackersError, OSError):
        if last_status(run).name != "running" or not all(os.access(run.stream(n), os.R_OK) for n in run.stream_names()):
            return False  # or nobody can tell, however long it is watched
        info = run.read_info()
        if machines.is_here(info) or not has_relay(info):
            return False
        seen = _seen(run, info)
        is_lively = seen.moved and seen.still_s < LATELY_S
        return not is_lively and seen.still_s < _silence_limit_s(run, info)
    return False


def declare_gone(run: RunDirectory) -> Status:
    """How a run elsewhere ended, where somebody says that its machine is gone.

    Raises:
        UsageError: this machine sees that it goes on.
    """
    info, recorded = run.read_info(), observe(run)
    if recorded.name != "running":
        return recorded
    seen = None if machines.is_here(info) else _seen(run, info)
    if seen is None or (seen.moved and seen.still_s < LATELY_S):
        raise UsageError(f"run {run.quoted} goes on (process {info.pid} on {info.host}): end it first")
    reason = f"{SILENCE} from {info.host}: {script.user()} says that it is gone"
    return _crashed_status(run, recorded.time, reason)


def has_relay(info: RunInfo) -> bool:
    """Whether a relay shows that a run lives."""
    return bool(info.option("TRACKER_RELAY", True)) and not info.option("TRACKER_INLINE", False)


def comes_back(run: RunDirectory, name: StreamName) -> bool:
    """Whether a stream that was deleted is put back: one of the newest attempt, whose process may live."""
    newest = run.attempt()
    if name.attempt < newest or name.writer == EDITS:
        return False
    if name.writer != "rank" and living_holder(run.path / "relay.lease") is None:
        return False
    return (observe(run) if name.attempt == newest else _unfinished_status(run)).name == "running"


def _unfinished_status(run: RunDirectory) -> Status:
    """Status of a run whose streams have no finish record."""
    try:
        info = run.read_info()
    except NotFound:
        return Status("running", time=time.time())
    last_sign = _last_sign(run)
    if machines.is_here(info):
        heir = named_child(run, run.attempt()) or daemon_child(run, run.attempt())
        if processes.alive(info.pid, info.pid_start) or (heir is not None and processes.alive(*heir)):
            return Status("running", time=last_sign)
        return _crashed_status(run, last_sign, f"process {info.pid} is gone")
    seen, limit_s = _seen(run, info), _silence_limit_s(run, info)
    if seen.still_s < limit_s:
        holder = own_relay(run, info)
        last_sign = max(last_sign, holder.time if holder is not None else 0.0)
        # The clocks of two machines may differ: what they say is good for a doubt, and for nothing more.
        doubt = not seen.moved and abs(time.time() - last_sign) > limit_s
        return Status("running", time=last_sign, reason=UNSEEN.format(info.host, seen.still_s) if doubt else "")
    return _crashed_status(run, last_sign, f"{SILENCE} from {info.host} for {seen.still_s:.0f} s")


def own_relay(run: RunDirectory, info: RunInfo) -> Holder | None:
    """The run's own relay, if it holds the lease: a sync elsewhere may, too, and shows nothing of the run."""
    holder = read_holder(run.path / "relay.lease")
    if holder is None or machines.machine_of(holder) != machines.machine_of(info):
        return None
    return holder


def _silence_limit_s(run: RunDirectory, info: RunInfo) -> float:
    """For how long a run elsewhere may be silent, in seconds."""
    holder = own_relay(run, info)
    limit_s = SILENT_S if has_relay(info) else SILENT_ALONE_S
    return limit_s if holder is None else max(limit_s, STALE_S + holder.allow_s)


def _seen(run: RunDirectory, info: RunInfo) -> sightings.Sighting:
    """For how long a run elsewhere has shown no sign of life: its relay's lease and its ranks' streams."""
    holder, at = own_relay(run, info), addresses.copied_at(run.path)
    signs = []
    if holder is not None:
        signs.append(holder.sign())
        sightings.look(run.path / "relay.lease", holder.sign(), at)  # who takes the run over needn't wait once more
    for name in run.stream_names():
        if name.writer == "rank":  # a sync may write the node's stream, too
            with suppress(OSError):
                signs.append(f"{name} {os.stat(run.stream(name)).st_size}")
    return sightings.look(run.path, "\n".join(signs), at)


def _crashed_status(run: RunDirectory, seen: float, reason: str) -> Status:
    recorded = last_status(run, FAR_BYTES)  # children may have logged on behind a finish record
    if recorded.name != "running":
        return recorded
    if is_preempted(run, run.attempt()):
        return Status("preempted", time=seen, reason=PREEMPTED)
    return Status("crashed", time=seen, reason=reason)


def status_of(record: Finish) -> Status:
    """A finish record as a status; an unknown word counts as failed."""
    known = ("finished", "failed", "crashed", "preempted", "stopped")
    name = record.status if record.status in known else "failed"
    return Status(name, record.exit_code, record.time, record.reason)  # type: ignore[arg-type]


def judged(exit_code: int, time: float) -> Finish:
    """The finish record of a process that wrote none, by its exit code; negative: the signal that ended it."""
    if exit_code >= 0:
        reason = f"exit code {exit_code}" if exit_code else ""
        return Finish(time=time, status="failed" if exit_code else "finished", exit_code=exit_code, reason=reason)
    try:
        name = signal.Signals(-exit_code).name
    except ValueError as error:
        pass_on(error)
        name = f"signal {-exit_code}"
    return Finish(time=time, status="crashed", reason=f"killed by {name}")


def revised(finish: Finish, exit_code: int) -> Finish:
    """A finish record written before the exit code was known, corrected by it; unchanged where both agree."""
    recorded_code = finish.exit_code or 0
    agree = exit_code == (-signal.SIGINT if recorded_code == INTERRUPTED else recorded_code)  # Python kills itself so
    if not finish.leaving or finish.status == "preempted" or agree:
        return finish
    actual = judged(exit_code, finish.time)
    if actual.status == finish.status:
        actual.reason = finish.reason
    return actual


def noted(run: RunDirectory, attempt: int, finish: Finish) -> Finish:
    """A finish record, corrected by the exit code that :func:`note_exit_code` recorded, where it did."""
    if not finish.leaving:
        return finish
    try:
        code = confined.read(exit_note(run, attempt))
    except OSError as error:
        pass_on(error)
        return finish
    return revised(finish, code[0]) if len(code) == 1 else finish


def exit_note(run: RunDirectory, attempt: int) -> Path:
    """A file that holds the exit code of an attempt's process as one byte: see :func:`note_exit_code`."""
    return run.path / f"exit.{attempt}"


def _last_sign(run: RunDirectory) -> float:
    times = []
    for name in run.stream_names():
        if name.writer != "rank":
            continue  # the relay's own heart beats in its lease, and a sync may write the node's stream, too
        try:
            times.append(os.stat(run.stream(name)).st_mtime)
        except OSError as error:
            pass_on(error)
            continue
    return max(times, default=0.0)


def preempting(run: RunDirectory, attempt: int) -> Path:
    """A file whose existence means: if this attempt ends without a finish record, it was preempted."""
    return run.path / f"preempting.{attempt}"


def signalled(run: RunDirectory, attempt: int) -> Path:
    """A file that means the same unless it is empty; it holds where training was when a grace signal came."""
    return run.path / f"signalled.{attempt}"


def is_preempted(run: RunDirectory, attempt: int) -> bool:
    """Whether a preemption of this attempt was announced, by the script or by a signal."""
    if preempting(run, attempt).exists():
        return True
    with suppress(OSError):  # made empty in advance: the handler writes to it
        return signalled(run, attempt).stat().st_size > 0
    return False


def note_exit_code(path: Path) -> bool:
    """Have the C library write this process's exit code, one byte, into a file when it exits.

    Returns:
        whether it will: glibc's ``on_exit`` passes the code on, others have no such thing. A process that a signal
        ends, or ``os._exit``, leaves the file empty.
    """
    try:
        import ctypes

        from trackers.support.descriptors import open_high

        library = ctypes.CDLL(None)
        library.fdopen.restype = ctypes.c_void_p
        opened = library.fdopen(open_high(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, confined.open_fd), b"wb")
        stream = ctypes.c_void_p(opened)
        unbuffered = 2
        return bool(
            opened and library.setvbuf(stream, None, unbuffered, 0) == 0 and library.on_exit(library.fputc, stream) == 0
        )
    except (ImportError, OSError, AttributeError) as error:  # AttributeError: macOS and musl have no on_exit
        pass_on(error)
        return False
