"""Deleting runs, with an undo: a run is moved to ``.trash`` beside it, and out of the trackers that can bring it back.

``removed.json`` in the run's directory says what was done where. It is written before anything is moved and after each
tracker, so that who comes after a kill goes on from there: with the deletion, or with bringing the run back.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from trackers.artifacts.versions import catalogs
from trackers.backends import registry
from trackers.editing.edits import trackers_of
from trackers.errors import NotFound, TrackersError, UsageError, did_you_mean, examples
from trackers.journal import trust
from trackers.journal.run_directory import TRASH, RunDirectory, find_runs, read_json, read_small, replace_file
from trackers.journal.status import is_doubtful, observe
from trackers.object_storage import addresses
from trackers.relay.delivery.cursor_file import read_account
from trackers.retention.lock import leases, locked
from trackers.retention.sizes import run_sizes, total
from trackers.support import confined
from trackers.support.failpoints import failpoint
from trackers.support.script import user
from trackers.tracker import RunInfo, State, Tracker

NOTE = "removed.json"
FILES = "removed.files"
"""Folder of a removed run for what its trackers had elsewhere."""
_EVENTS, _HIDDEN = "tfevents", "removed-events"
"""TensorBoard shows every file that has the first word in its name, in hidden folders, too."""


class RemovalOutcome(msgspec.Struct, omit_defaults=True):
    """What became of a run at one tracker.

    state: asked, removed, moved, kept, failed; back, or again where it is to be delivered. text: in words. moved: paths
    of files, and where in the trash they are.
    """

    state: str = "asked"
    text: str = ""
    moved: list[tuple[str, str]] = []


class Removal(msgspec.Struct, omit_defaults=True):
    """Content of ``removed.json``. time: Unix seconds. home: where the run lay. at: trackers to be removed for good.
    store: address of the store that it was removed from by name."""

    id: str = ""
    name: str = ""
    project: str = ""
    time: float = 0.0
    user: str = ""
    home: str = ""
    at: list[str] = []
    store: str = ""
    trackers: dict[str, RemovalOutcome] = {}


class Removed(msgspec.Struct):
    """A run in the trash. path: its directory there."""

    path: Path
    note: Removal

    def size(self) -> int:
        """Bytes of its files."""
        return total(run_sizes(self.path))


def why_not(run: RunDirectory, store: str = "") -> str:
    """Why a run can't be removed, in a few words; "" if it can.

    Args:
        store: the address of the store that it is to be removed from, where it is a copy of that one's.
    """
    if run.path.is_symlink():
        return "it is a link to a directory: remove that one"
    if not store and any((folder / addresses.COPY_MARKER).is_file() for folder in run.path.resolve().parents[:2]):
        return "it is a copy of a store's run: remove it where it was written"
    needed = [(folder, "write to", os.W_OK) for folder in (run.path.parent, run.path)]
    needed += [(run.stream(name), "read", os.R_OK) for name in run.stream_names()]  # whether it has ended
    for path, deed, mode in needed:
        if not os.access(path, mode) and os.path.lexists(path):
            return f"{user()} may not {deed} {path}, which belongs to {trust.owner_of(path)}"
    status = observe(run)
    if is_doubtful(status):
        return f"it may be running ({status.reason}): end it, or, if it is gone: trackers sync {run.quoted} --gone"
    return "it is running: end it first" if status.name == "running" else ""


def used_by(runs: Sequence[RunDirectory]) -> list[str]:
    """A line for each version of an artifact that goes with these runs and that others use."""
    going = {run.path.resolve() for run in runs}
    names = {run.path.name for run in runs}
    lines = []
    for root in dict.fromkeys(run.path.parent.parent for run in runs):
        for version in (
            version for catalog in catalogs(root) for versions in catalog.names.values() for version in versions
        ):
            users = [name for key, name in version.users.items() if key not in names]
            if users and not version.removed and all(maker.directory.resolve() in going for maker in version.makers):
                lines.append(f"{version} goes with it, and is used by {examples(users, 3)}")
    return lines


def remove(run: RunDirectory, *, at: Iterable[str] = (), local: bool = False, store: str = "") -> Removed:
    """Move a run to the trash, and take it out of its trackers. What a tracker refused is in the outcome.

    Args:
        at: trackers that can't bring it back, where it is to be removed for good.
        local: leave it at all trackers, and their files outside of its directory where they are.
        store: an address that it is removed from in any case, where the run lies in that store's own directory here.

    Raises:
        UsageError: it can't be removed. NotFound, Damaged: it can't be read. OSError: it stays.
    """
    reason = why_not(run)
    if reason:
        raise UsageError(f"run {run.quoted} stays as it is: {reason}")
    run.need_regular()
    info = run.read_info()
    note = Removal(
        id=info.id, name=info.name, project=info.project, time=time.time(), user=user(),
        home=str(run.path.resolve()), at=sorted(at), store=store,
        trackers={name: RemovalOutcome() for name in dict.fromkeys(
            [*([] if local else trackers_of(run)), *([addresses.STORAGE] if store else [])])},
    )  # fmt: skip
    with locked(run):
        if observe(run).name == "running":
            raise UsageError(f"run {run.quoted} stays as it is: it is running: end it first")
        _write(run.path, note)
        trash = run.path.parent / TRASH
        trash.mkdir(exist_ok=True)
        if trash.is_symlink():
            raise UsageError(f"{trash} is a link, and removed runs go nowhere else: remove it, then again")
        target = trash / f"{run.path.name}.{note.time:.6f}"
        failpoint("trash.move.before")
        confined.replace(run.path, target, root=run.path.parent)
        failpoint("trash.move.after")
        _drop_leases(target)
    removed = Removed(target, note)
    _go_on(removed)
    return removed


def in_trash(root: Path) -> Iterator[Removed]:
    """The removed runs below a directory of runs, the newest first."""
    removed = []
    for folder in (root, *sorted(entry for entry in _folders(root))):
        for path in [] if (folder / TRASH).is_symlink() else _folders(folder / TRASH):
            with contextlib.suppress(msgspec.ValidationError):
                note = msgspec.convert(read_json(path / NOTE), Removal, strict=False)
                if note.id:
                    removed.append(Removed(path, note))
    return iter(sorted(removed, key=lambda entry: entry.note.time, reverse=True))


def find(reference: str, root: Path) -> Removed:
    """The removed run of that id, name, ``project/id`` or ``project/name``, or of the directory that it had or has; of
    several the one removed last. One that is back, and has something left to do, counts, too.

    Raises:
        NotFound: there is none in the trash.
    """
    candidates = [*in_trash(root), *_siblings(Path(reference))]
    back = (Removed(run.path, _note(run.path)) for run in find_runs(root))
    for entry in [*candidates, *(entry for entry in back if entry.note.id)]:
        note = entry.note
        names = (note.id, note.name, f"{note.project}/{note.id}", f"{note.project}/{note.name}", note.home, "latest")
        directories = (Path(note.home), entry.path.resolve())
        if note.id and (reference in names or Path(reference).absolute() in directories):
            return entry
    near = did_you_mean(reference, [word for entry in candidates for word in (entry.note.id, entry.note.name)], "")
    raise NotFound(f"no removed run {reference!r} in {root}{near}; `trackers rm --list` lists them")


def _siblings(path: Path) -> list[Removed]:
    """The removed runs in the trash beside a directory, or in the trash that a removed run is in."""
    folder = path.parent if path.parent.name == TRASH else path.parent / TRASH
    return [removed for removed in in_trash(folder.parent) if removed.path.parent == folder] if folder.is_dir() else []


def bring_back(removed: Removed) -> Removed:
    """Undo a deletion: the run's directory, its files elsewhere, and the run at its trackers. May be called again.

    Returns:
        where it is now, and what became of it at each tracker: what failed is done by the next call.

    Raises:
        UsageError: a run of that id is there. OSError: it can't be moved.
    """
    path, note = removed.path, removed.note
    home = path
    if path.parent.name == TRASH:
        home = _home(path)
        if os.path.lexists(home):
            raise UsageError(f"{home} is there, and would be replaced: remove or rename it, then again")
        _drop_leases(path)
        _rename_events(path, _HIDDEN, _EVENTS)
        failpoint("restore.move.before")
        os.rename(path, home)
        failpoint("restore.move.after")
        with contextlib.suppress(OSError):
            path.parent.rmdir()
    back, run = Removed(home, note), RunDirectory(home)
    for name, outcome in note.trackers.items():
        try:
            _undo(run, name, outcome)
        except (TrackersError, OSError) as error:
            outcome.state, outcome.text = "failed", f"not brought back: {error}"
        except Exception as error:  # a vendor's client; the run itself is back
            outcome.state, outcome.text = "failed", f"not brought back: {type(error).__name__}: {error}"
        _write(home, note)
        failpoint("restore.tracker.after")
    if not any(outcome.state == "failed" for outcome in note.trackers.values()):
        shutil.rmtree(home / FILES, ignore_errors=True)
        confined.remove(home / NOTE)
    return back


def empty(removed: Removed) -> int:
    """Delete a removed run's files for good; return how many bytes were freed.

    Raises:
        OSError: the rest goes with the next call.
    """
    size = removed.size()
    confined.remove_folder(removed.path, NOTE, lambda: failpoint("empty.entry.after"))
    with contextlib.suppress(OSError):
        removed.path.parent.rmdir()
    return size


def unfinished(root: Path) -> list[Removed]:
    """Removed runs with a tracker that hasn't been asked yet: the process that removed them was killed."""
    return [
        removed
        for removed in in_trash(root)
        if any(outcome.state == "asked" for outcome in removed.note.trackers.values())
    ]


def finish(removed: Removed) -> Removed:
    """Go on with a deletion that was interrupted."""
    _go_on(removed)
    return removed


def _drop_leases(path: Path) -> None:
    """Nobody works on a run in the trash: its leases were held by who moved it, under another path."""
    for lease in leases(RunDirectory(path)):
        with contextlib.suppress(OSError):
            confined.remove(lease)


def _go_on(removed: Removed) -> None:
    _hide_events(removed.path)
    for name, outcome in removed.note.trackers.items():
        if outcome.state != "asked":
            continue
        try:
            outcome.state, outcome.text = _take_out(removed, name, outcome)
        except Exception as error:  # a vendor's client, too: the others are asked all the same
            kind = "" if isinstance(error, (TrackersError, OSError)) else f"{type(error).__name__}: "
            outcome.state, outcome.text = "failed", f"not removed there: {kind}{error}"
        _write(removed.path, removed.note)
        failpoint("trash.tracker.after")


def _take_out(removed: Removed, name: str, outcome: RemovalOutcome) -> tuple[str, str]:
    """Take a run out of one tracker. Returns the outcome's state and text."""
    run = RunDirectory(removed.path)
    with contextlib.suppress(FileNotFoundError, ValueError):
        read_small(run.delivery_state(name))  # one that may not be read doesn't say that it never had the run
    account = read_account(run, name)
    url = str(account.state.get("url", ""))
    if not account.time and name != addresses.STORAGE:  # the store may have what no account of it was written of
        return "kept", "it never had the run"
    tracker = registry.load(name)
    info = _of_store(_info(removed, name), name, removed.note, _home(removed.path))
    state = State(account.state)
    if tracker.remove is not Tracker.remove and info.foreign:
        return "kept", f"kept at {url or name}: your own trackers didn't write this run"
    if tracker.removes_for_good and name not in removed.note.at:
        return "kept", f"kept at {url or name}, where nothing brings it back; to remove it there, too: --at {name}"
    text = tracker.remove(info, state)
    if text is not None:
        return "removed", text
    own = tracker.own_files(info, state)
    files = [path for path in own or () if os.path.lexists(path)]
    for number, path in enumerate(files):
        target = removed.path / FILES / name / f"{number}" / path.name
        outcome.moved.append((str(path), str(target.relative_to(removed.path))))
        _write(removed.path, removed.note)
        confined.make_folder(target.parent, root=removed.path)
        with confined.pinned(target, root=removed.path) as place:
            _move(path, place)
    _hide_events(removed.path)
    outside = tracker.place(info)
    if files or (tracker.symbol and not outside):
        return "moved", "its files went along"
    if own is not None:
        return "kept", f"it has no files of the run at {outside}"
    return "kept", f"kept at {url or outside or name}: nothing takes a run out of there"


def _undo(run: RunDirectory, name: str, outcome: RemovalOutcome) -> None:
    """Bring a run back to one tracker."""
    info, _ = trust.delivered(run)
    info.options = trust.options_for(info, name)
    info = _of_store(info, name, _note(run.path), run.path)
    for source, target in reversed(outcome.moved):
        moved = run.path / target
        if not (confined.is_inside(target) and target.startswith(f"{FILES}/") and _may_hold(name, info, Path(source))):
            raise UsageError(
                f"{NOTE} names {source!r:.200}, where {name} has no files of this run: it stays in {moved}"
            )
        with contextlib.suppress(FileNotFoundError), confined.pinned(moved, root=run.path) as kept:
            if kept.is_symlink():
                raise UsageError(f"{moved} is a link: it stays")
            if kept.exists():
                if os.path.lexists(source):
                    raise UsageError(f"{source} is there: remove or rename it, then again")
                Path(source).parent.mkdir(parents=True, exist_ok=True)
                _move(kept, Path(source))
    outcome.moved = []
    if outcome.state in ("removed", "failed", "asked"):
        if read_account(run, name).time or name == addresses.STORAGE:
            text = registry.load(name).restore(info, State(read_account(run, name).state))
            if text is not None:
                outcome.state, outcome.text = "back", text
                return
        if outcome.state == "removed":
            for path in (run.delivery / f"{name}.order", run.delivery_state(name)):
                with contextlib.suppress(FileNotFoundError):
                    confined.remove(path)
            outcome.state = "again"
            outcome.text = f"delivered again from the journal: trackers sync {run.quoted} --to {name}"
            return
    if outcome.state not in ("back", "again"):
        outcome.state, outcome.text = "back", outcome.text if outcome.state == "kept" else "its files are back"


def _may_hold(name: str, info: RunInfo, path: Path) -> bool:
    """Whether a path lies in the directory that the options name for a tracker's files: a note may say anything."""
    location = registry.precheck(name).place(info)
    inside = os.path.normpath(path) == str(path) and path.is_absolute()
    return (
        bool(location)
        and os.path.isabs(location)
        and inside
        and registry.load(name).own_files is not Tracker.own_files
        and path.parent.resolve().is_relative_to(Path(location).resolve())
    )


def _info(removed: Removed, name: str) -> RunInfo:
    """The run's identity as its trackers know it: at the place that it had."""
    info, _ = trust.delivered(RunDirectory(removed.path))
    info.options = trust.options_for(info, name)
    trust.need_logins(info.options, name)
    info.directory = removed.note.home
    return info


def _home(path: Path) -> Path:
    """Where a directory of the trash comes from."""
    return path.parent.parent / path.name.rpartition(".")[0].rpartition(".")[0]


def _of_store(info: RunInfo, name: str, note: Removal, home: Path) -> RunInfo:
    """The run as the tracker of its store is asked: of the store that was named by who removed it.

    Args:
        home: where the run lies, or lay: a note may name any store, this says whose run it is.
    """
    if name != addresses.STORAGE:
        return info
    info = msgspec.structs.replace(info, directory=str(home))
    if not note.store or not addresses.is_local_directory(home.parent.parent, note.store):
        return info
    return msgspec.structs.replace(info, foreign=False, options={**info.options, "TRACKER_DIR": note.store})


def _move(source: Path, target: Path) -> None:
    """Move a file or a directory, to another disk, too; twice is harmless."""
    try:
        os.rename(source, target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        part = target.with_name(f".{target.name}.part")
        shutil.rmtree(part, ignore_errors=True)
        if source.is_dir():
            shutil.copytree(source, part, symlinks=True)
        else:
            shutil.copy2(source, part, follow_symlinks=False)
        os.rename(part, target)
        shutil.rmtree(source) if source.is_dir() else source.unlink()


def _hide_events(folder: Path) -> None:
    _rename_events(folder, _EVENTS, _HIDDEN)


def _rename_events(folder: Path, word: str, other: str) -> None:
    for inside in ("tensorboard", FILES):
        for base, _, names in () if (folder / inside).is_symlink() else os.walk(folder / inside):
            for name in names:
                if word in name:
                    confined.replace(Path(base, name), Path(base, name.replace(word, other)), root=folder)


def _write(folder: Path, note: Removal) -> None:
    replace_file(folder / NOTE, msgspec.json.encode(note))


def _note(folder: Path) -> Removal:
    with contextlib.suppress(msgspec.ValidationError):
        return msgspec.convert(read_json(folder / NOTE), Removal, strict=False)
    return Removal()


def _folders(path: Path) -> list[Path]:
    try:
        with os.scandir(path) as entries:
            return sorted(Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False))
    except OSError:
        return []


def label(note: Removal) -> str:
    """A removed run, as commands name it."""
    return f"{note.project}/{note.id}"
