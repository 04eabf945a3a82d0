"""Copying runs from a store to this machine: what is new alone, checked, for all that reads directories of runs.

What a store holds may come from anybody: names that lead elsewhere are passed over, a piece counts only with the
content that its name has the digest of, and nothing is loaded that the disk has no room for.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec

from trackers.errors import DeliveryError, NotFound, TrackersError, Unavailable
from trackers.object_storage import addresses, layout
from trackers.object_storage.layout import MOST_BYTES, Piece
from trackers.object_storage.store import Listed, Longer, Store
from trackers.support import confined, sightings
from trackers.support.progress import progress
from trackers.support.terminal import one_line

KEPT_FREE = 64 * 1024 * 1024
"""Bytes of the disk that are left free."""
THREADS = 8
VERSIONS = ".versions"
FOLLOW_S = 2.0
SHOWN = "what was copied before is shown"


class Readable(Protocol):
    """The part of a store that is copied from."""

    where: str

    def get(self, name: str, most: int) -> bytes:
        """A small object's content."""


class StoredRun(NamedTuple):
    """A run as a listing has it. whole: objects by path. pieces: of growing files, by path, with their objects."""

    project: str
    id: str
    whole: dict[str, Listed]
    pieces: dict[str, dict[Piece, Listed]]

    def attempt(self) -> int:
        """Its newest attempt's number; 0 before the first."""
        return layout.newest_attempt(path.removeprefix("streams/") for path in (*self.pieces, *self.whole))


def stored_runs(store: Store, below: str = "") -> list[StoredRun]:
    """The runs below an address, or below a project's or a run's prefix there.

    Raises:
        Unavailable, Refused: the store can't be listed.
    """
    runs: dict[tuple[str, str], StoredRun] = {}
    with progress(f"listing {store.where}", "objects") as report:
        for count, entry in enumerate(store.objects(below)):
            report(count, 0)
            project, _, rest = entry.name.partition("/")
            run_id, _, name = rest.partition("/")
            part = layout.path_of(name, entry.size) if name else None
            if (
                part is None
                or not (confined.is_plain_name(project) and confined.is_plain_name(run_id))
                or "." in (project[0], run_id[0])
            ):
                continue
            path, piece = part
            run = runs.setdefault((project, run_id), StoredRun(project, run_id, {}, {}))
            if piece is None:
                run.whole[path] = entry
            else:
                run.pieces.setdefault(path, {})[piece] = entry
    return [runs[key] for key in sorted(runs)]


def copy(where: str, root: Path, below: str = "", *, keep: Callable[[StoredRun], bool] = lambda run: True) -> list[str]:
    """Bring a directory of runs up to what a store has.

    Args:
        where: the store's address. root: the directory; made if it isn't there.
        below: a project, or ``<project>/<run id>``; default all.
        keep: whether a run is wanted.

    Returns:
        the directories of the runs that are there now, of those that were wanted.

    Raises:
        Unavailable, Refused: the store can't be read. What was copied before stays.
    """
    store = Store(where)
    return copy_runs(store, root, [run for run in stored_runs(store, below) if keep(run)])


def copy_runs(store: Store, root: Path, runs: Collection[StoredRun]) -> list[str]:
    """Bring a directory's copies of runs that were just listed up to date; as :func:`copy`."""
    confined.make_private(root)
    copied = []
    with progress(f"copying from {store.where}", "runs") as report, ThreadPoolExecutor(THREADS) as pool:
        for number, (run, changed) in enumerate(zip(runs, pool.map(lambda run: _copy(store, root, run), runs))):  # noqa: B905
            report(number + 1, len(runs))
            if changed:
                copied.append(str(root / run.project / run.id))
    return copied


def _copy(store: Store, root: Path, run: StoredRun) -> bool:
    """Copy what of a run is new; whether it is a run that can be read."""
    directory = root / run.project / run.id
    confined.make_private(directory)
    versions = directory / VERSIONS
    try:
        known = msgspec.json.decode(confined.read(versions, root=directory), type=dict[str, str])
    except (OSError, ValueError):
        known = {}
    before = dict(known)
    for path, pieces in sorted(run.pieces.items()):
        append(store, directory, path, pieces, store.part)
        size = prepare_file(directory, path)[1]
        if _gap(pieces, size):  # or one was written while they were listed: then it is there by now
            home = f"{run.project}/{run.id}"
            now = [found.pieces.get(path, {}) for found in stored_runs(store, home)]
            if gap := max((_gap(pieces, size) for pieces in now), default=0):
                _say_once(f"{store.where}/{home} lacks bytes {size:,} to {gap:,} of {path}: the rest isn't shown")
    for path, entry in sorted(run.whole.items()):
        if known.get(path) == entry.version and os.path.exists(directory / path):
            continue
        with contextlib.suppress(NotFound, Longer):  # replaced or deleted meanwhile: the next copy has it
            _write(store, directory, path, entry)
            known[path] = entry.version
    if known != before:
        confined.write_whole(versions, msgspec.json.encode(known), root=directory)
    return "run.json" in known or bool(run.attempt())


def _gap(pieces: Collection[Piece], size: int) -> int:
    """Where the first piece begins that can't follow ``size`` bytes; 0 where there is none, or others lead to it."""
    return 0 if layout.chain(list(pieces), size) else min((one.begin for one in pieces if one.begin > size), default=0)


def prepare_file(directory: Path, path: str) -> tuple[Path, int]:
    """Make the folder of a growing file if it is missing. Returns the file's path, and its present length in bytes.

    Raises:
        OSError: the folder can't be made.
    """
    target = directory / path
    if "/" in path:
        confined.make_folder(target.parent, root=directory)
    try:
        return target, target.stat(follow_symlinks=False).st_size
    except FileNotFoundError:
        return target, 0


def append(
    store: Readable, directory: Path, path: str, pieces: dict[Piece, Listed],
    part: Callable[[str, int, int], bytes] | None = None,
) -> bool:  # fmt: skip
    """Copy the pieces of a file that follow the local part; False where one was replaced meanwhile: ask again.

    Args:
        directory: that the file lies beneath. path: from there, with "/" between its parts.
        part: loads bytes of an object: then no more is loaded of a piece than is missing here.

    Raises:
        Unavailable, Refused: the store can't be read, or a piece isn't what its name says. OSError: no room.
    """
    target, size = prepare_file(directory, path)
    end = size
    for piece in layout.chain(list(pieces), size):
        need_room(directory, piece.end - end)
        entry = pieces[piece]
        try:
            content = b""
            if part is not None and end > piece.begin:
                with confined.open_file(target, root=directory) as file:
                    file.seek(piece.begin)
                    content = file.read(end - piece.begin) + part(entry.name, end - piece.begin, entry.size)
            if not piece.holds(content):
                content = store.get(entry.name, MOST_BYTES)
        except NotFound:
            return False
        if not piece.holds(content):
            raise Unavailable(f"{store.where}/{entry.name}: its bytes aren't those that its name has the digest of")
        write_at(target, end, content[end - piece.begin :], directory)
        end = piece.end
    if end > size:
        newest = max(entry.time for entry in pieces.values())
        with contextlib.suppress(OSError):
            os.utime(target, (newest, newest), follow_symlinks=False)
    return True


def write_at(target: Path, offset: int, content: bytes, root: Path) -> None:
    """Write bytes at an offset; others who copy the same file write the same bytes there."""
    fd = confined.open_fd(target, os.O_WRONLY | os.O_CREAT, root=root)
    try:
        os.lseek(fd, offset, os.SEEK_SET)
        rest = memoryview(content)
        while rest:
            rest = rest[os.write(fd, rest) :]
    finally:
        os.close(fd)


def _write(store: Store, directory: Path, path: str, entry: Listed) -> None:
    need_room(directory, entry.size)
    target = directory / path
    if "/" in path:
        confined.make_folder(target.parent, root=directory)
    new = confined.temporary(target)
    try:
        with confined.open_file(new, "xb", root=directory) as file:
            for chunk in store.chunks(entry.name, entry.size):
                file.write(chunk)
        os.utime(new, (entry.time, entry.time), follow_symlinks=False)
        confined.replace(new, target, root=directory)
    except BaseException:
        with contextlib.suppress(OSError):
            confined.remove(new, root=directory)
        raise


def need_room(directory: Path, size: int) -> None:
    """Raise OSError unless a disk has room for that many bytes beside :data:`KEPT_FREE`."""
    if size + KEPT_FREE > shutil.disk_usage(directory).free:
        raise OSError(errno.ENOSPC, f"{size:,} bytes are wanted: {os.strerror(errno.ENOSPC)}", str(directory))


def fetch_runs(where: str, root: Path, project: str, run_id: str = "") -> list[str]:
    """Before a run is continued: copy what the store has of it, or of all runs of its project.

    A local run with as many attempts or more is left as it is: it has at least what was sent.

    Args:
        project: the project's folder. run_id: "" for all.

    Returns:
        directories of the runs that were copied.

    Raises:
        Unavailable, Refused: the store can't be read.
    """

    def is_newer(run: StoredRun) -> bool:
        return run.attempt() > layout.attempt_in(root / run.project / run.id)

    return copy(where, root, f"{project}/{run_id}" if run_id else project, keep=is_newer)


def fetch_run(where: str, own: Path, project: str, run_id: str) -> Path:
    """Before a run is removed from a store: copy all of it to where this machine writes runs; its directory there.

    Args:
        own: the directory where this machine writes runs. project: the project's folder.

    Raises:
        Unavailable, Refused: the store can't be read. NotFound: it hasn't the run. OSError: no room.
    """
    target = own / project / run_id
    if os.path.lexists(target):
        fetch_runs(where, own, project, run_id)
        return target
    aside = own.parent / "removing"
    if not copy(where, aside, f"{project}/{run_id}"):
        raise NotFound(f"{where} has no run {project}/{run_id}")
    target.parent.mkdir(parents=True, exist_ok=True)
    os.rename(aside / project / run_id, target)
    return target


def _print_message(text: str) -> None:
    print(f"trackers: {text}", file=sys.stderr)


_say_once = functools.cache(_print_message)


class Following(threading.Thread):
    """Copies again and again while a command shows what it has. A daemon: it ends with the process.

    That the store can't be read is said on stderr once, and that it can be again.
    """

    def __init__(self, where: str, root: Path) -> None:
        super().__init__(name=f"copy of {where}", daemon=True)
        self._where, self._root = where, root
        self.problem = ""

    def run(self) -> None:
        """Copy until the process ends; ``problem`` is the last try's, one line."""
        while True:
            time.sleep(FOLLOW_S)
            try:
                refresh(self._where, self._root)
                if self.problem:
                    _print_message(f"{self._where} is read again")
                self.problem = ""
            except (TrackersError, OSError) as error:
                if not self.problem:
                    _print_message(f"{one_line(str(error), 300)}; {SHOWN}, and it is tried again every {FOLLOW_S:g} s")
                self.problem = str(error)
            except RuntimeError:  # the process ends: no thread can be started any more
                return


def refresh(where: str, root: Path) -> None:
    """Copy what is new, and remove what the store hasn't any more."""
    began = sightings.now()
    store = Store(where)
    refresh_runs(store, root, stored_runs(store), began)


def refresh_runs(
    store: Store, root: Path, listed: list[StoredRun], began: sightings.Moment,
    keep: Callable[[StoredRun], bool] = lambda run: True,
) -> None:  # fmt: skip
    """The same with a listing that began at a moment; copies of runs that aren't wanted stay as they are."""
    current = {str(root / run.project / run.id) for run in listed if not keep(run)}
    current.update(copy_runs(store, root, [run for run in listed if keep(run)]))
    marker = f"{store.where}\n".encode() + msgspec.json.encode(began)
    confined.write_whole(root / addresses.COPY_MARKER, marker, root=root)
    for versions in root.glob(f"*/*/{VERSIONS}"):
        if str(versions.parent) not in current and not versions.parent.is_symlink():
            shutil.rmtree(versions.parent, ignore_errors=True)


_following: dict[str, Following] = {}


def update_copy(where: str, base: str = "", *, follow: bool = False) -> Path:
    """Bring the local copy of a store's runs up to date. Returns its directory.

    Args:
        base: what ``TRACKER_STORE_DIR`` says. follow: go on copying while this process lives.

    Raises:
        Unavailable, Refused: the store can't be read, and there is no copy. Where there is one, stderr says so.
    """
    root = addresses.copy_directory(where, base)
    if where in _following:  # a command asks several times, and its copy is new
        return root
    try:
        refresh(where, root)
    except (DeliveryError, OSError) as error:
        if not root.is_dir() or not os.listdir(root):
            raise
        _print_message(f"{one_line(str(error), 300)}; {SHOWN}")
    if follow:
        _following[where] = Following(where, root)
        _following[where].start()
    return root
