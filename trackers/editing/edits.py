"""Edits of a run, written to its journal: one record each, in a stream of its own that every tracker's delivery reads.

An edit is one write of one line: it is there or it isn't, whenever its process is killed. Who edits has the lease
``edits.lease``, so that "add a tag" adds to what is there now. Training isn't told: the stream is another file.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec

from trackers import records
from trackers.backends import registry
from trackers.errors import UsageError
from trackers.formats.word_list import split_words
from trackers.journal import trust
from trackers.journal.attempts import AttemptHistory
from trackers.journal.lease import Lease
from trackers.journal.run_directory import EDITS_STREAM, SMALL_BYTES, RunDirectory
from trackers.journal.stream import cut_torn_tail, decode_lines, last_record
from trackers.metrics.definitions import Definitions
from trackers.metrics.summary import words_of
from trackers.object_storage import addresses
from trackers.records import Info, Record, Start, Summary
from trackers.support import confined, script
from trackers.support.failpoints import failpoint
from trackers.support.redaction import mask_source
from trackers.support.seekable_zstd import open_file

WAIT_S = 10.0
"""Maximum wait for another edit of the same run, in seconds; an edit takes milliseconds."""
NAME_CHARACTERS = 500
TAG_CHARACTERS = 500
MOST_TAGS = 1000
NOTES_CHARACTERS = 1_000_000


class Attributes(msgspec.Struct, kw_only=True):
    """What of a run can be edited, as it is. group, notes: "" for none."""

    name: str
    tags: tuple[str, ...] = ()
    notes: str = ""
    group: str = ""

    def changes(self, before: Attributes) -> dict[str, tuple[Any, Any]]:
        """What is different from before: old and new value by name."""
        differing = {}
        for field in self.__struct_fields__:
            old, new = getattr(before, field), getattr(self, field)
            if old != new:
                differing[field] = (old, new)
        return differing


def attributes(run: RunDirectory) -> Attributes:
    """A run's attributes as its identity, its own changes and its edits say, the last one's word.

    Raises:
        NotFound, Damaged: its identity can't be read.
    """
    info = run.read_info()
    for record in recorded_changes(run):
        for name, value in record.changes().items():
            setattr(info, name, value)
    return Attributes(name=info.name, tags=tuple(info.tags), notes=info.notes or "", group=info.group or "")


def recorded_changes(run: RunDirectory) -> list[Info]:
    """All changes of a run's attributes in its journal, by time."""
    return sorted(AttemptHistory(run).changes(), key=lambda record: record.time)


def edit(run: RunDirectory, change: Callable[[Attributes], Attributes]) -> dict[str, tuple[Any, Any]]:
    """Change a run's attributes. When this returns, the edit is in the journal; trackers get it by a delivery.

    Args:
        change: gives the new attributes for the present ones.

    Returns:
        old and new value of what is different, by name; {}: nothing was, and nothing was written.

    Raises:
        UsageError: the run can't be edited, or a value can't be one. NotFound, Damaged: its identity can't be read.
    """
    with _editing(run):
        before = attributes(run)
        after = _check(change(before))
        changed = after.changes(before)
        if changed:
            _append(run, _record(run, changed))
        return changed


def _record(run: RunDirectory, changed: dict[str, tuple[Any, Any]], undoes: float = 0.0) -> Info:
    values: dict[str, Any] = {name: list(new) if name == "tags" else new for name, (_, new) in changed.items()}
    return Info(time=_now(run), undoes=undoes, **values)


class Edited(msgspec.Struct):
    """One edit of a run.

    time: Unix seconds. changed: old and new value by name; results: those that it added. undoes: as in
    :class:`trackers.records.Info`.
    """

    time: float
    changed: dict[str, tuple[Any, Any]] = {}
    results: dict[str, Any] = {}
    undoes: float = 0.0


def history(run: RunDirectory) -> list[Edited]:
    """The edits of a run, the first first.

    Raises:
        NotFound, Damaged: its identity can't be read.
    """
    info = run.read_info(edited=False)
    now = Attributes(name=info.name, tags=tuple(info.tags), notes=info.notes or "", group=info.group or "")
    first, *later = [*AttemptHistory(run).starts(), None]
    now = _at_start(now, first)
    own = [record for record in _own(run) if isinstance(record, (Info, Summary))]
    ours = {id(record) for record in own}
    edits = []
    resumed = [start for start in later if start is not None]
    events: list[Any] = [*own, *resumed, *(record for record in recorded_changes(run) if record not in own)]
    for record in sorted(events, key=lambda event: float(event.time)):
        if isinstance(record, Start):
            now = _at_start(now, record)
            continue
        if isinstance(record, Summary):
            edits.append(Edited(record.time, results=record.values))
            continue
        changes = {name: tuple(value) if name == "tags" else value for name, value in record.changes().items()}
        after = msgspec.structs.replace(now, **changes)
        if id(record) in ours:
            edits.append(Edited(record.time, changed=after.changes(now), undoes=record.undoes))
        now = after
    return edits


def _at_start(now: Attributes, start: Start | None) -> Attributes:
    """The attributes with which an attempt began; its name is the run's first, whatever it was edited to."""
    at_start = start.run if start is not None else {}
    tags, notes, group = at_start.get("tags", now.tags), at_start.get("notes") or "", at_start.get("group") or ""
    if not at_start or not isinstance(tags, (list, tuple)):
        return now
    return msgspec.structs.replace(now, tags=tuple(map(str, tags)), notes=str(notes), group=str(group))


def undo(run: RunDirectory) -> dict[str, tuple[Any, Any]]:
    """Take back the last edit of a run's attributes that wasn't taken back yet, as another edit.

    What was changed again since stays; an edit of which nothing is left is passed over.

    Returns:
        as :func:`edit`.

    Raises:
        UsageError: there is none, or the run can't be edited. NotFound, Damaged: its identity can't be read.
    """
    with _editing(run):
        done, _ = _stacks(history(run))
        if taken_back := _take_back(run, done):
            return taken_back
        raise UsageError(f"run {run.quoted}: no edit of its name, tags, notes or group is left to take back")


def redo(run: RunDirectory) -> dict[str, tuple[Any, Any]]:
    """Make the edit again that was taken back last; possible until there is another edit. Otherwise as :func:`undo`."""
    with _editing(run):
        _, undone = _stacks(history(run))
        if made_again := _take_back(run, undone):
            return made_again
        raise UsageError(f"run {run.quoted}: no edit was taken back since the last one")


def _stacks(edits: Sequence[Edited]) -> tuple[list[Edited], list[Edited]]:
    """The edits that ``undo`` can take back, and the undos that ``redo`` can; the next one last."""
    done: list[Edited] = []
    undone: list[Edited] = []
    for entry in edits:
        if not entry.changed:
            continue
        if any(entry.undoes == earlier.time for earlier in done):
            while done.pop().time != entry.undoes:
                pass
            undone.append(entry)
        elif any(entry.undoes == earlier.time for earlier in undone):
            while undone.pop().time != entry.undoes:
                pass
            done.append(entry)
        else:
            done.append(entry)
            undone.clear()
    return done, undone


def _take_back(run: RunDirectory, stack: Sequence[Edited]) -> dict[str, tuple[Any, Any]]:
    """Write the opposite of the last edit of which something still holds; {}: of none."""
    now = attributes(run)
    for last in reversed(stack):
        before = {name: old for name, (old, new) in last.changed.items() if getattr(now, name) == new}
        changed = _check(msgspec.structs.replace(now, **before)).changes(now)
        if changed:
            _append(run, _record(run, changed, last.time))
            return changed
    return {}


def _own(run: RunDirectory) -> list[Record]:
    """The records of the stream of edits."""
    with contextlib.suppress(OSError), open_file(run.stream(EDITS_STREAM)) as file:
        return decode_lines(file.read(SMALL_BYTES), whole=True)
    return []


def add_results(run: RunDirectory, values: dict[str, Any]) -> None:
    """Record results that were found after the run: in the journal when this returns.

    Args:
        values: by name, with or without ``final/``: numbers, texts, or lists and mappings of them.

    Raises:
        UsageError: as of :func:`edit`.
    """
    if values:
        with _editing(run):
            history, defined, recorded = AttemptHistory(run), Definitions(), dict[str, Any]()
            for define in history.defines():
                defined.define(define)
            for record in history.summaries():
                records.take_results(recorded, record)
            keys = set(map(records.plain_name, values))
            words = {name for key in keys if defined.known(key) for name in words_of(key)}
            below = tuple(f"{key}/" for key in keys)
            removed = sorted(name for name in recorded.keys() - keys if name in words or name.startswith(below))
            _append(run, Summary(time=_now(run), values=values, removed=removed))


def as_tags(value: str | Iterable[str]) -> tuple[str, ...]:
    """Tags, each once: of a text those between its commas, as of the option.

    Raises:
        UsageError: it is no text, and nothing that has texts in it.
    """
    tags: list[Any]
    try:
        tags = split_words(value) if isinstance(value, str) else list(value)
    except TypeError:
        tags = [value]
    wrong = [tag for tag in tags if not isinstance(tag, (str, int, float))]
    if wrong or (tags == [value] and not isinstance(value, str)):
        raise UsageError(f"tags {(wrong or tags)[0]!r:.80}: give a text, as in 'a,b', or a list of texts")
    return tuple(dict.fromkeys(filter(None, (records.escaped(mask_source(str(tag))).strip() for tag in tags))))


def _check(after: Attributes) -> Attributes:
    name = " ".join(records.escaped(mask_source(after.name)).split())
    if not name:
        raise UsageError("a run's name can't be empty")
    if len(name) > NAME_CHARACTERS:
        raise UsageError(f"a name of {len(name):,} characters: use at most {NAME_CHARACTERS}")
    tags = as_tags(list(after.tags))
    if len(tags) > MOST_TAGS:
        raise UsageError(f"{len(tags):,} tags: a run has at most {MOST_TAGS:,}")
    if longest := max((len(tag) for tag in tags if len(tag) > TAG_CHARACTERS), default=0):
        raise UsageError(f"a tag of {longest:,} characters: use at most {TAG_CHARACTERS}")
    if len(after.notes) > NOTES_CHARACTERS:
        raise UsageError(f"notes of {len(after.notes):,} characters: use at most {NOTES_CHARACTERS:,}")
    notes, group = (records.escaped(mask_source(text)).strip() for text in (after.notes, after.group))
    if len(group) > NAME_CHARACTERS:
        raise UsageError(f"a group of {len(group):,} characters: use at most {NAME_CHARACTERS}")
    return Attributes(name=name, tags=tags, notes=notes, group=group)


def need_editable(run: RunDirectory, *, what: str = "edited") -> None:
    """Raise a UsageError where a run can't be changed from here: it is packed, a store's copy, or somebody else's."""
    run.need_regular()
    run.need_own_directory()
    run.need_restored()
    if any((folder / addresses.COPY_MARKER).is_file() for folder in run.path.resolve().parents[:2]):
        raise UsageError(f"{run.path} is a copy of a store's run, and can't be {what}: do that where it was written")
    for folder in (run.path, run.streams):
        if not os.access(folder, os.W_OK):
            raise UsageError(
                f"run {run.quoted}: {script.user()} may not write to {folder}, which belongs to "
                f"{trust.owner_of(folder) if os.path.lexists(folder) else 'nobody'}: have its owner change it"
            )


@contextlib.contextmanager
def _editing(run: RunDirectory) -> Iterator[None]:
    """While one process edits a run, others wait."""
    need_editable(run)
    lease = Lease(run.path / "edits.lease")
    until = time.monotonic() + WAIT_S
    try:
        while not lease.acquire():
            if time.monotonic() >= until:
                raise UsageError(f"{run.path}: {lease.holder() or 'somebody'} edits this run; try again")
            time.sleep(0.01)
        yield
    except OSError as error:
        file = f"{error.filename}: " if isinstance(error.filename, str) else ""
        why = f"{file}{error.strerror or error}"
        raise UsageError(f"run {run.quoted} can't be edited ({why}); nothing was changed") from None
    finally:
        with contextlib.suppress(OSError):
            lease.release()


def _now(run: RunDirectory) -> float:
    """A time behind all that the run says, though this machine's clock may be behind."""
    last = last_record(run.stream(EDITS_STREAM))
    last_time = max(AttemptHistory(run).last_time(), last.time if last is not None else 0.0)
    return max(time.time(), last_time + 1e-6)


def _append(run: RunDirectory, record: Record) -> None:
    """Append one record, on the disk when this returns.

    Raises:
        OSError: it isn't there.
    """
    failpoint("edit.record.before")
    line = records.encode(record)
    fd = confined.open_fd(run.stream(EDITS_STREAM), os.O_RDWR | os.O_APPEND | os.O_CREAT)
    try:
        begin = cut_torn_tail(fd)
        if os.write(fd, line) != len(line):  # nobody else writes here now: the lease is held
            os.ftruncate(fd, begin)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.fsync(fd)
    finally:
        os.close(fd)
    failpoint("edit.record.after")


def trackers_of(run: RunDirectory) -> list[str]:
    """The trackers that a run is to be delivered to, and those that it ever was."""
    names = dict.fromkeys([*run.read_info().trackers, *run.deliveries()])
    return [name for name in names if not registry.identity(name).inside]


def unheld(run: RunDirectory, changed: Iterable[str]) -> list[str]:
    """What of an edit a run's trackers can't hold, a line for each tracker.

    Args:
        changed: names of attributes, and "results".
    """
    lines = []
    for tracker in trackers_of(run):
        with contextlib.suppress(UsageError):
            lacking = dict(registry.precheck(tracker).unedited)
            names = [name for name in changed if name in lacking]
            if names:
                whys = dict.fromkeys(lacking[name] for name in names)
                lines.append(f"{tracker} can't hold {', '.join(names)}: {'; '.join(whys)}")
    return lines


def describe(changed: dict[str, tuple[Any, Any]]) -> str:
    """What an edit changed, in one line: ``name 'a' → 'b', tags +best −draft``."""
    parts = []
    for name, (old, new) in changed.items():
        if name == "tags":
            gone = [f"-{tag}" for tag in old if tag not in new] or ([] if set(new) - set(old) else ["in another order"])
            parts.append(" ".join(["tags", *(f"+{tag}" for tag in new if tag not in old), *gone]))
        elif name == "notes":
            parts.append(f"notes {_short(new)}" if new else "notes removed")
        else:
            arrow = f"{_short(old)} → " if old else ""
            parts.append(f"{name} {arrow}{_short(new)}" if new else f"{name} {_short(old)} removed")
    return ", ".join(parts)


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else f"{text[:59]}…")
