"""Resuming: which run a restarted job continues, and how its configuration differs."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from trackers import records
from trackers.errors import NotFound, UsageError
from trackers.journal.attempts import AttemptHistory
from trackers.journal.lease import Lease
from trackers.journal.run_directory import RunDirectory, StreamName, find_runs, is_run, new_id, project_folder
from trackers.journal.status import may_be_gone, observe, own_relay
from trackers.journal.stream import StreamWriter
from trackers.metrics.summary import words_of
from trackers.ranks import launch
from trackers.support import machines, sightings
from trackers.support.clock import monotonic
from trackers.support.interruption import pass_on, suppress
from trackers.support.schedulers import BatchJob, job
from trackers.support.seekable_zstd import open_file
from trackers.tracker import RunInfo

WORDS = ("allow", "must", "never", "auto")
"""Values of ``resume``, as in W&B."""
CLAIM_TRIES = 20
CLAIMED_S = 30.0
"""Maximum wait for ``run.json`` to name an attempt that has its stream alone, in seconds: then it has died."""
ALONE_S = 5.0
TAKEN = "run {!r} exists in {}: resume='allow' continues it, another id makes a new one"
TAKEN_ELSEWHERE = (
    "run {!r} was begun on {}, which has sent nothing of it: resume='allow' goes on as attempt {}, another id makes a "
    "new one"
)
CHANGING = ("tags", "group", "notes")
SHOWN = 5
"""Maximum number of differences named in a message."""

_ADDRESS = re.compile(r" at 0x[0-9A-Fa-f]+")
_OBJECT = re.compile(r"0x[0-9A-Fa-f]+|\b[0-9]{9,}\b")
"""Addresses, and numbers of threads: ``<Thread(name, started 139800729049984)>``."""

Watching = Callable[[RunDirectory], None]
"""Waits until it is known whether a run elsewhere lives."""
Claimed = Callable[[Path], "tuple[int, str]"]
"""Answers for a run's directory which attempt of it was begun last, and on which host; 0 before the first."""


class OpenedAttempt(NamedTuple):
    """The run and the stream that a process writes.

    before: ``run.json`` of the run that it goes on with, None for a new one. alive: that run was still running.
    made: directories that weren't there before, the innermost first.
    """

    run: RunDirectory
    writer: StreamWriter
    attempt: int
    before: RunInfo | None
    alive: bool
    created: tuple[Path, ...] = ()

    def discard(self) -> None:
        """Leave nothing behind of an attempt that couldn't begin."""
        path = self.writer.path
        self.writer.release()
        with suppress(OSError):
            path.unlink()
        _remove(self.created)


def parse_resume(resume: Any) -> str | None:
    """The argument ``resume`` as one of :data:`WORDS`, or None without one. True is "auto", as in W&B.

    Raises:
        UsageError: another word.
    """
    if resume is None or resume == "" or resume is False:
        return None
    answer = "auto" if resume is True else str(resume)
    if answer not in WORDS:
        raise UsageError(f"resume={answer!r}: known are {', '.join(WORDS)}")
    return answer


def open_attempt(
    root: Path,
    run_id: str,
    resume: str | None,
    name: str,
    info: RunInfo,
    hint: str = "",
    again: bool = False,
    claimed: Claimed = lambda run: (0, ""),
    watching: Watching = lambda run: None,
) -> OpenedAttempt:
    """The run that ``init`` asks for, with a stream of its own that no other process has.

    Args:
        root: where runs lie.
        run_id: "" if none was given.
        name: as given; "" if none was.
        info: of this process.
        hint: the id that a new run gets, if it is free.
        again: an earlier run is run again: only what began in the same directory is continued, and a taken id is no
            error.
        claimed: asked where a run may have been begun on another machine, too.
        watching: see :func:`find`.

    Raises:
        UsageError: the id is taken, or nothing can be written there. NotFound: no such run.
    """
    folder = root / project_folder(info.project)
    for _ in range(CLAIM_TRIES):
        only = None
        if run_id or resume != "auto":
            if again and run_id and _is_of_others(folder / run_id, info):
                run_id, resume = "", None
            run, before = _by_id(folder, run_id, resume, hint, claimed)
        else:
            candidate = find(folder, name, info, again, watching)
            run, before = candidate or _new(folder, hint, claimed), None
            if candidate is not None:  # free now: who takes it first has it
                only, before = candidate.attempt() + 1, candidate.read_info(edited=False)
                if _runs(candidate) and not _same_job(before, job())[1]:  # begun meanwhile by another job
                    continue
        alive = before is not None and observe(run).name == "running"
        _need_restored(run)
        elsewhere, host = claimed(run.path) if run_id or before is not None else (0, "")
        if elsewhere and before is None and resume in (None, "never"):
            raise UsageError(TAKEN_ELSEWHERE.format(run_id, host or "another machine", elsewhere + 1))
        inside = (run.streams, run.delivery, run.media)
        made = tuple(path for path in (*inside, run.path, *run.path.parents) if not path.exists())
        try:
            run.make(str(info.option("TRACKER_SHARE", "owner")))
            if not os.access(run.streams, os.W_OK):
                raise PermissionError(13, "Permission denied")
            attempt = max(only or run.attempt() + 1, elsewhere + 1)
            writer = StreamWriter(run.stream(StreamName("rank", 0, attempt)), exclusive=True)
            return OpenedAttempt(run, writer, attempt, before, alive, made)
        except FileExistsError:  # another process was quicker: this one is a later attempt, or takes another run
            continue
        except OSError as error:
            pass_on(error)
            _remove(made)
            raise UsageError(f"{run.path} can't be written ({error.strerror}): choose another TRACKER_DIR") from None
    raise UsageError(f"{folder}: too many processes begin this run at once")


def _need_restored(run: RunDirectory) -> None:
    try:
        run.need_regular()
        run.need_restored()
    except OSError as error:  # a name that no file can have, or a place that may not be looked at
        pass_on(error)
        raise UsageError(f"{run.path} can't be read ({error.strerror}): choose another TRACKER_DIR") from None


def _remove(made: Iterable[Path]) -> None:
    """Remove directories that are empty."""
    for path in made:
        with suppress(OSError):
            path.rmdir()


def _new(folder: Path, hint: str, claimed: Claimed) -> RunDirectory:
    free = bool(hint) and not (folder / hint).exists()
    if free:
        with contextlib.suppress(UsageError):  # not known: its delivery will see
            free = not claimed(folder / hint)[0]
    return RunDirectory(folder / (hint if free else new_id()))


def _is_of_others(path: Path, info: RunInfo) -> bool:
    """Whether a run is there that began in another directory."""
    return is_run(path) and RunDirectory(path).read_info(edited=False).cwd != info.cwd


def _by_id(
    folder: Path, run_id: str, resume: str | None, hint: str, claimed: Claimed
) -> tuple[RunDirectory, RunInfo | None]:
    exists = bool(run_id) and is_run(folder / run_id)
    if exists and resume in (None, "never"):
        raise UsageError(TAKEN.format(run_id, folder))
    if not exists and resume == "must":
        where = f"no run {run_id!r} in {folder}" if run_id else "resume='must' needs the id of a run"
        raise NotFound(f"{where}: `trackers ls` lists runs")
    run = RunDirectory(folder / run_id) if run_id else _new(folder, hint, claimed)
    return run, run.read_info(edited=False) if exists else None


def find(
    folder: Path, name: str, info: RunInfo, again: bool = False, watching: Watching = lambda run: None
) -> RunDirectory | None:
    """The unfinished run that a process with ``resume="auto"`` and no id goes on with; None: it begins a new one.

    Of the same batch job, with the same name or, where none was given, the same script; else of the same name, or
    the same script with the same arguments. One that still runs is left alone, unless this is its job, requeued;
    another task's of an array is never taken.

    Args:
        folder: the project's.
        name: as given; "" if none was.
        info: of the process that asks.
        again: see :func:`open_attempt`.
        watching: called with a run elsewhere that may be gone, and would be gone on with: waits until that is known.
    """
    own = job()
    candidates = []
    for run in find_runs(folder):
        with suppress(NotFound, OSError):
            before = run.read_info(edited=False)
            if again and before.cwd != info.cwd:
                continue
            same_job, requeued = _same_job(before, own)
            alike = before.name == name if name else before.program == info.program
            other = not alike or (own is not None and own.other_task(_last(before)))
            if other or observe(run).name in ("finished", "stopped"):
                continue
            exact = bool(name) or before.argv == info.argv
            doubtful = not requeued and may_be_gone(run)
            if (same_job or exact) and (requeued or doubtful or not _runs(run)):
                began = float(_last(before).get("time", before.created))
                candidates.append((same_job, exact, began, run, doubtful))
    while candidates:
        candidates.sort(key=lambda entry: entry[:3])
        _, exact, _, best, doubtful = candidates[-1]
        if not exact and sum(1 for entry in candidates if entry[0]) > 1:  # several of one job, none by its arguments
            return None
        if doubtful:
            watching(best)
        if not doubtful or not _runs(best):
            return best
        candidates.pop()
    return None


def _same_job(before: RunInfo, own: BatchJob | None) -> tuple[bool, bool]:
    """Of the same batch job? And of an earlier life of it?"""
    last = _last(before)
    return (False, False) if own is None else (own.same(last), own.later(last))


def _last(info: RunInfo) -> dict[str, Any]:
    return info.attempts[-1] if info.attempts else {}


def _runs(run: RunDirectory) -> bool:
    """Whether a run goes on. Of an attempt that only has its stream yet, what ``run.json`` will say is waited for."""
    while observe(run).name != "running":
        info, newest = run.read_info(edited=False), run.attempt()
        if info.attempts and newest <= info.attempts[-1]["number"]:
            return False
        begun = run.stream(StreamName("rank", 0, newest))
        if not begun.exists() or sightings.look(begun, "begun").still_s >= CLAIMED_S:
            return False
        time.sleep(0.05)
    return True


@contextlib.contextmanager
def alone(run: RunDirectory) -> Iterator[None]:
    """While processes that begin attempts of one run at once write its ``run.json``: one after the other.

    Who can't get the lease within :data:`ALONE_S` goes on without: no start hangs for another one's sake.
    """
    lease = Lease(run.path / "run.lease")
    until = monotonic() + ALONE_S
    while not lease.acquire() and monotonic() < until:
        time.sleep(0.01)
    try:
        yield
    finally:
        lease.release()


def merge_attempts(info: RunInfo, run: RunDirectory) -> RunInfo:
    """What to write to ``run.json``: ``info``, with the attempts that other processes have written there meanwhile.

    Args:
        info: of this process, whose attempt is its last; it takes over the name and the attempts before its own.
    """
    try:
        now = run.read_info(edited=False)
    except NotFound:
        return info
    own = {entry["number"] for entry in info.attempts}
    others = [entry for entry in now.attempts if entry.get("number") not in own]
    if not others:
        return info
    attempts = sorted([*info.attempts, *others], key=lambda entry: int(entry["number"]))
    mine = int(info.attempts[-1]["number"])
    info.attempts = [entry for entry in attempts if int(entry["number"]) <= mine]
    info.created, info.name = now.created, now.name
    info.config = records.merge(dict(now.config), info.config)
    info.trackers = list(dict.fromkeys([*now.trackers, *info.trackers]))
    info.tags = list(dict.fromkeys([*now.tags, *info.tags]))
    return msgspec.structs.replace(info, attempts=attempts)


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """What ``now`` changes or adds, by name joined with "/": ``{"lr": {"old": 0.1, "new": 0.01}}``.

    What it leaves out is no difference: the run keeps it. Values are compared, and given back, as the journal has
    them, a NaN as "NaN". Of an object whose text has its address, as a function's, type and name are compared.
    """
    old, changes = dict(records.flatten(_stored(before))), {}
    for name, value in records.flatten(_stored(now)):
        if name not in old:
            if value != {} or not any(other.startswith(f"{name}/") for other in old):
                changes[name] = {"new": value}
        elif _comparable(old[name]) != _comparable(value):
            changes[name] = {"old": old[name], "new": value}
    return changes


def _stored(config: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration as it is read back."""
    record = records.decode(records.encode(records.Config(time=0.0, values=dict(config))))
    return record.values if isinstance(record, records.Config) else {}


def _comparable(value: Any) -> Any:
    """The same without what another process has otherwise: addresses in the texts that objects have by default."""
    if isinstance(value, str):
        return (_OBJECT if value.startswith("<") else _ADDRESS).sub("", value)
    if isinstance(value, list):
        return [_comparable(item) for item in value]
    if isinstance(value, dict):
        return {name: _comparable(item) for name, item in value.items()}
    odd = isinstance(value, bool) or (isinstance(value, float) and str(value) == "-0.0")  # they equal other numbers
    return (str(value),) if odd else value


def _as_before(old: Any, now: Any) -> Any:
    """``now`` with the texts of ``old`` that differ by an address only: trackers would take them for changes."""
    if isinstance(now, dict) and isinstance(old, dict):
        return {name: _as_before(old.get(name), value) for name, value in now.items()}
    if isinstance(now, list) and isinstance(old, list) and len(now) == len(old):
        return list(map(_as_before, old, now))
    return old if isinstance(now, str) and isinstance(old, str) and _comparable(now) == _comparable(old) else now


def notice(changed: Mapping[str, Mapping[str, Any]], whose: str = "the last attempt's") -> str:
    """One line that names what is different: ``the config differs from the last attempt's: lr 0.1 → 0.01``."""
    parts = [f"{n} {v.get('old', '(new)')!s:.40} → {v['new']!s:.40}" for n, v in list(changed.items())[:SHOWN]]
    more = f" and {len(changed) - SHOWN} more" if len(changed) > SHOWN else ""
    return f"the config differs from {whose}: {', '.join(parts)}{more}"


def take_over(
    info: RunInfo, before: RunInfo, history: AttemptHistory, edited: RunInfo | None = None
) -> dict[str, dict[str, Any]]:
    """Give ``info`` what a continued run keeps.

    Args:
        info: of this process; changed in place.
        before: as ``run.json`` has it.
        history: of the attempts before this one.
        edited: with what was edited since; default ``before``.

    Returns:
        how the configuration differs from what it was at the end of the last attempt.
    """
    config = dict(before.config)
    for record in configs(history):
        records.merge(config, record.values, record.whole)
    changed = differences(config, info.config)
    info.config.update(_as_before(config, info.config))
    info.created, info.name, info.forked_from = before.created, before.name, before.forked_from
    info.attempts = before.attempts
    info.config = records.merge(records.unname_floats(config), info.config)
    info.trackers = list(dict.fromkeys([*before.trackers, *info.trackers]))
    edited = _as_said(edited or before, history)
    info.tags = list(dict.fromkeys([*edited.tags, *info.tags]))
    info.group = info.group or edited.group
    info.notes = info.notes or edited.notes
    info.edits = edited.edits
    info.job_type = info.job_type or before.job_type
    return changed


def results_at(
    step: int, run: RunDirectory, before: list[records.Summary | records.Media], time: float
) -> list[records.Record]:
    """What stores have to know of results when training goes back to a step: those that were set above it count no
    more, nor does what was computed of values above it; W&B goes on computing from what the values up to it come to.

    Args:
        run: with this attempt's start. before: the records of results that counted without it.
    """
    had: dict[str, Any] = {}
    has: dict[str, Any] = {}
    lists: set[str] = set()
    for record in before:
        if isinstance(record, records.Media):
            had[records.plain_name(record.name)] = record
        else:
            records.take_results(had, record)
            lists.update(map(records.plain_name, record.lists))
    history = AttemptHistory(run)
    valid = history.summaries()
    for record in valid:
        if not record.derived:
            has = {name: value for name, value in has.items() if name not in record.values}  # "x" or "final/x" is last
            records.take_results(has, record, str)
    asks = any(define.summary for define in history.defines())
    if not (had or valid or asks):
        return []
    fold = history.fold({})
    computed = fold.results()  # by their ``final/`` names, so that W&B takes none of them for one that was set
    plain = set(map(records.plain_name, computed))
    has = {name: value for name, value in has.items() if records.plain_name(name) not in plain} | computed
    names = set(map(records.plain_name, has))
    worded = dict.fromkeys(metric for record in valid for metric in record.by_word)
    by_word = [metric for metric in worded if has.keys() & {metric, *words_of(metric)}]
    found: list[records.Record] = [
        records.Summary(
            time=time, step=step, values=has, lists=sorted(lists & names), by_word=by_word, derived=True,
            removed=sorted(had.keys() - has.keys()), media=list(fold.media.values()),
            so_far=fold.totals("*", asked=True) if asks else None,
        )
    ]  # fmt: skip
    if deleted := fold.deleted():
        found.append(records.Summary(time=time, step=step, values={}, removed=deleted))
    return found


def told_anew(info: RunInfo, run: RunDirectory, time: float) -> list[records.Record]:
    """What ``init`` changes of a run, as a record: trackers would keep what was said before.

    Args:
        info: after :func:`take_over`. run: as it was before.
    """
    said = _as_said(run.read_info(), AttemptHistory(run))
    changed = {name: getattr(info, name) for name in CHANGING if getattr(info, name) != getattr(said, name)}
    return [records.Info(time=time, **changed)] if changed else []


def _as_said(info: RunInfo, history: AttemptHistory) -> RunInfo:
    """A run with its tags, group and notes as training, or an edit, said them last."""
    told = sorted(history.changes(), key=lambda record: record.time)
    said = {name: value for record in told for name, value in record.changes().items() if name in CHANGING}
    return msgspec.structs.replace(info, **said)


def last_step(opened: OpenedAttempt, history: AttemptHistory) -> int | None:
    """The last step that was logged, though it may be in values across ranks that nobody has reduced yet."""
    last = history.last_step()
    entry = opened.before.attempts[-1] if opened.before is not None and opened.before.attempts else {}
    folder = launch.folder_of(opened.run, opened.before, int(entry["number"])) if opened.before and entry else None
    limit = history.limit(int(entry["number"])) if entry else None
    found_by_launcher = (
        launch.last_step(folder, int(entry.get("rank", 0))) if folder is not None and limit is None else None
    )
    return max((step for step in (last, found_by_launcher) if step is not None), default=None)


def noted_until(opened: OpenedAttempt) -> float | None:
    """What ``Start.until`` says of a continued run: the latest time that its last attempt has noted, whose machine's
    clock may be ahead of this one's or behind; None where that is this machine."""
    if opened.before is None or machines.is_here(opened.before):
        return None
    relay = own_relay(opened.run, opened.before)
    earlier = [name.attempt for name in opened.run.stream_names() if name.attempt < opened.attempt]
    noted = AttemptHistory(opened.run).last_time(max(earlier, default=0))
    return max(noted, relay.time if relay is not None else 0.0)


def configs(history: AttemptHistory) -> list[records.Config]:
    """The Config records of all attempts, in order."""
    return [record for path in history.paths() for record in _configs(path)]


def _configs(path: Path) -> list[records.Config]:
    # Decoding a long run's records takes seconds; finding the few lines that matter, a fraction of one.
    entries = []
    with suppress(OSError), open_file(path) as lines:
        for line in lines:
            if b'"kind":"config"' in line:
                with contextlib.suppress(records.CorruptLine):
                    record = records.decode(line)
                    if isinstance(record, records.Config):
                        entries.append(record)
    return entries
