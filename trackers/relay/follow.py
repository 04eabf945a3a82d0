"""``trackers sync --follow``: deliver live for machines that can't, every run below some directories."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from trackers.errors import NotFound, UsageError
from trackers.journal.run_directory import RunDirectory, is_run
from trackers.relay.delivery.cursor_file import delivery_report
from trackers.relay.sync import DAMAGE, SEEN_S, TURN_S, RunSync

LOOK_S = 2.0
"""Between looks for new runs; longer where a look takes long, so that it never takes more than a twentieth."""
DEPTH = 6
"""Maximum depth below a directory at which runs are found."""
SHARE_S = 15.0
"""Minimum time for which a running run is served before another one takes its place, in seconds."""


class Follower:
    """Serves runs, a few at once, until it is told to stop.

    Args:
        to: trackers; default each run's own.
        show: called now and then with a run at work, and once at its end.
        complain: called with what keeps a run from being served.
        jobs: how many runs are served at once; where there are more, they take turns.
        trusted: the runs' options count, whoever wrote them; see :mod:`trackers.journal.trust`.
    """

    def __init__(
        self,
        roots: Sequence[Path],
        to: Sequence[str],
        show: Callable[[RunSync], None],
        *,
        complain: Callable[[str], None] = lambda text: None,
        jobs: int = 4,
        trusted: bool = False,
    ) -> None:
        self._roots = list(roots)
        self._to = list(to)
        self._show = show
        self._complain = complain
        self._jobs = jobs
        self._trusted = trusted
        self._active: dict[Path, RunSync] = {}
        self._begun: dict[Path, float] = {}
        self._shown: dict[Path, float] = {}
        self._queue: list[Path] = []
        self._refused: dict[Path, int] = {}
        self._look_at = 0.0

    def serve(self, stopping: Callable[[], bool]) -> bool:
        """Work until ``stopping``. True if every run has ended and is delivered then."""
        try:
            while not stopping():
                self._look()
                self._begin()
                for path in list(self._active):
                    self._turn(path)
                time.sleep(TURN_S)
        finally:
            for path in list(self._active):
                self._end(path)
        return all(self._is_delivered(run) for run in self._runs())

    def _runs(self) -> Iterator[RunDirectory]:
        for root in self._roots:
            yield from runs_below(root)

    def _look(self) -> None:
        began = time.monotonic()
        if began < self._look_at:
            return
        for run in self._runs():
            path = Path(os.path.realpath(run.path))
            known = path in self._active or path in self._queue
            if not known and self._refused.get(path) != _attempt(run) and not self._is_delivered(run):
                self._queue.append(path)
        now = time.monotonic()
        self._look_at = now + max(LOOK_S, 20 * (now - began))

    def _begin(self) -> None:
        if self._queue and len(self._active) >= self._jobs:
            oldest = min(self._active, key=lambda path: self._begun[path])
            if time.monotonic() - self._begun[oldest] < SHARE_S:
                return
            self._end(oldest)
            self._queue.append(oldest)
        while self._queue and len(self._active) < self._jobs:
            path = self._queue.pop(0)
            try:
                work = RunSync(RunDirectory(path), self._to, follow=True, trusted=self._trusted)
                work.begin()
            except NotFound:
                continue  # deleted meanwhile
            except UsageError as error:
                self._refuse(path, str(error))
                continue
            except DAMAGE as error:
                self._refuse(path, f"it can't be delivered ({type(error).__name__}: {error}); see docs/security.md")
                continue
            self._active[path] = work
            self._begun[path] = time.monotonic()

    def _refuse(self, path: Path, text: str) -> None:
        self._refused[path] = _attempt(RunDirectory(path))
        self._complain(f"{path}: {text}")

    def _turn(self, path: Path) -> None:
        try:
            self._serve(path)
        except DAMAGE as error:
            self._end(path, show=False)
            self._refuse(path, f"it can't be delivered any more ({type(error).__name__}: {error})")

    def _serve(self, path: Path) -> None:
        work = self._active[path]
        if not path.exists():
            self._end(path, show=False)
        elif not work.turn():
            self._end(path)
            if work.lacking or any(entry["state"] == "stopped" for entry in work.report().values()):
                # It was said why. It is tried again with the next attempt, or when somebody asks for it.
                self._refused[path] = _attempt(work.run)
        elif time.monotonic() - self._shown.get(path, 0.0) > SEEN_S:
            self._shown[path] = time.monotonic()
            self._show(work)

    def _end(self, path: Path, *, show: bool = True) -> None:
        work = self._active.pop(path, None)
        if work is not None:
            work.end()
        if work is not None and show:
            self._show(work)

    def _is_delivered(self, run: RunDirectory) -> bool:
        try:
            names = self._to or RunSync(run, (), follow=True, echo=False).names
            entries = [entry for name, entry in delivery_report(run, names).items() if name in names]
        except NotFound:
            return True
        except DAMAGE:
            return False
        return all(entry["state"] == "delivered" and not entry["rejected"] for entry in entries)


def _attempt(run: RunDirectory) -> int:
    """The newest attempt's number; -1 where the run's streams can't be listed."""
    try:
        return run.attempt()
    except OSError:
        return -1


def runs_below(root: Path, depth: int = DEPTH, seen: set[tuple[int, int]] | None = None) -> Iterator[RunDirectory]:
    """Every run in a directory tree, or the one run that ``root`` is. What can't be read is passed over.

    Each directory is visited once, whatever links lead to it: a directory of links to itself would never end.
    """
    seen = set() if seen is None else seen
    try:
        found = os.stat(root)
        if (found.st_dev, found.st_ino) in seen:
            return
        seen.add((found.st_dev, found.st_ino))
        if is_run(root):
            yield RunDirectory(root)
            return
        with os.scandir(root) as entries:
            inside = sorted(entry.name for entry in entries if entry.is_dir() and not entry.name.startswith("."))
    except OSError:
        return
    for name in inside if depth else []:
        yield from runs_below(root / name, depth - 1, seen)
